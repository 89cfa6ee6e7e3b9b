"""InitializeShareGroupState (83): a group coordinator has the share coordinator begin the state of a share-partition.

The share coordinator keeps what is delivered and acknowledged of every (group, partition) in __share_group_state.
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
    """Where the group begins to read a partition; -1 leaves that to the partition's leader."""

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
    """A higher state epoch than before starts anew."""

    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


@structure
class PartitionResult:
    """Whether a partition's state began."""

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
    """One verdict per partition."""

    results: list[InitializeStateResult] = array(InitializeStateResult)
