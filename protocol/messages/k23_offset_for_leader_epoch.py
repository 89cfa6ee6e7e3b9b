"""OffsetForLeaderEpoch (23): where does this leader epoch end in your log?

A follower or consumer whose log diverged from the leader's learns from the answer where to cut, or that records it has read are lost. Followers of
today get the same answer inside Fetch v12 (KIP-595).
Source: KIP-101 (v0), KIP-279 (v1), KIP-320 (v2), KIP-392 (v3: replica id), KIP-896; OffsetForLeaderEpochRequest.json,
OffsetForLeaderEpochResponse.json.
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
    """leader_epoch is the one asked about, current_leader_epoch what the asker believes the leader to be in (-1: not checked)."""

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
    """v2 lets the leader fence an asker that is behind, v3 says who asks."""

    replica_id: int = int32(since=3, default=DEBUGGING_REPLICA_ID, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@structure
class EpochEndOffset:
    """The newest epoch not above the one asked about, and its end, which is the first offset outside. Both -1 if there is none."""

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
    """One answer per partition; v1 names the epoch it is about."""

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
