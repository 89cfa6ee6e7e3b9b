"""A config znode as records: the changes to the image, so that a broker handles changes only.

A znode has all configurations of a topic, a broker, a user, a client, an address, or a user's
client; users' znodes have their credentials, too.
Source: kafka.server.{ConfigHandler, ZkConfigManager}, kafka.zk.AdminZkClient.
"""

from collections.abc import Iterator
from typing import Final

from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.metadata.record_kinds import MetadataRecord
from kraftsim.core.metadata.registries import quota_entity
from kraftsim.core.zookeeper_mode.znode_reading import Znodes, quota_records
from protocol.malformed import MalformedMessage
from protocol.metadata.m04_config import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigRecord
from protocol.metadata.m11_user_scram_credential import UserScramCredentialRecord
from protocol.metadata.m14_client_quota import ClientQuotaRecord, EntityData
from protocol.metadata.m22_remove_user_scram_credential import RemoveUserScramCredentialRecord
from protocol.zookeeper.kafka_access_znodes import desanitized
from protocol.zookeeper.kafka_znodes import CONFIG, DEFAULT_ENTITY, config_path, parse_config
from protocol.zookeeper.znodes import Stat

NOTHING_SET: Final = b'{"version":1,"config":{}}'
KINDS: Final = {"users": "user", "clients": "client-id", "ips": "ip"}


def entity_changes(
    entity_path: str, data: bytes | None, image: MetadataImage
) -> list[MetadataRecord]:
    """Return the changes from the image to a znode, such as `users/alice/clients/c1`; without data
    or znode nothing is set.

    Raises MalformedMessage.
    """
    kind, _, rest = entity_path.partition("/")
    if kind in ("topics", "brokers"):
        resource_type = TOPIC_RESOURCE if kind == "topics" else BROKER_RESOURCE
        name = "" if rest == DEFAULT_ENTITY and resource_type == BROKER_RESOURCE else rest
        return list(_config_changes(resource_type, name, data, image))
    if kind not in KINDS or not rest:
        raise MalformedMessage(None, None, "entity_path", f"{entity_path!r} is not a valid entity")
    return list(_quota_changes(entity_path, data or NOTHING_SET, image))


def _config_changes(
    resource_type: int, name: str, data: bytes | None, image: MetadataImage
) -> Iterator[MetadataRecord]:
    wanted = parse_config(data or NOTHING_SET)
    present = image.configs_of(resource_type, name)
    for key in [key for key in present if key not in wanted]:
        yield ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=None)
    for key, value in wanted.items():
        if present.get(key) != value:
            yield ConfigRecord(
                resource_type=resource_type, resource_name=name, name=key, value=value
            )


def _quota_changes(entity_path: str, data: bytes, image: MetadataImage) -> Iterator[MetadataRecord]:
    wanted = [
        record
        for piece in quota_records(_alone(entity_path, data))
        for record in piece
        if isinstance(record, ClientQuotaRecord | UserScramCredentialRecord)
    ]
    entity = [
        EntityData(
            entity_type=KINDS[kind],
            entity_name=None if name == DEFAULT_ENTITY else desanitized(name),
        )
        for kind, name in _pairs(entity_path)
    ]
    keys = {record.key for record in wanted if isinstance(record, ClientQuotaRecord)}
    for present in image.registries.quotas.of_group(quota_entity(entity)):
        if present.key not in keys:
            yield ClientQuotaRecord(
                entity=entity, key=present.key, value=present.value, remove=True
            )
    if len(entity) == 1 and entity[0].entity_type == "user":
        mechanisms = {
            record.mechanism for record in wanted if isinstance(record, UserScramCredentialRecord)
        }
        for held in image.registries.scram_credentials.of_group(entity[0].entity_name):
            if held.mechanism not in mechanisms:
                yield RemoveUserScramCredentialRecord(name=held.name, mechanism=held.mechanism)
    yield from (record for record in wanted if not _is_known(record, image))


def _is_known(record: ClientQuotaRecord | UserScramCredentialRecord, image: MetadataImage) -> bool:
    registries = image.registries
    if isinstance(record, ClientQuotaRecord):
        return registries.quotas.get((quota_entity(record.entity), record.key)) == record
    return registries.scram_credentials.get((record.name, record.mechanism)) == record


def _alone(entity_path: str, data: bytes) -> Znodes:
    """Return the znodes of a cluster with this entity only."""
    znodes: dict[str, tuple[bytes | None, Stat]] = {f"{CONFIG}/{entity_path}": (data, Stat())}
    pairs = _pairs(entity_path)
    if len(pairs) == 2:
        znodes[config_path(*pairs[0])] = (NOTHING_SET, Stat())
    return znodes


def _pairs(entity_path: str) -> list[tuple[str, str]]:
    """Return (type, name) of each part of an entity. Raises MalformedMessage."""
    parts = entity_path.split("/")
    pairs = list(zip(parts[::2], parts[1::2], strict=False))
    if len(parts) % 2 or any(kind not in KINDS for kind, _ in pairs):
        raise MalformedMessage(None, None, "entity_path", f"{entity_path!r} is not a valid entity")
    return pairs
