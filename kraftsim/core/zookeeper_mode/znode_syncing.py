"""The writes that bring ZooKeeper in line with an image: done by a KRaft controller on taking over,
before it writes changes only.

Kafka compares, with two exceptions: entities with quotas or credentials are always rewritten, and
so are tokens.
Source: org.apache.kafka.metadata.migration.KRaftMigrationZkWriter.handleSnapshot, KIP-866.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kraftsim.core.metadata.client_quotas import CLIENT_ID, USER
from kraftsim.core.metadata.partition_registration import PartitionRegistration, partition_of
from kraftsim.core.metadata.registries import QuotaEntity, quota_entity
from kraftsim.core.zookeeper_mode.znode_reading import (
    Znodes,
    acl_records,
    producer_id_records,
    quota_records,
    topic_records,
)
from kraftsim.core.zookeeper_mode.znode_texts import (
    AclResource,
    MetadataFacts,
    TopicView,
    acl_resource,
    acl_rule,
    acl_rules,
)
from kraftsim.core.zookeeper_mode.znode_writing import (
    WriteKind,
    ZnodeOperation,
    ZnodeWrite,
    acls_changed,
    config_changed,
    partitions_changed,
    producer_ids_changed,
    quota_changed,
    token_changed,
    topic_changed,
    topic_created,
    topic_deleted,
)
from protocol.config_resources import ConfigResourceType
from protocol.metadata.m02_topic import TopicRecord
from protocol.metadata.m03_partition import PartitionRecord
from protocol.metadata.m04_config import BROKER_RESOURCE, TOPIC_RESOURCE
from protocol.metadata.m11_user_scram_credential import UserScramCredentialRecord
from protocol.metadata.m14_client_quota import ClientQuotaRecord
from protocol.metadata.m15_producer_ids import ProducerIdsRecord
from protocol.metadata.m18_access_control_entry import AccessControlEntryRecord
from protocol.zookeeper.kafka_access_znodes import DELEGATION_TOKENS, AclRule
from protocol.zookeeper.kafka_znodes import (
    DEFAULT_ENTITY,
    DELETE_TOPICS,
    TOPICS,
    config_path,
    parse_config,
    state_path,
)

NO_ID: Final = bytes(16)


def sync_operations(
    znodes: Znodes, facts: MetadataFacts, controller_epoch: int
) -> list[ZnodeOperation]:
    """Return the writes, in Kafka's order, given all `znodes`. Raises MalformedMessage."""
    recreated: set[str] = set()
    return [
        *_pending_deletions(znodes),
        *_topics(znodes, facts, controller_epoch, recreated),
        *_configs(znodes, facts, recreated),
        *_quotas(znodes, facts),
        *_producer_ids(znodes, facts),
        *_access(znodes, facts),
        *_tokens(znodes, facts),
    ]


def _pending_deletions(znodes: Znodes) -> Iterator[ZnodeOperation]:
    names = _names(znodes, DELETE_TOPICS)
    if names:
        writes = (
            ZnodeWrite(kind=WriteKind.DELETE, path=f"{DELETE_TOPICS}/{name}") for name in names
        )
        yield ZnodeOperation(name="DeletePendingTopicDeletion", writes=tuple(writes))


def _topics(
    znodes: Znodes, facts: MetadataFacts, controller_epoch: int, recreated: set[str]
) -> Iterator[ZnodeOperation]:
    """Create, update and delete topics; then partitions, missing ones first and unknown ones last.

    A topic that is deleted because another one has its name now (`recreated` gets these) is deleted
    before that one is created: Kafka fails to create it under the existing name, and deletes the
    old one afterwards.
    """
    wanted = {topic.topic_id: topic for topic in facts.topics()}
    pending = _names(znodes, DELETE_TOPICS)
    there: dict[bytes, dict[int, PartitionRegistration]] = {}
    deleted: list[str] = []
    for name in _names(znodes, TOPICS):
        if name in pending:
            continue
        records = topic_records(znodes, name)
        topic_id = next(record.topic_id for record in records if isinstance(record, TopicRecord))
        if topic_id in wanted:
            there[topic_id] = {
                record.partition_id: partition_of(record)
                for record in records
                if isinstance(record, PartitionRecord)
            }
        else:
            deleted.append(name)
    recreated |= {topic.name for topic in wanted.values()}.intersection(deleted)
    yield from (topic_deleted(name) for name in deleted if name in recreated)
    yield from (
        topic_created(topic, controller_epoch)
        for topic_id, topic in wanted.items()
        if topic_id not in there
    )
    yield from (
        topic_changed(wanted[topic_id])
        for topic_id, found in there.items()
        if _is_reassigned(wanted[topic_id], found)
    )
    yield from (topic_deleted(name) for name in deleted if name not in recreated)
    for topic_id, found in there.items():
        topic = wanted[topic_id]
        if missing := [number for number in sorted(topic.partitions) if number not in found]:
            yield partitions_changed(topic, missing, controller_epoch)
    for topic_id, found in there.items():
        topic = wanted[topic_id]
        if changed := [
            number
            for number, each in found.items()
            if number in topic.partitions and topic.partitions[number] != each
        ]:
            yield partitions_changed(topic, changed, controller_epoch)
    for topic_id, found in there.items():
        topic = wanted[topic_id]
        if extra := [number for number in found if number not in topic.partitions]:
            writes = (
                ZnodeWrite(
                    kind=WriteKind.DELETE,
                    path=state_path(topic.name, number).removesuffix("/state"),
                )
                for number in extra
            )
            yield ZnodeOperation(name="DeletePartition", writes=tuple(writes))


