"""CreatePartitions (37): add partitions to topics; existing partitions stay unchanged, and
partitions cannot be removed.

A KRaft broker forwards the request to the active controller in an Envelope.
Source: KIP-195, KIP-599 (v3: quota); CreatePartitionsRequest.json, CreatePartitionsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_PARTITIONS,  # not more than there are
    ErrorCode.INVALID_REPLICATION_FACTOR,  # too few usable brokers
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_REQUEST,  # a topic is named twice
    ErrorCode.POLICY_VIOLATION,  # too many partitions in one request (4.4)
    ErrorCode.REASSIGNMENT_IN_PROGRESS,  # ZooKeeper mode only
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)


@structure
class CreatePartitionsAssignment:
    """The replicas of one new partition, the preferred leader first."""

    broker_ids: list[int] = array(int32)


@structure
class CreatePartitionsTopic:
    """The total number of partitions of the topic; assignments, if not null, are those of the new
    ones only, in order.
    """

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+"
    )


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """Each topic succeeds or fails independently. v3 may return THROTTLING_QUOTA_EXCEEDED."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@structure
class CreatePartitionsTopicResult:
    """The result of one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """One result per requested topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
