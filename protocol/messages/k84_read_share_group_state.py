"""ReadShareGroupState (84): the leader of a partition reads its delivery state from the share
coordinator.

It does so when a group first reads the partition from it; the request also fences previous leaders.
Source: KIP-932; ReadShareGroupStateRequest.json, ReadShareGroupStateResponse.json.
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
    ErrorCode.INVALID_REQUEST,
)


@structure
class PartitionData:
    """A partition and the sender's leader epoch."""

    partition: int = int32()
    leader_epoch: int = int32()


@structure
class ReadStateData:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    """Sent with the leader epoch of the partition."""

    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


@structure
class StateBatch:
    """Offsets, both inclusive, with one delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@structure
class PartitionResult:
    """The state of a partition; the start offset is -1 if none was set."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


@structure
class ReadStateResult:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    """The state from the start offset on."""

    results: list[ReadStateResult] = array(ReadStateResult)
