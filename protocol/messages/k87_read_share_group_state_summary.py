"""ReadShareGroupStateSummary (87): the start offsets of a share group, without the state batches.

A group coordinator sends it to answer DescribeShareGroupOffsets.
Source: KIP-932; KIP-1226 (v1: how many are complete); ReadShareGroupStateSummaryRequest.json,
ReadShareGroupStateSummaryResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure, uuid

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
    """A partition and its leader epoch."""

    partition: int = int32()
    leader_epoch: int = int32()


@structure
class ReadStateSummaryData:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    """Sent with the leader epoch of the partition, as far as the sender knows it."""

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


@structure
class PartitionResult:
    """The start offset; delivery_complete_count (-1: unknown) counts completed records after it."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(since=1, default=-1, ignorable=True)


@structure
class ReadStateSummaryResult:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    """Offsets and epochs only."""

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
