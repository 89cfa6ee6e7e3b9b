"""A well-formed request of every API and version that names existing resources: a topic, a group, a
transactional id, the cluster.

Values are chosen by field name, so that new APIs are covered too; where the name is not sufficient,
by class and field.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kraftsim.conformance.batches import batch
from kraftsim.conformance.peer import request_bytes
from protocol.acls import AclOperation, AclPermissionType, AclResourceType
from protocol.api_keys import ApiKey
from protocol.codec.declaration import ArrayOf, Declaration, StructureOf
from protocol.codec.tree import fields_of
from protocol.config_resources import ConfigResourceType
from protocol.messages.k10_find_coordinator import SHARE
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.k50_describe_user_scram_credentials import UserName
from protocol.messages.registry import request_class
from protocol.schema import Message, declaration_of
from protocol.uuids import ZERO_UUID, uuid_text

METADATA_TOPIC = "__cluster_metadata"
OF_RAFT = frozenset(
    {
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.FETCH_SNAPSHOT,
    }
)
MEMBER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
SOME_BROKER, SOME_OTHER_BROKER = 1, 77
BOB = b"\x00\x00\x05User\x04bob\x00\x00"
FIRST_VERSION_WITH_MEMBER_IDS = 1
FIRST_VERSION_WITH_SHARES = 6


@dataclass(frozen=True)
class Resources:
    """The resources of the cluster under test."""

    topic: str
    topic_id: bytes
    group: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    cluster_id: str


def body_of(key: ApiKey, version: int, things: Resources) -> Message:
    """Return a request that names existing resources."""
    made = _filled(request_class(key), version, key, things)
    shape = SHAPES.get(key)
    if shape is not None:
        shape(made, version, things)
    return made


def variants(key: ApiKey, version: int, things: Resources) -> Iterator[tuple[str, Message]]:
    """Yield a label and a request: the plain one, and others that need other permissions."""
    yield key.name, body_of(key, version, things)
    for label, (of, first_version, change) in VARIANTS.items():
        if of == key and version >= first_version:
            made = body_of(key, version, things)
            change(made, version, things)
            yield label, made


def _filled(cls: type, version: int, key: ApiKey, things: Resources) -> Message:
    made, declaration = cls(), declaration_of(cls)
    for field in fields_of(declaration):
        if version not in field.versions:
            continue
        by_name = _by_name(declaration, field.name, version, key, things)
        if by_name is not None:
            setattr(made, field.name, by_name)
        elif (
            isinstance(field.type, ArrayOf)
            and field.name == "partitions"
            and not isinstance(field.type.element, StructureOf)
        ):
            setattr(made, field.name, [0])
        elif isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructureOf):
            setattr(made, field.name, [_filled(field.type.element.structure, version, key, things)])
        elif isinstance(field.type, StructureOf) and field.name != "cursor":
            setattr(made, field.name, _filled(field.type.structure, version, key, things))
    return made


def _by_name(
    declaration: Declaration, field: str, version: int, key: ApiKey, things: Resources
) -> object:
    """Return the value of a field, None to leave it at its default."""
    special = SPECIAL.get((declaration.name, field))
    if special is not None:
        return special
    topic = METADATA_TOPIC if key in OF_RAFT else things.topic
    has_name = any(
        other.name in ("name", "topic") and version in other.versions
        for other in fields_of(declaration)
    )
    values: dict[str, object] = {
        "topic": topic,
        "topic_name": topic,
        "name": topic,
        "topic_id": ZERO_UUID if has_name else things.topic_id,
        "topic_names": [things.topic],
        "subscribed_topic_names": [things.topic],
        "group_id": things.group,
        "key": things.group,
        "groups": [things.group] if key == ApiKey.DESCRIBE_GROUPS else None,
        "groups_names": [things.group],
        "group_ids": [things.group],
        "coordinator_keys": [things.group],
        "transactional_id": None if key == ApiKey.PRODUCE else things.transactional_id,
        "v3_and_below_transactional_id": things.transactional_id,
        "transactional_ids": [things.transactional_id],
        "producer_id": things.producer_id,
        "v3_and_below_producer_id": things.producer_id,
        "producer_epoch": things.producer_epoch,
        "v3_and_below_producer_epoch": things.producer_epoch,
        "cluster_id": things.cluster_id,
        "resource_name": things.topic,
        "resource_name_filter": things.topic,
        **NUMBERS,
    }
    return values.get(field)


NUMBERS: dict[str, object] = {
    "timeout_ms": 1000,
    "transaction_timeout_ms": 10000,
    "session_timeout_ms": 10000,
    "rebalance_timeout_ms": 10000,
    "timestamp": -1,
    "acks": -1,
    "max_bytes": 1000,
    "partition_max_bytes": 1000,
    "leader_epoch": 0,
    "replica_id": -1,
    "partition_indexes": [0],
    "broker_ids": [SOME_BROKER],
    "replicas": [SOME_BROKER],
    "new_isr": [SOME_BROKER],
    "broker_id": SOME_BROKER,
    "voter_id": SOME_OTHER_BROKER,
    "resource_type": int(ConfigResourceType.TOPIC),
    "resource_type_filter": int(AclResourceType.TOPIC),
    "operation": int(AclOperation.READ),
    "permission_type": int(AclPermissionType.ALLOW),
    "principal": "User:bob",
    "principal_filter": "User:bob",
    "host": "*",
    "host_filter": "*",
    "protocol_type": "consumer",
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "mechanism": 1,
    "client_host_address": b"\x7f\0\0\x01",
    "request_principal": BOB,
    "path": "/tmp",
    "response_partition_limit": 2000,
}
SPECIAL: dict[tuple[str, str], object] = {
    ("ProduceRequest", "transactional_id"): None,
    ("PartitionProduceData", "records"): batch(),
    ("FetchPartition", "replica_directory_id"): None,
    ("FetchRequest", "forgotten_topics_data"): [],
    ("CreatableTopic", "assignments"): [],
    ("CreatePartitionsTopic", "assignments"): [],
    ("CreatableTopicConfig", "name"): "retention.ms",
    ("CreatableTopicConfig", "value"): "1000",
    ("AlterableConfig", "name"): "retention.ms",
    ("AlterableConfig", "value"): "1000",
    ("JoinGroupRequestProtocol", "name"): "range",
    ("ComponentData", "entity_type"): "user",
    ("ComponentData", "match"): "bob",
    ("EntityData", "entity_type"): "user",
    ("EntityData", "entity_name"): "bob",
    ("OpData", "key"): "producer_byte_rate",
    ("OpData", "value"): 1000.0,
    ("UserName", "name"): "bob",
    ("ScramCredentialDeletion", "name"): "bob",
    ("AlterUserScramCredentialsRequest", "upsertions"): [],
    ("FeatureUpdateKey", "feature"): "metadata.version",
    ("FeatureUpdateKey", "max_version_level"): 1,
    ("CreateDelegationTokenRequest", "renewers"): [],
    ("DescribeDelegationTokenRequest", "owners"): [],
    ("UnregisterBrokerRequest", "broker_id"): SOME_OTHER_BROKER,
    ("ConsumerGroupHeartbeatRequest", "topic_partitions"): [],
    ("Listener", "name"): "PLAINTEXT",
    ("Listener", "host"): "127.0.0.1",
    ("Feature", "name"): "metadata.version",
    ("SyncGroupRequest", "protocol_name"): "range",
}
Change = Callable[[Message, int, Resources], None]


def _consumer_heartbeat(made: Message, version: int, things: Resources) -> None:
    made.member_id = MEMBER_ID if version >= FIRST_VERSION_WITH_MEMBER_IDS else ""


def _envelope(made: Message, version: int, things: Resources) -> None:
    topic = CreatableTopic(name="made-in-an-envelope", num_partitions=1, replication_factor=1)
    made.request_data = request_bytes(CreateTopicsRequest(topics=[topic]), 5, 7)[4:]


def _scram_users(made: Message, version: int, things: Resources) -> None:
    made.users = [UserName(name="bob"), UserName(name="alice")]


SHAPES: dict[ApiKey, Change] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat,
    ApiKey.ENVELOPE: _envelope,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _scram_users,
}


def _setting(**values: object) -> Change:
    def change(made: Message, version: int, things: Resources) -> None:
        for name, value in values.items():
            setattr(made, name, value)

    return change


def _transactional(made: Message, version: int, things: Resources) -> None:
    made.transactional_id = things.transactional_id


def _follower(made: Message, version: int, things: Resources) -> None:
    if version >= 15:
        made.replica_state = type(made.replica_state)(replica_id=SOME_BROKER)
    else:
        made.replica_id = SOME_BROKER


def _of_transactions(made: Message, version: int, things: Resources) -> None:
    made.key_type = 1
    made.key = things.transactional_id if version < 4 else ""
    made.coordinator_keys = [things.transactional_id] if version >= 4 else []


def _of_share_partitions(made: Message, version: int, things: Resources) -> None:
    made.key_type = SHARE
    made.coordinator_keys = [f"{things.group}:{uuid_text(things.topic_id)}:0"]


def _of_broker(made: Message, version: int, things: Resources) -> None:
    for resource in made.resources:
        resource.resource_type, resource.resource_name = (
            int(ConfigResourceType.BROKER),
            str(SOME_BROKER),
        )


def _all_offsets(made: Message, version: int, things: Resources) -> None:
    if version >= 8:
        made.groups[0].topics = None
    else:
        made.topics = None


def _by_topic_id(made: Message, version: int, things: Resources) -> None:
    for topic in made.topics:
        topic.name, topic.topic_id = None, things.topic_id


def _no_batch(made: Message, version: int, things: Resources) -> None:
    made.topic_data[0].partition_data[0].records = b"\xff" * 80


def _unknown_elements(made: Message, version: int, things: Resources) -> None:
    for each in getattr(made, "creations", None) or getattr(made, "filters", None) or [made]:
        each.operation = 0


def _fresh_topics(made: Message, version: int, things: Resources) -> None:
    made.topics[0].name = "made-by-bob"


VARIANTS: dict[str, tuple[ApiKey, int, Change]] = {
    "PRODUCE transactional id": (ApiKey.PRODUCE, 3, _transactional),
    "PRODUCE of what is no batch": (ApiKey.PRODUCE, 0, _no_batch),
    "SYNC_GROUP without a protocol": (
        ApiKey.SYNC_GROUP,
        5,
        _setting(protocol_type=None, protocol_name=None),
    ),
    "CREATE_ACLS of an unknown operation": (ApiKey.CREATE_ACLS, 0, _unknown_elements),
    "DELETE_ACLS of an unknown operation": (ApiKey.DELETE_ACLS, 0, _unknown_elements),
    "DESCRIBE_ACLS of an unknown operation": (ApiKey.DESCRIBE_ACLS, 0, _unknown_elements),
    "FETCH as a follower": (ApiKey.FETCH, 0, _follower),
    "METADATA of all topics": (ApiKey.METADATA, 1, _setting(topics=None)),
    "METADATA by topic id": (ApiKey.METADATA, 12, _by_topic_id),
    "OFFSET_FETCH of all topics": (ApiKey.OFFSET_FETCH, 2, _all_offsets),
    "FIND_COORDINATOR of share-partitions": (
        ApiKey.FIND_COORDINATOR,
        FIRST_VERSION_WITH_SHARES,
        _of_share_partitions,
    ),
    "FIND_COORDINATOR of transactions": (ApiKey.FIND_COORDINATOR, 1, _of_transactions),
    "CREATE_TOPICS of a new one": (ApiKey.CREATE_TOPICS, 0, _fresh_topics),
    "DELETE_TOPICS by topic id": (ApiKey.DELETE_TOPICS, 6, _by_topic_id),
    "INIT_PRODUCER_ID idempotent": (ApiKey.INIT_PRODUCER_ID, 0, _setting(transactional_id=None)),
    "DESCRIBE_CONFIGS of a broker": (ApiKey.DESCRIBE_CONFIGS, 0, _of_broker),
    "ALTER_CONFIGS of a broker": (ApiKey.ALTER_CONFIGS, 0, _of_broker),
    "INCREMENTAL_ALTER_CONFIGS of a broker": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, _of_broker),
    "DESCRIBE_LOG_DIRS of all": (ApiKey.DESCRIBE_LOG_DIRS, 0, _setting(topics=None)),
    "DESCRIBE_TOPIC_PARTITIONS of all": (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, _setting(topics=[])),
    "ELECT_LEADERS of all": (ApiKey.ELECT_LEADERS, 0, _setting(topic_partitions=None)),
}
