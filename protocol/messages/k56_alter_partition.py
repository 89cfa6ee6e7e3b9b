"""AlterPartition (56): the leader of a partition asks the controller to expand or shrink the ISR.

The leader counts a joining replica at once for the high watermark, but drops a leaving one only
when the controller has accepted it: at no time is a record committed that a later leader might
lack. v0 was called AlterIsr.
Source: KIP-497, KIP-704 (v1: recovery from unclean elections), KIP-841 (v2: topic ids), KIP-903
(v3: broker epochs); AlterPartitionRequest.json, AlterPartitionResponse.json; 2.8:
AlterIsrRequest.json, AlterIsrResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int8, int16, int32, int64, message, string, structure, uuid

RECOVERED = 0
RECOVERING = 1  # elected uncleanly, and not yet done with cleaning up behind that
UNCHECKED_BROKER_EPOCH = -1

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,  # also where the leader is ahead: this controller has been overtaken
    ErrorCode.INVALID_REQUEST,  # not from the leader, or without it, or a recovery that cannot be
    ErrorCode.OPERATION_NOT_ATTEMPTED,  # up to v1, for INELIGIBLE_REPLICA
    ErrorCode.FENCED_LEADER_EPOCH,  # up to v1 also for NEW_LEADER_ELECTED
    ErrorCode.STALE_BROKER_EPOCH,  # of the whole request
    ErrorCode.INVALID_UPDATE_VERSION,  # the partition epoch is old: something has changed meanwhile
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INELIGIBLE_REPLICA,  # fenced, shutting down, not registered, or restarted (v3)
    ErrorCode.NEW_LEADER_ELECTED,  # accepted, but the sender is no longer the leader
)


@structure
class BrokerState:
    """A replica and its broker epoch; -1 is not checked."""

    broker_id: int = int32(since=3)
    broker_epoch: int = int64(since=3, default=UNCHECKED_BROKER_EPOCH)


@structure(kafka_name="PartitionData")
class AlterPartitionData:
    """The requested ISR, including the leader, provided that the partition epoch is unchanged.

    v1 adds the leader recovery state, v3 the broker epochs, so that a restarted broker does not
    join by an old fetch.
    """

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, until=2)
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, since=3)
    leader_recovery_state: int = int8(since=1)
    partition_epoch: int = int32()


@structure(kafka_name="TopicData")
class AlterPartitionTopic:
    """Partitions of one topic, identified by its name up to v1 and by its id since v2."""

    topic_name: str = string(until=1, ignorable=True)
    topic_id: bytes = uuid(since=2, ignorable=True)
    partitions: list[AlterPartitionData] = array(AlterPartitionData)


@message(key=56, versions="0-3", flexible="0+")
class AlterPartitionRequest:
    """Rejected as a whole unless the broker is registered with this very epoch."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionTopic] = array(AlterPartitionTopic)


@structure(kafka_name="PartitionData")
class AlterPartitionDataResult:
    """The current partition state; all zero or empty with an error."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8(since=1, ignorable=True)
    partition_epoch: int = int32()


@structure(kafka_name="TopicData")
class AlterPartitionTopicResult:
    """Partitions of one topic, identified by its name up to v1 and by its id since v2."""

    topic_name: str = string(until=1, ignorable=True)
    topic_id: bytes = uuid(since=2, ignorable=True)
    partitions: list[AlterPartitionDataResult] = array(AlterPartitionDataResult)


@message(key=56, versions="0-3", flexible="0+")
class AlterPartitionResponse:
    """Each partition succeeds or fails independently. v2 has three more errors, see above."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionTopicResult] = array(AlterPartitionTopicResult)