def _is_reassigned(topic: TopicView, found: Mapping[int, PartitionRegistration]) -> bool:
    return sorted(topic.partitions) != sorted(found) or any(
        (each.replicas, each.adding_replicas, each.removing_replicas)
        != (
            topic.partitions[number].replicas,
            topic.partitions[number].adding_replicas,
            topic.partitions[number].removing_replicas,
        )
        for number, each in found.items()
    )


def _configs(znodes: Znodes, facts: MetadataFacts, recreated: set[str]) -> Iterator[ZnodeOperation]:
    """Write new configurations first, then changed ones.

    Those of a recreated topic were deleted with the former one.
    """
    there: dict[tuple[int, str], dict[str, str]] = {}
    for entity_type, resource_type in (("brokers", BROKER_RESOURCE), ("topics", TOPIC_RESOURCE)):
        for name in _names(znodes, config_path(entity_type)):
            data, _ = znodes[config_path(entity_type, name)]
            is_default = name == DEFAULT_ENTITY and resource_type == ConfigResourceType.BROKER
            if resource_type != TOPIC_RESOURCE or name not in recreated:
                there[resource_type, "" if is_default else name] = (
                    parse_config(data) if data else {}
                )
    new = [resource for resource, _ in facts.configs() if resource not in there]
    other = [
        resource for resource, found in there.items() if dict(facts.configs_of(*resource)) != found
    ]
    for resource in (*new, *other):
        operation = config_changed(*resource, facts, drops_empty=True)
        if operation is not None:
            yield operation


def _quotas(znodes: Znodes, facts: MetadataFacts) -> Iterator[ZnodeOperation]:
    """Write all entities that have, or had, quotas or credentials; users alone come last."""
    entities: dict[QuotaEntity, None] = {
        quota_entity(record.entity): None for record in facts.registries.quotas.records()
    }
    entities.update(
        {((USER, record.name),): None for record in facts.registries.scram_credentials.records()}
    )
    for records in quota_records(znodes):
        for record in records:
            if isinstance(record, ClientQuotaRecord):
                entities[quota_entity(record.entity)] = None
            elif isinstance(record, UserScramCredentialRecord):
                entities[((USER, record.name),)] = None
    for is_user in (False, True):
        yield from (
            quota_changed(entity, facts) for entity in entities if _is_user_alone(entity) is is_user
        )


def _is_user_alone(entity: QuotaEntity) -> bool:
    kinds = dict(entity)
    return USER in kinds and CLIENT_ID not in kinds


def _producer_ids(znodes: Znodes, facts: MetadataFacts) -> Iterator[ZnodeOperation]:
    if facts.next_producer_id is None:
        return
    known = [
        record.next_producer_id
        for records in producer_id_records(znodes)
        for record in records
        if isinstance(record, ProducerIdsRecord)
    ]
    if known != [facts.next_producer_id]:
        yield producer_ids_changed(facts)


def _access(znodes: Znodes, facts: MetadataFacts) -> Iterator[ZnodeOperation]:
    there: dict[AclResource, list[AclRule]] = {}
    for records in acl_records(znodes, lambda: NO_ID):
        for record in records:
            if isinstance(record, AccessControlEntryRecord):
                there.setdefault(acl_resource(record), []).append(acl_rule(record))
    wanted = dict.fromkeys(
        acl_resource(record) for record in facts.registries.access_rules.records()
    )
    new = [resource for resource in wanted if resource not in there]
    gone = [resource for resource in there if resource not in wanted]
    other = [
        resource
        for resource in there
        if resource in wanted and set(there[resource]) != set(acl_rules(resource, facts.registries))
    ]
    yield from (acls_changed(resource, facts) for resource in (*new, *gone, *other))


def _tokens(znodes: Znodes, facts: MetadataFacts) -> Iterator[ZnodeOperation]:
    known = facts.registries.delegation_tokens
    yield from (token_changed(record.token_id, facts) for record in known.records())
    yield from (
        token_changed(token_id, facts)
        for token_id in _names(znodes, DELEGATION_TOKENS)
        if known.get(token_id) is None
    )


def _names(znodes: Znodes, path: str) -> list[str]:
    beginning = f"{path}/"
    return sorted(
        each[len(beginning) :]
        for each in znodes
        if each.startswith(beginning) and "/" not in each[len(beginning) :]
    )
