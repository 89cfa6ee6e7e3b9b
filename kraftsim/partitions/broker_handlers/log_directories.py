"""Requests about the log directories of a broker: describe them, and move replicas between them."""

from typing import Protocol

from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_directory import LogDirectory
from kraftsim.partitions.partitions import HostingBroker
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.large_requests import or_refused
from kraftsim.server.serving_broker import ImageBroker, RunningBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

# --------------------------------------------------------------------------------------------------
# AlterReplicaLogDirs (34): move replicas between log directories of this broker
#
# The response does not wait for the moves.
#
# Source: KIP-113, kafka.server.ReplicaManager.alterReplicaLogDirs.

FILE_NAME_CHARACTERS_MAX = 255
COPY_NAME_EXTRA = len(".") + 32 + len("-future")
"""The length that the directory name of a future replica has beyond topic and partition."""


class MovingBroker(HostingBroker, ImageBroker, RunningBroker, Protocol):
    """A broker that moves replicas between its log directories."""


def handle_alter_replica_log_dirs(broker: MovingBroker, call: Call) -> Deferred:
    """Start the moves; a partition that is named for two directories has one result."""
    request = call.body
    assert isinstance(request, AlterReplicaLogDirsRequest), "dispatch decodes by API key"
    later = Deferred()
    broker.shell.tasks.spawn(
        or_refused(_answer(broker, request, later), later, call, _refuse_alter_replica_log_dirs),
        "replica moves",
    )
    return later


async def _answer(
    broker: MovingBroker, request: AlterReplicaLogDirsRequest, later: Deferred
) -> None:
    found: dict[tuple[str, int], ErrorCode] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            for number in topic.partitions:
                found[topic.name, number] = await _move(broker, wanted.path, topic.name, number)
    later.complete(_response(found))


async def _move(broker: MovingBroker, path: str, topic: str, partition: int) -> ErrorCode:
    if len(f"{topic}-{partition}") + COPY_NAME_EXTRA > FILE_NAME_CHARACTERS_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    directories = broker.partitions.directories
    home = directories.by_path(path)
    if home is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not home.is_online or broker.partitions.is_offline(topic, partition):
        return ErrorCode.KAFKA_STORAGE_ERROR
    hosted = broker.partitions.find(topic, partition)
    if (
        hosted is not None
        and hosted.home is not home
        and len(directories.online) < len(directories.all)
    ):
        return ErrorCode.KAFKA_STORAGE_ERROR  # the failed directory may have a future replica
    if await broker.partitions.move(topic, partition, home):
        return ErrorCode.NONE
    is_known = broker.image.partition(topic, partition) is not None
    return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _response(found: dict[tuple[str, int], ErrorCode]) -> Answer:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (topic, number), error in found.items():
        row = AlterReplicaLogDirPartitionResult(partition_index=number, error_code=error)
        topics.setdefault(topic, AlterReplicaLogDirTopicResult(topic_name=topic)).partitions.append(
            row
        )
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _refuse_alter_replica_log_dirs(call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, AlterReplicaLogDirsRequest), "dispatch decodes by API key"
    return _response(
        {
            (topic.name, number): error
            for wanted in request.dirs
            for topic in wanted.topics
            for number in topic.partitions
        }
    )


ALTER_REPLICA_LOG_DIRS = Handler(
    key=ApiKey.ALTER_REPLICA_LOG_DIRS,
    handle=handle_alter_replica_log_dirs,
    refuse=_refuse_alter_replica_log_dirs,
)


# --------------------------------------------------------------------------------------------------
# DescribeLogDirs (35): the replicas in each log directory of this broker, their sizes, and the
# total and usable bytes
#
# Source: KIP-113, KIP-827, kafka.server.ReplicaManager.describeLogDirs.


def handle_describe_log_dirs(broker: HostingBroker, call: Call) -> Answer:
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


def _refuse_describe_log_dirs(call: Call, error: ErrorCode) -> Answer:
    return DescribeLogDirsResponse(error_code=error)


DESCRIBE_LOG_DIRS = Handler(
    key=ApiKey.DESCRIBE_LOG_DIRS, handle=handle_describe_log_dirs, refuse=_refuse_describe_log_dirs
)


HANDLERS = (
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
)
