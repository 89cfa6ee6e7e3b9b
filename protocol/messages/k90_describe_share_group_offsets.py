"""DescribeShareGroupOffsets (90): the start offsets of share groups.

A share group has no committed offset; it has a start offset before which everything is done.
Source: KIP-932; KIP-1226 (v1: lag); DescribeShareGroupOffsetsRequest.json,
DescribeShareGroupOffsetsResponse.json.
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
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


@structure(kafka_name="DescribeShareGroupOffsetsRequestTopic")
class RequestedTopic:
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[int] = array(int32)


@structure(kafka_name="DescribeShareGroupOffsetsRequestGroup")
class RequestedGroup:
    """A group and the topics to describe."""

    group_id: str = string()
    topics: list[RequestedTopic] | None = array(RequestedTopic, nullable="0+")


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    """Topics by name, or null for all of a group."""

    groups: list[RequestedGroup] = array(RequestedGroup)


@structure(kafka_name="DescribeShareGroupOffsetsResponsePartition")
class DescribedPartition:
    """The start offset of a group; lag -1 if unknown."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64(since=1, default=-1, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@structure(kafka_name="DescribeShareGroupOffsetsResponseTopic")
class DescribedTopic:
    """Partitions of one topic."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[DescribedPartition] = array(DescribedPartition)


@structure(kafka_name="DescribeShareGroupOffsetsResponseGroup")
class DescribedGroup:
    """A group, or the error."""

    group_id: str = string()
    topics: list[DescribedTopic] = array(DescribedTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """One entry per requested group."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
