"""Converts metadata changes to znode writes, in Kafka's order.

`Touched` gets each record before it is replayed; afterwards `operations_of` returns the writes.
`sync_operations` compares everything with ZooKeeper, as a KRaft controller does on taking over. An
operation is atomic; a notification for the brokers follows once it has succeeded.
Source: org.apache.kafka.metadata.migration.KRaftMigrationZkWriter, kafka.zk.migration.*,
kafka.zk.AdminZkClient.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kraftsim.core.metadata.client_quotas import CLIENT_ID, USER
from kraftsim.core.metadata.registries import QuotaEntity, quota_entity
from kraftsim.core.zookeeper_mode.znode_texts import (
    AclResource,
    MetadataFacts,
    TopicView,
    acl_resource,
    acl_text,
    config_entity,
    producer_id_text,
    quota_path,
    quota_text,
    state_text,
    token_text,
    topic_text,
)
from protocol.metadata.m02_topic import TopicRecord
from protocol.metadata.m03_partition import PartitionRecord
from protocol.metadata.m04_config import ConfigRecord
from protocol.metadata.m05_partition_change import PartitionChangeRecord
from protocol.metadata.m09_remove_topic import RemoveTopicRecord
from protocol.metadata.m10_delegation_token import DelegationTokenRecord
from protocol.metadata.m11_user_scram_credential import UserScramCredentialRecord
from protocol.metadata.m14_client_quota import ClientQuotaRecord
from protocol.metadata.m15_producer_ids import ProducerIdsRecord
from protocol.metadata.m18_access_control_entry import AccessControlEntryRecord
from protocol.metadata.m19_remove_access_control_entry import RemoveAccessControlEntryRecord
from protocol.metadata.m22_remove_user_scram_credential import RemoveUserScramCredentialRecord
from protocol.metadata.m26_remove_delegation_token import RemoveDelegationTokenRecord
from protocol.schema import Message
from protocol.zookeeper.kafka_access_znodes import (
    TOKEN_CHANGE,
    acl_change_path,
    acl_path,
    build_acl_change,
    token_path,
)
from protocol.zookeeper.kafka_znodes import (
    CONFIG,
    CONFIG_CHANGE,
    PRODUCER_ID_BLOCK,
    build_config,
    build_config_change,
    config_path,
    state_path,
    topic_path,
)
from protocol.zookeeper.op_codes import ANY_VERSION, CreateMode


class WriteKind(Enum):
    """The type of a write."""

    CREATE = "create"
    SET = "set"
    PUT = "put"
    """Set, or create with its parents if it does not exist."""
    DELETE = "delete"
    DROP = "drop"
    """Delete, if it exists."""
    DELETE_TREE = "delete-tree"
    """Delete recursively."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZnodeWrite:
    """One write of a znode, conditional if it has a version."""

    kind: WriteKind
    path: str
    data: bytes | None = None
    version: int = ANY_VERSION
    mode: CreateMode = CreateMode.PERSISTENT


@dataclass(frozen=True, slots=True, kw_only=True)
class ZnodeOperation:
    """Writes that belong together.

    `name` is Kafka's; `notification` notifies brokers afterwards, and is not awaited.
    """

    name: str
    writes: tuple[ZnodeWrite, ...]
    notification: ZnodeWrite | None = None


@dataclass(slots=True)
class Touched:
    """What some records change, without duplicates, in order of occurrence."""

    deleted_topics: dict[str, bytes] = field(default_factory=dict)
    created_topics: dict[bytes, None] = field(default_factory=dict)
    reassigned_topics: dict[bytes, None] = field(default_factory=dict)
    """Topics whose partitions have another assignment or directories, or which have more
    partitions.
    """
    new_partitions: dict[tuple[bytes, int], None] = field(default_factory=dict)
    partitions: dict[tuple[bytes, int], None] = field(default_factory=dict)
    configs: dict[tuple[int, str], None] = field(default_factory=dict)
    quotas: dict[QuotaEntity, None] = field(default_factory=dict)
    access: dict[AclResource, None] = field(default_factory=dict)
    tokens: dict[str, None] = field(default_factory=dict)
    producer_ids: bool = False

    def emit(self, record: Message, facts: MetadataFacts) -> None:
        """Add a record; `facts` are the state before it."""
        match record:
            case TopicRecord():
                self.created_topics[record.topic_id] = None
            case RemoveTopicRecord():
                self._add_removal(record.topic_id, facts)
            case PartitionRecord():
                if record.topic_id not in self.created_topics:
                    self.reassigned_topics[record.topic_id] = None
                    self.new_partitions[record.topic_id, record.partition_id] = None
            case PartitionChangeRecord():
                if any(
                    each is not None
                    for each in (
                        record.replicas,
                        record.adding_replicas,
                        record.removing_replicas,
                        record.directories,
                    )
                ):
                    self.reassigned_topics[record.topic_id] = None
                self.partitions[record.topic_id, record.partition_id] = None
            case ConfigRecord():
                self.configs[record.resource_type, record.resource_name] = None
            case ClientQuotaRecord():
                self.quotas[quota_entity(record.entity)] = None
            case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
                self.quotas[((USER, record.name),)] = None
            case ProducerIdsRecord():
                self.producer_ids = True
            case AccessControlEntryRecord():
                self.access[acl_resource(record)] = None
            case RemoveAccessControlEntryRecord():
                known = facts.registries.access_rules.get(record.id)
                if known is not None:
                    self.access[acl_resource(known)] = None
            case DelegationTokenRecord() | RemoveDelegationTokenRecord():
                self.tokens[record.token_id] = None

    def _add_removal(self, topic_id: bytes, facts: MetadataFacts) -> None:
        """Drop a topic that was created and deleted meanwhile: it is not in ZooKeeper."""
        is_new = topic_id in self.created_topics
        for kept in (self.created_topics, self.reassigned_topics):
            kept.pop(topic_id, None)
        for keys in (self.partitions, self.new_partitions):
            for key in [key for key in keys if key[0] == topic_id]:
                del keys[key]
        topic = facts.topic_by_id(topic_id)
        if topic is not None and not is_new:
            self.deleted_topics[topic.name] = topic_id
            self.configs.pop((2, topic.name), None)


