"""OffsetForLeaderEpoch (23): the end offset of a leader epoch in the leader's log.

A follower or consumer with a diverging log learns from the response where to truncate, or that
records it has read are lost. Newer followers get the same information in Fetch v12 (KIP-595).
Source: KIP-101 (v0), KIP-279 (v1), KIP-320 (v2), KIP-392 (v3: replica id), KIP-896;
OffsetForLeaderEpochRequest.json, OffsetForLeaderEpochResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2  # may see offsets beyond the high watermark
NO_LEADER_EPOCH = -1
NO_OFFSET = -1

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,  # brokers up to 2.5
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # v0 to v2 are for brokers only, up to 2.x
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)


@structure
class OffsetForLeaderPartition:
    """leader_epoch is the requested one, current_leader_epoch the leader epoch that the sender
    knows (-1: not checked).
    """

    partition: int = int32()
    current_leader_epoch: int = int32(since=2, default=NO_LEADER_EPOCH, ignorable=True)
    leader_epoch: int = int32()


@structure
class OffsetForLeaderTopic:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """v2 lets the leader fence a sender with an old epoch, v3 adds the replica id."""

    replica_id: int = int32(since=3, default=DEBUGGING_REPLICA_ID, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@structure
class EpochEndOffset:
    """The newest epoch not above the requested one, and its end offset, which is exclusive.

    Both -1 if there is none.
    """

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(since=1, default=NO_LEADER_EPOCH, ignorable=True)
    end_offset: int = int64(default=NO_OFFSET)


@structure
class OffsetForLeaderTopicResult:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """One result per partition; v1 adds its epoch."""

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
