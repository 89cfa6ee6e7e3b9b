"""AssignReplicasToDirs (73): a broker with several log directories reports the directory of each
replica to the controller.

With it the controller knows the replicas that a failed directory affects.
Source: KIP-858; AssignReplicasToDirsRequest.json, AssignReplicasToDirsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, structure, uuid

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # the broker is no replica of the partition
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,  # before metadata.version 3.7
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
)


@structure(kafka_name="PartitionData")
class AssignedPartition:
    """A replica of this broker."""

    partition_index: int = int32()


@structure(kafka_name="TopicData")
class AssignedTopic:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[AssignedPartition] = array(AssignedPartition)


@structure(kafka_name="DirectoryData")
class AssignedDirectory:
    """The replicas in one directory.

    A directory that the broker did not register counts as failed: leaders move away.
    """

    id: bytes = uuid()
    topics: list[AssignedTopic] = array(AssignedTopic)


@message(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsRequest:
    """Rejected as a whole unless the broker is registered with this very epoch."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[AssignedDirectory] = array(AssignedDirectory)


@structure(kafka_name="PartitionData")
class AssignedPartitionResult:
    """Whether the controller has recorded it."""

    partition_index: int = int32()
    error_code: int = int16()


@structure(kafka_name="TopicData")
class AssignedTopicResult:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[AssignedPartitionResult] = array(AssignedPartitionResult)


@structure(kafka_name="DirectoryData")
class AssignedDirectoryResult:
    """The replicas in one directory."""

    id: bytes = uuid()
    topics: list[AssignedTopicResult] = array(AssignedTopicResult)


@message(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    """The same structure as the request, with an error per partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[AssignedDirectoryResult] = array(AssignedDirectoryResult)
