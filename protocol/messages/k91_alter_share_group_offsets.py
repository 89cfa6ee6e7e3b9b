"""AlterShareGroupOffsets (91): set the start offsets of an empty share group.

The previous delivery state is deleted.
Source: KIP-932; AlterShareGroupOffsetsRequest.json, AlterShareGroupOffsetsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure, uuid

ERRORS = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.NON_EMPTY_GROUP,  # a member is still there
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


@structure(kafka_name="AlterShareGroupOffsetsRequestPartition")
class RequestedPartition:
    """The start offset of a partition for the group."""

    partition_index: int = int32()
    start_offset: int = int64()


@structure(kafka_name="AlterShareGroupOffsetsRequestTopic")
class RequestedTopic:
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[RequestedPartition] = array(RequestedPartition)


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    """One group, which must be empty."""

    group_id: str = string()
    topics: list[RequestedTopic] = array(RequestedTopic)


@structure(kafka_name="AlterShareGroupOffsetsResponsePartition")
class AlteredPartition:
    """Whether a partition's offset was set."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@structure(kafka_name="AlterShareGroupOffsetsResponseTopic")
class AlteredTopic:
    """Partitions of one topic."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[AlteredPartition] = array(AlteredPartition)


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """One result for the group, then one per partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlteredTopic] = array(AlteredTopic)
