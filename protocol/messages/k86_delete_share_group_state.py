"""DeleteShareGroupState (86): a group coordinator makes the share coordinator delete the state of
share-partitions.

Sent when a group or a topic is deleted; a tombstone removes the state.
Source: KIP-932; DeleteShareGroupStateRequest.json, DeleteShareGroupStateResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, structure, uuid

ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.INVALID_REQUEST,
)


@structure
class PartitionData:
    """A partition whose state is deleted."""

    partition: int = int32()


@structure
class DeleteStateData:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    """Partitions of one group."""

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


@structure
class PartitionResult:
    """Whether the state of a partition is deleted."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@structure
class DeleteStateResult:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    """One result per partition."""

    results: list[DeleteStateResult] = array(DeleteStateResult)
