"""DeleteShareGroupOffsets (92): delete the offsets of topics of an empty share group.

A member that subscribes to such a topic again starts like a new group.
Source: KIP-932; DeleteShareGroupOffsetsRequest.json, DeleteShareGroupOffsetsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, structure, uuid

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
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


@structure(kafka_name="DeleteShareGroupOffsetsRequestTopic")
class RequestedTopic:
    """A topic whose offsets are deleted, with all its partitions."""

    topic_name: str = string()


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    """One group, which must be empty."""

    group_id: str = string()
    topics: list[RequestedTopic] = array(RequestedTopic)


@structure(kafka_name="DeleteShareGroupOffsetsResponseTopic")
class DeletedTopic:
    """Whether the offsets of a topic were deleted."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """One result for the group, then one per topic."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeletedTopic] = array(DeletedTopic)
