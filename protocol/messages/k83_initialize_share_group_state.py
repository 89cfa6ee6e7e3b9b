"""InitializeShareGroupState (83): a group coordinator makes the share coordinator initialize the
state of a share-partition.

The share coordinator stores the delivery state of every (group, partition) in __share_group_state.
Source: KIP-932; InitializeShareGroupStateRequest.json, InitializeShareGroupStateResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure, uuid

ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.FENCED_STATE_EPOCH,  # the state is already at a higher epoch
    ErrorCode.INVALID_REQUEST,
)


@structure
class PartitionData:
    """The start offset of the group in a partition; -1 leaves it to the partition's leader."""

    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


@structure
class InitializeStateData:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    """A higher state epoch than before starts with new state."""

    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


@structure
class PartitionResult:
    """Whether a partition's state is initialized."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@structure
class InitializeStateResult:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    """One result per partition."""

    results: list[InitializeStateResult] = array(InitializeStateResult)
