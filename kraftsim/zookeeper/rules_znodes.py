"""The znodes of a cluster as metadata records, and the data of znodes for metadata.

Three readers need the records: a ZooKeeper-mode controller at its start, a migration to KRaft, and
a broker that follows configurations and ACLs.
Source: kafka.zk.{ZkData, ZkMigrationClient, ZkAclStore}, kafka.zk.migration.*,
KafkaController.initializeControllerContext, KIP-866.
"""

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Final, Protocol, TypeAlias

from kraftsim.metadata.rules_client_quotas import CLIENT_ID, IP, IP_QUOTAS, QUOTAS, USER
from kraftsim.metadata.rules_config_definitions import shown_double
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_registrations import PartitionRegistration
from kraftsim.metadata.rules_registries import MetadataRecord, QuotaEntity, Registries, quota_entity
from kraftsim.producer_ids.rules_allocation import BLOCK_SIZE, ProducerIdBlock
from kraftsim.zookeeper.rules_control_requests import derived_topic_id, is_derived
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.config_resources import ConfigResourceType, ConfigType
from protocol.malformed import MalformedMessage
from protocol.metadata.controller import ProducerIdsRecord
from protocol.metadata.registrations import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)
from protocol.metadata.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from protocol.metadata.settings import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
)
from protocol.metadata.topics import NO_LEADER, RECOVERED, RECOVERING, PartitionRecord, TopicRecord
from protocol.schema import Message
from protocol.zookeeper.kafka_access_znodes import (
    ACLS,
    DELEGATION_TOKENS,
    EXTENDED_ACLS,
    MECHANISMS,
    RESOURCE_TYPES,
    AclRule,
    DelegationTokenZnode,
    ScramText,
    acl_path,
    build_acls,
    desanitized,
    parse_acls,
    pascal_case,
    sanitized,
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
    build_config,
    config_path,
    parse_config,
    state_path,
    topic_path,
)
from protocol.zookeeper.znodes import Stat

UUID_BYTES = 16
Resource = tuple[AclResourceType, AclPatternType, str]
"""Resource type, pattern type, and name."""


# --------------------------------------------------------------------------------------------------
# An ACL znode: the changes to the image
#
# In ZooKeeper ACLs have no ids; those of their records are derived from the contents.
# Source: kafka.security.authorizer.AclAuthorizer, kafka.zk.ZkAclStore.


def access_changes(
    resource: Resource, data: bytes | None, image: MetadataImage
) -> list[MetadataRecord]:
    """Return the changes from the image to the ACLs in a resource's znode; without data there are
    no ACLs.

    Raises MalformedMessage.
    """
    wanted = {
        record.id: record
        for record in (_record(resource, rule) for rule in (parse_acls(data) if data else ()))
    }
    present = {record.id: record for record in image.registries.access_rules.of_group(resource)}
    gone: list[MetadataRecord] = [
        RemoveAccessControlEntryRecord(id=rule_id) for rule_id in present if rule_id not in wanted
    ]
    return [*gone, *(record for rule_id, record in wanted.items() if rule_id not in present)]


def resource_of_path(path: str) -> Resource | None:
    """Return the resource of an ACL znode: `/kafka-acl/Topic/t`,
    `/kafka-acl-extended/prefixed/Topic/t`; None for their parents.
    """
    for root, pattern in (
        (f"{ACLS}/", AclPatternType.LITERAL),
        (f"{EXTENDED_ACLS}/prefixed/", AclPatternType.PREFIXED),
    ):
        if path.startswith(root):
            kind, _, name = path.removeprefix(root).partition("/")
            types = [each for each in AclResourceType if pascal_case(each.name) == kind]
            return (types[0], pattern, name) if types and name else None
    return None


def _record(resource: Resource, rule: AclRule) -> AccessControlEntryRecord:
    resource_type, pattern, name = resource
    said = "\0".join(
        (
            str(int(resource_type)),
            str(int(pattern)),
            name,
            rule.principal,
            rule.host,
            str(int(rule.operation)),
            str(int(rule.permission)),
        )
    )
    return AccessControlEntryRecord(
        id=sha256(said.encode()).digest()[:UUID_BYTES],
        resource_type=int(resource_type),
        resource_name=name,
        pattern_type=int(pattern),
        principal=rule.principal,
        host=rule.host,
        operation=int(rule.operation),
        permission_type=int(rule.permission),
    )


# --------------------------------------------------------------------------------------------------
# A whole cluster
#
# In Kafka's migration order: topics, each with its configuration and its partitions; broker
# configurations; credentials and quotas; producer ids; ACLs; tokens. Epochs are preserved; the
# partition epoch is the version of the state znode.

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


# --------------------------------------------------------------------------------------------------
# A config znode: the changes to the image, so that a broker handles changes only
#
# A znode has all configurations of a topic, a broker, a user, a client, an address, or a user's
# client; users' znodes have their credentials, too.
# Source: kafka.server.{ConfigHandler, ZkConfigManager}, kafka.zk.AdminZkClient.

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


# --------------------------------------------------------------------------------------------------
# The data of znodes
#
# Source: kafka.zk.ZkData, kafka.zk.migration.{ZkTopicMigrationClient, ZkConfigMigrationClient,
# ZkAclMigrationClient}.

UNKNOWN_ID: Final = -1
ENTITY_TYPES: Final = {ConfigResourceType.TOPIC: "topics", ConfigResourceType.BROKER: "brokers"}
"""Resource type -> the name of its parent znode."""
AclResource: TypeAlias = tuple[AclResourceType, AclPatternType, str]
EPSILON: Final = 1e-6


