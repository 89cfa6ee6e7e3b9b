"""DescribeTopicPartitions (75): the partitions of topics, page by page, with their eligible leader
replicas.

The topics of Metadata (3), for clusters with more partitions than one response should contain.
Source: KIP-966; DescribeTopicPartitionsRequest.json, DescribeTopicPartitionsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, message, string, struct, structure, uuid

NO_LEADER = -1
NO_LEADER_EPOCH = -1
OPERATIONS_NOT_ASKED_FOR = -(2**31)

ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,  # ZooKeeper mode
    ErrorCode.INVALID_REQUEST,  # a cursor outside the topics asked for
)


@structure(kafka_name="TopicRequest")
class DescribeTopic:
    """A topic to describe."""

    name: str = string()


@structure
class Cursor:
    """The first partition of the next page; topics are in the order of their names."""

    topic_name: str = string()
    partition_index: int = int32()


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """No topics mean all.

    A null cursor starts at the beginning. A page may have fewer partitions than requested, never
    more.
    """

    topics: list[DescribeTopic] = array(DescribeTopic)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)


@structure
class DescribeTopicPartitionsResponsePartition:
    """A partition; without a leader it is -1.

    Eligible leader replicas are out of sync but have everything committed; the last known ones had
    it once. Null: not returned.
    """

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=NO_LEADER_EPOCH, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
    offline_replicas: list[int] = array(int32, ignorable=True)


@structure
class DescribeTopicPartitionsResponseTopic:
    """A topic; its partitions may continue on the next page."""

    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=OPERATIONS_NOT_ASKED_FOR)


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """next_cursor is the cursor of the next request, null after the last page."""

    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)
