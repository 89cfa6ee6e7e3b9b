"""AlterReplicaLogDirs (34): move replicas between log directories of this broker.

The response does not wait for the moves.

Source: KIP-113, kafka.server.ReplicaManager.alterReplicaLogDirs.
"""

from typing import Protocol

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

FILE_NAME_CHARACTERS_MAX = 255
COPY_NAME_EXTRA = len(".") + 32 + len("-future")
"""The length that the directory name of a future replica has beyond topic and partition."""


class MovingBroker(HostingBroker, ImageBroker, RunningBroker, Protocol):
    """A broker that moves replicas between its log directories."""


def handle(broker: MovingBroker, call: Call) -> Deferred:
    """Start the moves; a partition that is named for two directories has one result."""
    request = call.body
    assert isinstance(request, AlterReplicaLogDirsRequest), "dispatch decodes by API key"
    later = Deferred()
    broker.shell.tasks.spawn(
        or_refused(_answer(broker, request, later), later, call, _refuse), "replica moves"
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
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


HANDLER = Handler(key=ApiKey.ALTER_REPLICA_LOG_DIRS, handle=handle, refuse=_refuse)