class TopicView(Protocol):
    """A topic and its partitions by number."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Mapping[int, PartitionRegistration]: ...


class MetadataFacts(Protocol):
    """A cluster's metadata: an image, or a controller's state."""

    @property
    def registries(self) -> Registries: ...
    @property
    def next_producer_id(self) -> int | None: ...
    def topic_by_id(self, topic_id: bytes) -> TopicView | None:
        """Return a topic by its id, or None."""
        ...

    def topics(self) -> Iterator[TopicView]:
        """Yield every topic, by name."""
        ...

    def configs_of(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        """Return the values set on a resource itself."""
        ...

    def configs(self) -> Iterator[tuple[tuple[int, str], Mapping[str, str]]]:
        """Yield the values of every resource with any, by resource."""
        ...


def topic_text(topic: TopicView) -> bytes:
    """Return the assignment of all partitions of a topic."""
    partitions = {number: topic.partitions[number] for number in sorted(topic.partitions)}
    return TopicZnode(
        partitions={number: each.replicas for number, each in partitions.items()},
        topic_id=None if is_derived(topic.topic_id) else topic.topic_id,
        adding_replicas={
            number: each.adding_replicas
            for number, each in partitions.items()
            if each.adding_replicas
        },
        removing_replicas={
            number: each.removing_replicas
            for number, each in partitions.items()
            if each.removing_replicas
        },
    ).build()


def state_text(partition: PartitionRegistration, controller_epoch: int) -> bytes:
    """Return leader and ISR of a partition.

    A KRaft controller uses the quorum epoch as controller epoch.
    """
    return PartitionStateZnode(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        controller_epoch=controller_epoch,
        is_recovering=partition.leader_recovery_state == RECOVERING,
    ).build()


def config_entity(resource_type: int, name: str) -> str | None:
    """Return the path of a resource below /config, None if it has none there."""
    entity_type = ENTITY_TYPES.get(ConfigResourceType(resource_type))
    return None if entity_type is None else f"{entity_type}/{name or DEFAULT_ENTITY}"


def quota_path(entity: QuotaEntity) -> str:
    """Return the path of an entity's quotas below /config: users/alice/clients/c1."""
    names = {kind: DEFAULT_ENTITY if name is None else sanitized(name) for kind, name in entity}
    if USER in names:
        user = config_path("users", names[USER])
        path = f"{user}/clients/{names[CLIENT_ID]}" if CLIENT_ID in names else user
    elif CLIENT_ID in names:
        path = config_path("clients", names[CLIENT_ID])
    else:
        path = config_path("ips", names[IP])
    return path.removeprefix(config_path(""))


def quota_text(entity: QuotaEntity, registries: Registries) -> bytes:
    """Return the quotas of an entity and, of a user alone, its credentials."""
    kinds = IP_QUOTAS if any(kind == IP for kind, _ in entity) else QUOTAS
    found = {
        record.key: _quota(kinds[record.key], record.value)
        for record in registries.quotas.of_group(entity)
    }
    names = dict(entity)
    if list(names) == [USER] and names[USER] is not None:
        mechanisms = {number: name for name, number in MECHANISMS.items()}
        for credential in registries.scram_credentials.of_group(names[USER]):
            found[mechanisms[credential.mechanism]] = scram_text(credential)
    return build_config(found)


def scram_text(record: UserScramCredentialRecord) -> str:
    """Return a credential as a property of its user."""
    return ScramText(
        salt=record.salt,
        stored_key=record.stored_key,
        server_key=record.server_key,
        iterations=record.iterations,
    ).build()


def acl_resource(record: AccessControlEntryRecord) -> AclResource:
    """Return the resource of an ACL."""
    return (
        AclResourceType(record.resource_type),
        AclPatternType(record.pattern_type),
        record.resource_name,
    )


def acl_rules(resource: AclResource, registries: Registries) -> list[AclRule]:
    """Return the ACLs of a resource."""
    return [acl_rule(record) for record in registries.access_rules.of_group(resource)]


def acl_rule(record: AccessControlEntryRecord) -> AclRule:
    """Return an ACL in its znode format."""
    return AclRule(
        principal=record.principal,
        permission=AclPermissionType(record.permission_type),
        operation=AclOperation(record.operation),
        host=record.host,
    )


def acl_text(resource: AclResource, registries: Registries) -> bytes | None:
    """Return all ACLs of a resource, None if it has none."""
    rules = acl_rules(resource, registries)
    return build_acls(rules) if rules else None


def token_text(record: DelegationTokenRecord) -> bytes:
    """Return the data of a token."""
    return DelegationTokenZnode(
        token_id=record.token_id,
        owner=record.owner,
        requester=record.requester,
        renewers=record.renewers,
        issue_timestamp=record.issue_timestamp,
        max_timestamp=record.max_timestamp,
        expiry_timestamp=record.expiration_timestamp,
    ).build()


def producer_id_text(next_producer_id: int) -> bytes:
    """Return the producer id block as written by a KRaft controller: the next block, without a
    broker.
    """
    block = ProducerIdBlock(first_producer_id=next_producer_id, size=BLOCK_SIZE)
    return ProducerIdBlockZnode(
        broker_id=UNKNOWN_ID,
        first_producer_id=block.first_producer_id,
        last_producer_id=block.last_producer_id,
    ).build()


def _quota(kind: ConfigType, value: float) -> str:
    return shown_double(value) if kind is ConfigType.DOUBLE else str(int(value + EPSILON))
