"""Metadata (3): the brokers, the topics, and the leader of each partition.

A client uses it to find the broker for its requests; it may also auto-create a topic, if the broker
allows that.
Source: KIP-4 (v1), KIP-117 (v4), KIP-112 (v5), KIP-320 (v7), KIP-430 (v8), KIP-516 (v10, v12: topic
ids), KIP-1102 (v13); MetadataRequest.json, MetadataResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, message, string, structure, uuid

NO_LEADER_ID = -1
NO_CONTROLLER_ID = -1
OPERATIONS_NOT_ASKED_FOR = -(2**31)

ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,  # v0 only: such clients got the offline replicas this way
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.LISTENER_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.REBOOTSTRAP_REQUIRED,
)


@structure
class MetadataRequestTopic:
    """A topic by name, or since v12 by id alone."""

    topic_id: bytes = uuid(since=10, ignorable=True)
    name: str | None = string(nullable="10+")


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    """All topics: no topics in v0, null since v1, when an empty list began to mean none."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


@structure
class MetadataResponseBroker:
    """A broker and its endpoint for the listener of the request."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, nullable="1+", default=None, ignorable=True)


@structure
class MetadataResponsePartition:
    """A partition's leader and replicas; without a leader the error is LEADER_NOT_AVAILABLE, the
    rest is still filled in.
    """

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, since=5, ignorable=True)


@structure
class MetadataResponseTopic:
    """A topic with its partitions; its name is null if it was requested by an unknown id."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid(since=10, ignorable=True)
    is_internal: bool = boolean(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=OPERATIONS_NOT_ASKED_FOR)


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """v1 adds the controller, v2 the cluster id, v7 leader epochs, v10 topic ids, v13 a top-level
    error.

    In KRaft mode the controller named here is some live broker, which forwards requests to the
    controller.
    """

    throttle_time_ms: int = int32(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(since=2, nullable="2+", default=None, ignorable=True)
    controller_id: int = int32(since=1, default=NO_CONTROLLER_ID, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=OPERATIONS_NOT_ASKED_FOR)
    error_code: int = int16(since=13, ignorable=True)
