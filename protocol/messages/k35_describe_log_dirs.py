"""DescribeLogDirs (35): this broker's log directories, their replicas, and their disk usage.

Source: KIP-113 (v0), KIP-784 (v3: a top-level error), KIP-827 (v4: space), KIP-1066 (v5: cordoned),
KIP-896; DescribeLogDirsRequest.json, DescribeLogDirsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, int64, message, string, structure

UNKNOWN_BYTES = -1

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # since v3; an empty answer before
    ErrorCode.KAFKA_STORAGE_ERROR,  # the directory is offline
)


@structure
class DescribableLogDirTopic:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    """topics null: everything."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@structure
class DescribeLogDirsPartition:
    """A replica in this directory: its size in bytes, and its offset lag.

    is_future_key: it is the future replica of a move, which replaces the current one when it has
    caught up. A replica lags behind the high watermark, a future replica behind the current
    replica.
    """

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@structure
class DescribeLogDirsTopic:
    """Replicas of one topic."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@structure
class DescribeLogDirsResult:
    """One directory. v4 adds the size and the free space of its volume in bytes, v5 whether it is
    cordoned.
    """

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=UNKNOWN_BYTES, ignorable=True)
    usable_bytes: int = int64(since=4, default=UNKNOWN_BYTES, ignorable=True)
    is_cordoned: bool = boolean(since=5, ignorable=True)


@message(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    """One result per directory; v3 adds the error if there is none."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
