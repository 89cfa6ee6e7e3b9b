"""StopReplica (5): the ZooKeeper-mode controller makes a broker stop serving replicas, and
optionally delete them.

Sent when a topic is deleted, a reassignment removes a replica, or a broker shuts down; KRaft
brokers read all that from the metadata log.
Source: KIP-380 (v1: broker epochs), KIP-570 (v3: leader epochs), KIP-866 (v4), KIP-896;
StopReplicaRequest.json, StopReplicaResponse.json of 3.9.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, int64, message, string, structure

NO_BROKER_EPOCH = -1
NO_LEADER_EPOCH = -1  # unknown to the controller: not checked
LEADER_EPOCH_DURING_DELETE = -2  # not checked either: the whole topic goes

ERRORS = (
    ErrorCode.STALE_CONTROLLER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,  # since v3; the broker knows a newer leader epoch
    ErrorCode.STALE_BROKER_EPOCH,
)


@structure
class StopReplicaPartitionV0:
    """A partition in v0, with its topic's name."""

    topic_name: str = string(until=0)
    partition_index: int = int32(until=0)


@structure
class StopReplicaTopicV1:
    """Partitions of one topic; delete_partitions of the request applies to all of them."""

    name: str = string(since=1, until=2)
    partition_indexes: list[int] = array(int32, since=1, until=2)


@structure
class StopReplicaPartitionState:
    """A partition with its leader epoch as far as the controller knows, so that an old request
    cannot undo a newer one.
    """

    partition_index: int = int32(since=3)
    leader_epoch: int = int32(since=3, default=NO_LEADER_EPOCH)
    delete_partition: bool = boolean(since=3)


@structure
class StopReplicaTopicState:
    """Partitions of one topic."""

    topic_name: str = string(since=3)
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, since=3)


@message(key=5, versions="0-4", flexible="2+")
class StopReplicaRequest:
    """v0 lists partitions, v1 groups them by topic, v3 has a delete flag for each partition."""

    controller_id: int = int32()
    is_kraft_controller: bool = boolean(since=4, kafka_name="isKRaftController")
    controller_epoch: int = int32()
    broker_epoch: int = int64(since=1, default=NO_BROKER_EPOCH, ignorable=True)
    delete_partitions: bool = boolean(until=2)
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, until=0)
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, since=1, until=2)
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, since=3)


@structure
class StopReplicaPartitionError:
    """The result of one partition."""

    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


@message(key=5, versions="0-4", flexible="2+")
class StopReplicaResponse:
    """One error for the request, and one per partition."""

    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
