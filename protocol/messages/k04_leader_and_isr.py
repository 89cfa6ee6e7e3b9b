"""LeaderAndIsr (4): the ZooKeeper-mode controller sends a broker its partitions, and for each
whether it is leader or follower.

KRaft brokers read the metadata log instead. Removed in 4.0, where the key has no version any more.
Source: KIP-112 (v1: new replicas), KIP-380 (v2: broker epochs), KIP-455 (v3: reassignments),
KIP-516 (v5: topic ids), KIP-704 (v6: unclean recovery), KIP-866 (v7: migration to KRaft), KIP-896;
LeaderAndIsrRequest.json, LeaderAndIsrResponse.json of 3.9.
"""

from protocol.errors import ErrorCode
from protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
    uuid,
)

NO_BROKER_EPOCH = -1
NO_LEADER_ID = -1
LEADER_DURING_DELETE = -2  # the topic is being deleted; the partition will have no leader again
UNKNOWN_REQUEST_TYPE = 0  # below v5
INCREMENTAL_REQUEST = 1  # partitions that are not named stay as they are
FULL_REQUEST = 2  # every partition that the broker should hold; others on its disks are strays
RECOVERED = 0
RECOVERING = 1

ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the broker is not among the replicas of the partition
    # for the request, or for one partition whose leader epoch is not newer than the broker's
    ErrorCode.STALE_CONTROLLER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


@structure
class LeaderAndIsrPartitionState:
    """The state of a partition for a broker that hosts it.

    controller_epoch is that of the controller which made this decision, not of the one that sends
    it. partition_epoch (`zkVersion` up to 2.8) guards every change of the in-sync replicas. is_new:
    just created, so that a missing log is no loss.
    """

    topic_name: str = string(until=1, ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    partition_epoch: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32, since=3, ignorable=True)
    removing_replicas: list[int] = array(int32, since=3, ignorable=True)
    is_new: bool = boolean(since=1, ignorable=True)
    leader_recovery_state: int = int8(since=6)


@structure
class LeaderAndIsrTopicState:
    """Partitions of one topic; v0 and v1 name the topic in every partition instead."""

    topic_name: str = string(since=2)
    topic_id: bytes = uuid(since=5, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, since=2)


@structure
class LeaderAndIsrLiveLeader:
    """A broker that leads one of the partitions, and its inter-broker endpoint."""

    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


@message(key=4, versions="0-7", flexible="4+")
class LeaderAndIsrRequest:
    """v2 groups partitions by topic and adds the broker epoch, v5 whether the list is complete.

    v6 adds the recovery state of an uncleanly elected leader, v7 whether the sender is a KRaft
    controller during a migration.
    """

    controller_id: int = int32()
    is_kraft_controller: bool = boolean(since=7, kafka_name="isKRaftController")
    controller_epoch: int = int32()
    broker_epoch: int = int64(since=2, default=NO_BROKER_EPOCH, ignorable=True)
    type: int = int8(since=5)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(
        LeaderAndIsrPartitionState, until=1
    )
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, since=2)
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


@structure
class LeaderAndIsrPartitionError:
    """The result of one partition."""

    topic_name: str = string(until=4, ignorable=True)
    partition_index: int = int32()
    error_code: int = int16()


@structure
class LeaderAndIsrTopicError:
    """Partitions of one topic, which v5 identifies by its id only."""

    topic_id: bytes = uuid(since=5)
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, since=5)


@message(key=4, versions="0-7", flexible="4+")
class LeaderAndIsrResponse:
    """One error for the request, and one per partition; v5 groups them by topic id."""

    error_code: int = int16()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, until=4)
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, since=5)