def operations_of(
    touched: Touched, facts: MetadataFacts, controller_epoch: int
) -> list[ZnodeOperation]:
    """Return the writes for all changes; `facts` are the state after them."""
    found = [topic_deleted(name) for name in touched.deleted_topics]
    found += _topic_operations(touched, facts, controller_epoch)
    found += [
        each
        for resource in touched.configs
        if (each := config_changed(*resource, facts, drops_empty=True)) is not None
    ]
    found += [quota_changed(entity, facts) for entity in sorted(touched.quotas, key=_users_last)]
    if touched.producer_ids:
        found.append(producer_ids_changed(facts))
    found += [acls_changed(resource, facts) for resource in touched.access]
    found += [token_changed(token_id, facts) for token_id in touched.tokens]
    return found


def _topic_operations(
    touched: Touched, facts: MetadataFacts, controller_epoch: int
) -> Iterator[ZnodeOperation]:
    keys = (
        *touched.created_topics,
        *touched.reassigned_topics,
        *(key[0] for key in (*touched.new_partitions, *touched.partitions)),
    )
    for topic_id in dict.fromkeys(keys):
        topic = facts.topic_by_id(topic_id)
        assert topic is not None, "deleted topics are not in this set"
        if topic_id in touched.created_topics:
            yield topic_created(topic, controller_epoch)
            continue
        if topic_id in touched.reassigned_topics:
            yield topic_changed(topic)
        added = [number for of, number in touched.new_partitions if of == topic_id]
        if added:
            writes = [
                write
                for number in added
                for write in partition_created(topic, number, controller_epoch)
            ]
            yield ZnodeOperation(name="UpdatePartition", writes=tuple(writes))
        changed = [
            number for of, number in touched.partitions if of == topic_id and number not in added
        ]
        if changed:
            yield partitions_changed(topic, changed, controller_epoch)


def topic_created(topic: TopicView, controller_epoch: int) -> ZnodeOperation:
    """Create a topic: assignment, an empty configuration, and the state of each partition."""
    made = [
        ZnodeWrite(kind=WriteKind.CREATE, path=topic_path(topic.name), data=topic_text(topic)),
        ZnodeWrite(
            kind=WriteKind.CREATE, path=config_path("topics", topic.name), data=build_config({})
        ),
        ZnodeWrite(kind=WriteKind.CREATE, path=f"{topic_path(topic.name)}/partitions"),
        *(
            write
            for number in sorted(topic.partitions)
            for write in partition_created(topic, number, controller_epoch)
        ),
    ]
    return ZnodeOperation(name="CreateTopic", writes=tuple(made))


def topic_changed(topic: TopicView) -> ZnodeOperation:
    """Write the assignment of a topic."""
    return ZnodeOperation(
        name="UpdateTopic",
        writes=(
            ZnodeWrite(kind=WriteKind.SET, path=topic_path(topic.name), data=topic_text(topic)),
        ),
    )


def topic_deleted(name: str) -> ZnodeOperation:
    """Delete a topic, its partitions and its configuration."""
    writes = (
        ZnodeWrite(kind=WriteKind.DELETE_TREE, path=topic_path(name)),
        ZnodeWrite(kind=WriteKind.DROP, path=config_path("topics", name)),
    )
    return ZnodeOperation(name="DeleteTopic", writes=writes)


