"""DescribeLogDirs (35): the replicas in each log directory of this broker, their sizes, and the
total and usable bytes.

Source: KIP-113, KIP-827, kafka.server.ReplicaManager.describeLogDirs.
"""

from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_directory import LogDirectory
from kraftsim.partitions.partitions import HostingBroker
from kraftsim.server.call import Answer, Call, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(broker: HostingBroker, call: Call) -> Answer:
    """Respond at once; directories without matching replicas are included."""
    request = call.body
    assert isinstance(request, DescribeLogDirsRequest), "dispatch decodes by API key"
    asked = (
        None
        if request.topics is None
        else {(topic.topic, number) for topic in request.topics for number in topic.partitions}
    )
    return DescribeLogDirsResponse(
        results=[_directory(broker, home, asked) for home in broker.partitions.directories.all]
    )


def _directory(
    broker: HostingBroker, home: LogDirectory, asked: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    if not home.is_online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=home.path)
    try:
        total_bytes, usable_bytes = home.world.disk.space()
    except OSError:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=home.path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for hosted in broker.partitions.hosted():
        if hosted.home is home and (asked is None or hosted.key in asked):
            topics.setdefault(
                hosted.topic, DescribeLogDirsTopic(name=hosted.topic)
            ).partitions.append(_row(hosted))
    for move in broker.partitions.moves.under_way():
        if move.home is home and (asked is None or move.hosted.key in asked):
            row = DescribeLogDirsPartition(
                partition_index=move.hosted.partition,
                partition_size=move.log.size_bytes,
                offset_lag=move.lag,
                is_future_key=True,
            )
            topics.setdefault(
                move.hosted.topic, DescribeLogDirsTopic(name=move.hosted.topic)
            ).partitions.append(row)
    return DescribeLogDirsResult(
        log_dir=home.path,
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _row(hosted: HostedPartition) -> DescribeLogDirsPartition:
    lag = max(hosted.replica.high_watermark - hosted.log.log_end_offset, 0)
    return DescribeLogDirsPartition(
        partition_index=hosted.partition, partition_size=hosted.log.size_bytes, offset_lag=lag
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return DescribeLogDirsResponse(error_code=error)


HANDLER = Handler(key=ApiKey.DESCRIBE_LOG_DIRS, handle=handle, refuse=_refuse)
