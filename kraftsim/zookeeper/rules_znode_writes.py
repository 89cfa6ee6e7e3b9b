"""From changes of metadata to writes of znodes; and from the znodes of a cluster to those that can
be read.

`Touched` gets each record before it is replayed; afterwards `operations_of` returns the writes. An
operation is atomic; a notification for the brokers follows once it has succeeded. Reading is the
reverse and in `rules_znodes`.
Source: org.apache.kafka.metadata.migration.KRaftMigrationZkWriter, kafka.zk.migration.*,
kafka.zk.AdminZkClient.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kraftsim.metadata.rules_client_quotas import CLIENT_ID, USER
from kraftsim.metadata.rules_registrations import PartitionRegistration, partition_of
from kraftsim.metadata.rules_registries import QuotaEntity, quota_entity
from kraftsim.zookeeper.rules_znodes import (
    AclResource,
    MetadataFacts,
    TopicView,
    Znodes,
    acl_records,
    acl_resource,
    acl_rule,
    acl_rules,
    acl_text,
    config_entity,
    producer_id_records,
    producer_id_text,
    quota_path,
    quota_records,
    quota_text,
    state_text,
    token_text,
    topic_records,
    topic_text,
)
from protocol.config_resources import ConfigResourceType
from protocol.malformed import MalformedMessage
from protocol.metadata.controller import ProducerIdsRecord
from protocol.metadata.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from protocol.metadata.settings import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ClientQuotaRecord,
    ConfigRecord,
)
from protocol.metadata.topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.schema import Message
from protocol.zookeeper.kafka_access_znodes import (
    ACLS,
    DELEGATION_TOKENS,
    EXTENDED_ACLS,
    TOKEN_CHANGE,
    AclRule,
    DelegationTokenZnode,
    acl_change_path,
    acl_path,
    build_acl_change,
    parse_acls,
    token_path,
)
from protocol.zookeeper.kafka_znodes import (
    CONFIG,
    CONFIG_CHANGE,
    DEFAULT_ENTITY,
    DELETE_TOPICS,
    PRODUCER_ID_BLOCK,
    TOPICS,
    PartitionStateZnode,
    TopicZnode,
    build_config,
    build_config_change,
    config_path,
    parse_config,
    state_path,
    topic_path,
)
from protocol.zookeeper.op_codes import ANY_VERSION, CreateMode

STATE: Final = "/state"
Unreadable = list[tuple[str, str]]
"""Paths of unreadable znodes, with the errors."""


# --------------------------------------------------------------------------------------------------
# Readable znodes: a controller ignores the others and reports them, instead of failing
#
# An unreadable configuration, ACL or token is treated as missing; a topic with any unreadable part
# is ignored as a whole, so that no leader is elected on an unknown state.
# Source: kafka.zk.{ConfigEntityZNode, TopicZNode, TopicPartitionStateZNode, ResourceZNode}.decode
# (None for invalid JSON).


def readable(znodes: Znodes) -> tuple[Znodes, Unreadable]:
    """Return the readable znodes, and the errors of the others."""
    unreadable: Unreadable = []
    topics: dict[str, None] = {}
    lone: dict[str, None] = {}
    for path, (data, _) in znodes.items():
        read = _reader_of(path)
        if read is None or not data:
            continue
        try:
            read(data)
        except MalformedMessage as malformed:
            unreadable.append((path, malformed.reason))
            if path.startswith(f"{TOPICS}/"):
                topics[topic_of(path)] = None
            else:
                lone[path] = None
    if not unreadable:
        return znodes, []
    return {
        path: znode
        for path, znode in znodes.items()
        if path not in lone and not _belongs_to(path, topics)
    }, unreadable


@contextmanager
def read_at(path: str) -> Iterator[None]:
    """Add the path to a parse error in this context. Raises MalformedMessage with that path."""
    try:
        yield
    except MalformedMessage as malformed:
        raise MalformedMessage(None, None, path, malformed.reason) from malformed


def topic_of(path: str) -> str:
    """Return the topic of a path below /brokers/topics."""
    return path.removeprefix(f"{TOPICS}/").partition("/")[0]


def _belongs_to(path: str, topics: dict[str, None]) -> bool:
    if path.startswith(f"{TOPICS}/"):
        return topic_of(path) in topics
    configs = f"{config_path('topics')}/"
    return path.startswith(configs) and path.removeprefix(configs) in topics


def _reader_of(path: str) -> Callable[[bytes], object] | None:
    if path.startswith(f"{TOPICS}/"):
        if "/" not in path.removeprefix(f"{TOPICS}/"):
            return TopicZnode.parse
        return PartitionStateZnode.parse if path.endswith(STATE) else None
    if path.startswith(f"{CONFIG}/"):
        return parse_config
    if path.startswith((f"{ACLS}/", f"{EXTENDED_ACLS}/")):
        return parse_acls
    return DelegationTokenZnode.parse if path.startswith(f"{DELEGATION_TOKENS}/") else None


# --------------------------------------------------------------------------------------------------
# The writes of a change, in Kafka's order


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


# --------------------------------------------------------------------------------------------------
# The writes that bring ZooKeeper in line with an image, when a KRaft controller takes over
#
# Kafka compares, with two exceptions: entities with quotas or credentials are always rewritten, and
# so are tokens.
# Source: KRaftMigrationZkWriter.handleSnapshot, KIP-866.

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
