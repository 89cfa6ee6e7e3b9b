"""WriteShareGroupState (85): the leader of a partition makes the share coordinator store its
delivery state.

Only changes are sent; the coordinator responds when they are in its log.
Source: KIP-932; KIP-1226 (v1: how many are complete); WriteShareGroupStateRequest.json,
WriteShareGroupStateResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int8, int16, int32, int64, message, string, structure, uuid

ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.INVALID_REQUEST,
)


@structure
class StateBatch:
    """Offsets, both inclusive, with one delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@structure
class PartitionData:
    """The changes of a partition; a start offset of -1 means unchanged."""

    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(since=1, default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch)


@structure
class WriteStateData:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    """Rejected if a later leader epoch or state epoch is known."""

    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


@structure
class PartitionResult:
    """Whether a partition's changes are stored."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@structure
class WriteStateResult:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    """One result per partition."""

    results: list[WriteStateResult] = array(WriteStateResult)
