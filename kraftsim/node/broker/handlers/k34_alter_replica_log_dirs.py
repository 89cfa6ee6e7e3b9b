"""AlterReplicaLogDirs (34) on a broker with one log directory: everything lies there already, and there is nowhere else to go.

Source: KIP-113, kafka.server.ReplicaManager.alterReplicaLogDirs.
"""

from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Handler
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
"""What the name of a directory has besides topic and partition while a replica is copied into it."""


def handle(broker: Broker, call: Call) -> Answer:
    """Answer per partition; a partition that is named for two directories is answered once."""
    request = call.body
    assert isinstance(request, AlterReplicaLogDirsRequest), "dispatch decodes by API key"
    found = {
        (topic.name, number): _error(broker, wanted.path, topic.name, number)
        for wanted in request.dirs
        for topic in wanted.topics
        for number in topic.partitions
    }
    return _response(found)


def _error(broker: Broker, path: str, topic: str, partition: int) -> ErrorCode:
    if len(f"{topic}-{partition}") + COPY_NAME_EXTRA > FILE_NAME_CHARACTERS_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != broker.config.log_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if broker.partitions.find(topic, partition) is not None:
        return ErrorCode.NONE
    is_known = broker.image.partition(topic, partition) is not None
    return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _response(found: dict[tuple[str, int], ErrorCode]) -> Answer:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (topic, number), error in found.items():
        row = AlterReplicaLogDirPartitionResult(partition_index=number, error_code=error)
        topics.setdefault(topic, AlterReplicaLogDirTopicResult(topic_name=topic)).partitions.append(row)
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _refuse(call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, AlterReplicaLogDirsRequest), "dispatch decodes by API key"
    return _response({(topic.name, number): error for wanted in request.dirs for topic in wanted.topics for number in topic.partitions})


HANDLER = Handler(key=ApiKey.ALTER_REPLICA_LOG_DIRS, handle=handle, refuse=_refuse)
