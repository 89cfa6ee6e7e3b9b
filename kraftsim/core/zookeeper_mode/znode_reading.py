"""Converts a cluster's znodes to records: the initial state of a ZooKeeper-mode controller, and the
copy of a migration to KRaft.

In Kafka's migration order: topics, each with its configuration and its partitions; broker
configurations; credentials and quotas; producer ids; ACLs; tokens. Epochs are preserved; the
partition epoch is the version of the state znode.
Source: kafka.zk.ZkMigrationClient.readAllMetadata, kafka.zk.migration.*,
KafkaController.initializeControllerContext, KIP-866.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from kraftsim.core.metadata.client_quotas import CLIENT_ID, IP, USER
from kraftsim.core.zookeeper_mode.topic_ids import derived_topic_id
from kraftsim.producer_ids.rules_blocks import ProducerIdBlock
from protocol.acls import AclPatternType
from protocol.config_resources import ConfigResourceType
from protocol.malformed import MalformedMessage
from protocol.metadata.m00_register_broker import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)
from protocol.metadata.m02_topic import TopicRecord
from protocol.metadata.m03_partition import NO_LEADER, RECOVERED, RECOVERING, PartitionRecord
from protocol.metadata.m04_config import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigRecord
from protocol.metadata.m10_delegation_token import DelegationTokenRecord
from protocol.metadata.m11_user_scram_credential import UserScramCredentialRecord
from protocol.metadata.m14_client_quota import ClientQuotaRecord, EntityData
from protocol.metadata.m15_producer_ids import ProducerIdsRecord
from protocol.metadata.m18_access_control_entry import AccessControlEntryRecord
from protocol.schema import Message
from protocol.zookeeper.kafka_access_znodes import (
    DELEGATION_TOKENS,
    MECHANISMS,
    RESOURCE_TYPES,
    DelegationTokenZnode,
    ScramText,
    acl_path,
    desanitized,
    parse_acls,
)
from protocol.zookeeper.kafka_znodes import (
    CONFIG,
    DEFAULT_ENTITY,
    PRODUCER_ID_BLOCK,
    TOPICS,
    BrokerZnode,
    PartitionStateZnode,
    ProducerIdBlockZnode,
    TopicZnode,
    config_path,
    parse_config,
    state_path,
    topic_path,
)
from protocol.zookeeper.znodes import Stat

Znodes: TypeAlias = Mapping[str, tuple[bytes | None, Stat]]
"""Path -> data and stat of a znode."""
AbsentState: TypeAlias = Callable[[PartitionRecord], None]
NextId: TypeAlias = Callable[[ProducerIdBlock], int]
NO_BROKER_EPOCH: Final = -1
NOT_MADE: Final = -1
ACL_BATCH: Final = 100
SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def not_made_yet(record: PartitionRecord) -> None:
    """Mark a partition without a state znode as not created: the first change sets its epochs
    to 0.
    """
    record.leader, record.leader_epoch, record.partition_epoch, record.isr = (
        NO_LEADER,
        NOT_MADE,
        NOT_MADE,
        [],
    )


def as_if_made(record: PartitionRecord) -> None:
    """Set the initial state of a partition without a state znode: all replicas in sync, the first
    one is leader.

    Source: KIP-866.
    """
    record.leader, record.leader_epoch, record.partition_epoch, record.isr = (
        record.replicas[0],
        0,
        0,
        list(record.replicas),
    )


def next_producer_id(block: ProducerIdBlock) -> int:
    """Return the first id after a block.

    Using the first one of the block instead was KAFKA-15552.
    """
    return block.next_producer_id


def records_of_znodes(
    znodes: Znodes,
    draw_id: Callable[[], bytes],
    *,
    absent_state: AbsentState = as_if_made,
    next_id: NextId = next_producer_id,
) -> Iterator[list[Message]]:
    """Yield the records of a whole cluster, in groups that belong together.

    Topics being deleted must be left out.

    `draw_id` creates the ids of ACLs, which exist in KRaft only. Raises MalformedMessage.
    """
    for topic in _names_below(znodes, TOPICS):
        yield topic_records(znodes, topic, absent_state=absent_state)
    for name in _names_below(znodes, config_path("brokers")):
        records = _config_records(znodes, "brokers", BROKER_RESOURCE, name)
        if records:
            yield records
    yield from quota_records(znodes)
    yield from producer_id_records(znodes, next_id)
    yield from acl_records(znodes, draw_id)
    tokens = [
        token_record(data)
        for name in _names_below(znodes, DELEGATION_TOKENS)
        if (data := znodes[f"{DELEGATION_TOKENS}/{name}"][0])
    ]
    if tokens:
        yield tokens


def topic_records(
    znodes: Znodes, topic: str, *, absent_state: AbsentState = as_if_made
) -> list[Message]:
    """Return the records of a topic: id, configuration, partitions.

    A topic without an id gets the one derived from its name.
    """
    found = TopicZnode.parse(znodes[topic_path(topic)][0] or b"")
    topic_id = derived_topic_id(topic) if found.topic_id is None else found.topic_id
    states = {number: znodes.get(state_path(topic, number)) for number in found.partitions}
    partitions = [
        partition_record(topic_id, found, number, states[number], absent_state)
        for number in sorted(found.partitions)
    ]
    return [
        TopicRecord(name=topic, topic_id=topic_id),
        *_config_records(znodes, "topics", TOPIC_RESOURCE, topic),
        *partitions,
    ]


def partition_record(
    topic_id: bytes,
    topic: TopicZnode,
    number: int,
    state: tuple[bytes | None, Stat] | None,
    absent_state: AbsentState = as_if_made,
) -> PartitionRecord:
    """Return the record of one partition. Raises MalformedMessage."""
    if not topic.partitions[number]:
        raise MalformedMessage(None, None, TOPICS, f"partition {number} has no replicas")
    record = PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(topic.partitions[number]),
        adding_replicas=list(topic.adding_replicas.get(number, ())),
        removing_replicas=list(topic.removing_replicas.get(number, ())),
    )
    if state is None:
        absent_state(record)
        return record
    found = PartitionStateZnode.parse(state[0] or b"")
    record.leader, record.leader_epoch, record.partition_epoch, record.isr = (
        found.leader,
        found.leader_epoch,
        state[1].version,
        list(found.isr),
    )
    record.leader_recovery_state = RECOVERING if found.is_recovering else RECOVERED
    return record


def quota_records(znodes: Znodes) -> Iterator[list[Message]]:
    """Yield credentials and quotas: of users, of clients, of both, of addresses; one group per
    entity.

    Raises MalformedMessage.
    """
    yield from _entity_records(znodes, "users", USER)
    yield from _entity_records(znodes, "clients", CLIENT_ID)
    for user in _names_below(znodes, config_path("users")):
        for client in _names_below(znodes, config_path("users", user, "clients")):
            path = config_path("users", user, "clients", client)
            entity = [_entity(USER, user), _entity(CLIENT_ID, client)]
            records = _quotas(entity, parse_config(znodes[path][0] or b"{}"))
            if records:
                yield records
    yield from _entity_records(znodes, "ips", IP)


def producer_id_records(
    znodes: Znodes, next_id: NextId = next_producer_id
) -> Iterator[list[Message]]:
    """Yield the next producer id, if any was allocated: the first one after the last block.

    Raises MalformedMessage.
    """
    data, _ = znodes.get(PRODUCER_ID_BLOCK, (None, None))
    if data:
        found = ProducerIdBlockZnode.parse(data)
        block = ProducerIdBlock(
            first_producer_id=found.first_producer_id,
            size=found.last_producer_id - found.first_producer_id + 1,
        )
        yield [
            ProducerIdsRecord(
                broker_id=found.broker_id,
                broker_epoch=NO_BROKER_EPOCH,
                next_producer_id=next_id(block),
            )
        ]


def acl_records(znodes: Znodes, draw_id: Callable[[], bytes]) -> Iterator[list[Message]]:
    """Yield all ACLs in groups of a hundred: resources by type, pattern type, and name in
    descending order.

    Raises MalformedMessage.
    """
    for resource in RESOURCE_TYPES:
        for pattern in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
            root = acl_path(resource, pattern, "").removesuffix("/")
            for name in reversed(_names_below(znodes, root)):
                records: list[Message] = [
                    AccessControlEntryRecord(
                        id=draw_id(),
                        resource_type=resource,
                        resource_name=name,
                        pattern_type=pattern,
                        principal=rule.principal,
                        host=rule.host,
                        operation=rule.operation,
                        permission_type=rule.permission,
                    )
                    for rule in parse_acls(znodes[f"{root}/{name}"][0])
                ]
                yield from (
                    records[first : first + ACL_BATCH]
                    for first in range(0, len(records), ACL_BATCH)
                )


def token_record(data: bytes) -> DelegationTokenRecord:
    """Return the record of a token. Raises MalformedMessage."""
    found = DelegationTokenZnode.parse(data)
    return DelegationTokenRecord(
        owner=found.owner,
        requester=found.requester,
        renewers=list(found.renewers),
        issue_timestamp=found.issue_timestamp,
        max_timestamp=found.max_timestamp,
        expiration_timestamp=found.expiry_timestamp,
        token_id=found.token_id,
    )


def broker_record(broker_id: int, data: bytes, stat: Stat) -> RegisterBrokerRecord:
    """Return the record of a live broker: it is unfenced, and its epoch is the czxid of its znode.

    Raises MalformedMessage.
    """
    found = BrokerZnode.parse(data)
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=stat.czxid,
        end_points=[_end_point(each, found.security_protocols) for each in found.endpoints],
        features=_features(found),
        rack=found.rack,
        fenced=False,
    )


def _end_point(text: str, protocols: Mapping[str, str]) -> BrokerEndpoint:
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    protocol = SECURITY_PROTOCOLS.get(protocols.get(name, name))
    if protocol is None or not port.isdecimal():
        raise MalformedMessage(None, None, "endpoints", f"{text!r} is not a valid endpoint")
    return BrokerEndpoint(
        name=name, host=host.strip("[]"), port=int(port), security_protocol=protocol
    )


def _features(broker: BrokerZnode) -> list[BrokerFeature]:
    found = []
    for name, levels in broker.features.items():
        if isinstance(levels, dict):
            first, last = levels.get("min_version"), levels.get("max_version")
            if isinstance(first, int) and isinstance(last, int):
                found.append(
                    BrokerFeature(
                        name=name, min_supported_version=first, max_supported_version=last
                    )
                )
    return found


def _config_records(
    znodes: Znodes, entity_type: str, resource_type: int, name: str
) -> list[Message]:
    data, _ = znodes.get(config_path(entity_type, name), (None, None))
    resource_name = (
        "" if name == DEFAULT_ENTITY and resource_type == ConfigResourceType.BROKER else name
    )
    return [
        ConfigRecord(
            resource_type=resource_type, resource_name=resource_name, name=key, value=value
        )
        for key, value in (parse_config(data) if data else {}).items()
    ]


def _entity_records(znodes: Znodes, entity_type: str, kind: str) -> Iterator[list[Message]]:
    for name in _names_below(znodes, config_path(entity_type)):
        config = parse_config(znodes[config_path(entity_type, name)][0] or b'{"config":{}}')
        for mechanism, number in MECHANISMS.items():
            text = config.pop(mechanism, None)
            if text is not None:
                yield [_credential(desanitized(name), number, ScramText.parse(text))]
        records = _quotas([_entity(kind, name)], config)
        if records:
            yield records


def _credential(user: str, mechanism: int, text: ScramText) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=text.salt,
        stored_key=text.stored_key,
        server_key=text.server_key,
        iterations=text.iterations,
    )


def _entity(kind: str, name: str) -> EntityData:
    return EntityData(
        entity_type=kind, entity_name=None if name == DEFAULT_ENTITY else desanitized(name)
    )


def _quotas(entity: list[EntityData], config: Mapping[str, str]) -> list[Message]:
    try:
        return [
            ClientQuotaRecord(entity=entity, key=key, value=float(value))
            for key, value in config.items()
        ]
    except ValueError as wrong:
        raise MalformedMessage(None, None, CONFIG, f"a quota is not a number: {wrong}") from wrong


def _names_below(znodes: Znodes, path: str) -> list[str]:
    """Return the names of the children of a path, sorted."""
    beginning = f"{path}/"
    return sorted(
        each[len(beginning) :]
        for each in znodes
        if each.startswith(beginning) and "/" not in each[len(beginning) :]
    )
