"""The data of znodes for a cluster's metadata.

Source: kafka.zk.ZkData, kafka.zk.migration.{ZkTopicMigrationClient, ZkConfigMigrationClient,
ZkAclMigrationClient}.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Protocol, TypeAlias

from kraftsim.core.metadata.client_quotas import CLIENT_ID, IP, IP_QUOTAS, QUOTAS, USER
from kraftsim.core.metadata.config_definitions import shown_double
from kraftsim.core.metadata.partition_registration import PartitionRegistration
from kraftsim.core.metadata.registries import QuotaEntity, Registries
from kraftsim.core.zookeeper_mode.topic_ids import is_derived
from kraftsim.producer_ids.rules_blocks import BLOCK_SIZE, ProducerIdBlock
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.config_resources import ConfigResourceType, ConfigType
from protocol.metadata.m03_partition import RECOVERING
from protocol.metadata.m10_delegation_token import DelegationTokenRecord
from protocol.metadata.m11_user_scram_credential import UserScramCredentialRecord
from protocol.metadata.m18_access_control_entry import AccessControlEntryRecord
from protocol.zookeeper.kafka_access_znodes import (
    MECHANISMS,
    AclRule,
    DelegationTokenZnode,
    ScramText,
    build_acls,
    sanitized,
)
from protocol.zookeeper.kafka_znodes import (
    DEFAULT_ENTITY,
    PartitionStateZnode,
    ProducerIdBlockZnode,
    TopicZnode,
    build_config,
    config_path,
)

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
