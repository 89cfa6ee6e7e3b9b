"""AlterReplicaLogDirs (34): move this broker's replicas to another of its log directories, or
choose the directory of a future replica.

The response only means that the move has started; DescribeLogDirs (35) shows its progress.
Source: KIP-113, KIP-896; AlterReplicaLogDirsRequest.json, AlterReplicaLogDirsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    # the replica does not exist yet; it will be created in the requested directory
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,  # a name too long for a directory that is being moved
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LOG_DIR_NOT_FOUND,
)


@structure
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(int32)


@structure
class AlterReplicaLogDir:
    """The replicas for one directory, given by its absolute path."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Replicas of the receiving broker, by their target directory."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@structure
class AlterReplicaLogDirPartitionResult:
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class AlterReplicaLogDirTopicResult:
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """One result per partition."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