def partition_created(
    topic: TopicView, number: int, controller_epoch: int
) -> tuple[ZnodeWrite, ZnodeWrite]:
    """Create a partition of an existing topic."""
    state = state_path(topic.name, number)
    return (
        ZnodeWrite(kind=WriteKind.CREATE, path=state.removesuffix("/state")),
        ZnodeWrite(
            kind=WriteKind.CREATE,
            path=state,
            data=state_text(topic.partitions[number], controller_epoch),
        ),
    )


def partitions_changed(
    topic: TopicView, numbers: Sequence[int], controller_epoch: int
) -> ZnodeOperation:
    """Write the state of some partitions of a topic, unconditionally."""
    writes = (
        ZnodeWrite(
            kind=WriteKind.SET,
            path=state_path(topic.name, number),
            data=state_text(topic.partitions[number], controller_epoch),
        )
        for number in numbers
    )
    return ZnodeOperation(name="UpdatePartition", writes=tuple(writes))


def config_changed(
    resource_type: int, name: str, facts: MetadataFacts, *, drops_empty: bool = False
) -> ZnodeOperation | None:
    """Write the configuration of a topic or broker; None for other resources.

    Without values its znode is deleted.
    """
    entity = config_entity(resource_type, name)
    if entity is None:
        return None
    configs = facts.configs_of(resource_type, name)
    path = f"{CONFIG}/{entity}"
    kind = "Topic" if entity.startswith("topics/") else "Broker"
    if not configs and drops_empty:
        return ZnodeOperation(
            name="DeleteConfig",
            writes=(ZnodeWrite(kind=WriteKind.DROP, path=path),),
            notification=_config_change(entity),
        )
    write = ZnodeWrite(kind=WriteKind.PUT, path=path, data=build_config(configs))
    return ZnodeOperation(
        name=f"Update{kind}Config", writes=(write,), notification=_config_change(entity)
    )


def quota_changed(entity: QuotaEntity, facts: MetadataFacts) -> ZnodeOperation:
    """Write the quotas and credentials of an entity."""
    place = quota_path(entity)
    write = ZnodeWrite(
        kind=WriteKind.PUT, path=f"{CONFIG}/{place}", data=quota_text(entity, facts.registries)
    )
    return ZnodeOperation(
        name="UpdateClientQuota", writes=(write,), notification=_config_change(place)
    )


def producer_ids_changed(facts: MetadataFacts) -> ZnodeOperation:
    """Write the next producer ids."""
    assert facts.next_producer_id is not None, "set by the record"
    write = ZnodeWrite(
        kind=WriteKind.SET, path=PRODUCER_ID_BLOCK, data=producer_id_text(facts.next_producer_id)
    )
    return ZnodeOperation(name="UpdateProducerId", writes=(write,))


def acls_changed(resource: AclResource, facts: MetadataFacts) -> ZnodeOperation:
    """Write the ACLs of a resource; without any its znode is deleted."""
    kind, pattern, name = resource
    text = acl_text(resource, facts.registries)
    path = acl_path(kind, pattern, name)
    notification = ZnodeWrite(
        kind=WriteKind.CREATE,
        path=acl_change_path(pattern),
        data=build_acl_change(*resource),
        mode=CreateMode.PERSISTENT_SEQUENTIAL,
    )
    if text is None:
        return ZnodeOperation(
            name="DeleteAcl",
            writes=(ZnodeWrite(kind=WriteKind.DROP, path=path),),
            notification=notification,
        )
    return ZnodeOperation(
        name="UpdateAcl",
        writes=(ZnodeWrite(kind=WriteKind.PUT, path=path, data=text),),
        notification=notification,
    )


def token_changed(token_id: str, facts: MetadataFacts, *, notifies: bool = False) -> ZnodeOperation:
    """Write a token. A KRaft controller does not notify brokers of it."""
    record = facts.registries.delegation_tokens.get(token_id)
    notification = ZnodeWrite(
        kind=WriteKind.CREATE,
        path=TOKEN_CHANGE,
        data=token_id.encode(),
        mode=CreateMode.PERSISTENT_SEQUENTIAL,
    )
    if record is None:
        writes = (ZnodeWrite(kind=WriteKind.DROP, path=token_path(token_id)),)
        return ZnodeOperation(
            name="DeleteDelegationToken",
            writes=writes,
            notification=notification if notifies else None,
        )
    put = (ZnodeWrite(kind=WriteKind.PUT, path=token_path(token_id), data=token_text(record)),)
    return ZnodeOperation(
        name="UpdateDelegationToken", writes=put, notification=notification if notifies else None
    )


def _config_change(entity: str) -> ZnodeWrite:
    return ZnodeWrite(
        kind=WriteKind.CREATE,
        path=CONFIG_CHANGE,
        data=build_config_change(entity),
        mode=CreateMode.PERSISTENT_SEQUENTIAL,
    )


def _users_last(entity: QuotaEntity) -> int:
    kinds = dict(entity)
    return int(USER in kinds and CLIENT_ID not in kinds)
