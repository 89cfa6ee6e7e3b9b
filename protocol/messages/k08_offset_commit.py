"""OffsetCommit (8): a consumer group commits its offsets.

The coordinator stores the offsets in `__consumer_offsets` and accepts them only from members of the
current generation, or from any client while the group is empty; offsets of a transaction are sent
by TxnOffsetCommit (28).
Source: KIP-211 (v5: no retention time), KIP-320 (v6), KIP-345 (v7: static members), KIP-848 (v9:
member epochs, v10: topic ids), KIP-896; OffsetCommitRequest.json, OffsetCommitResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure, uuid

NO_GENERATION_ID = -1  # no member: the group is used without membership
NO_COMMIT_TIMESTAMP = -1  # the broker takes the time of arrival
NO_RETENTION_TIME_MS = -1  # as long as `offsets.retention.minutes` says
NO_LEADER_EPOCH = -1

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,  # 4.x: the record would be larger than the offsets topic takes
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,  # also when the commit was not replicated in time
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,  # up to 3.x: the same
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.GROUP_ID_NOT_FOUND,  # since v9, where ILLEGAL_GENERATION was answered before
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.STALE_MEMBER_EPOCH,  # since v9
)


@structure
class OffsetCommitRequestPartition:
    """The next offset to read (one past the last one read), with metadata of the consumer's own.

    Only v1 has a timestamp for each offset, in milliseconds.
    """

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=NO_LEADER_EPOCH, ignorable=True)
    commit_timestamp: int = int64(since=1, until=1, default=NO_COMMIT_TIMESTAMP)
    committed_metadata: str | None = string(nullable="0+")


@structure
class OffsetCommitRequestTopic:
    """Partitions of one topic, identified by its name up to v9 and by its id since v10."""

    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitRequest:
    """v1 adds the member and its generation, v2 to v4 have the retention time of the offsets, v7
    adds the instance id.

    v0 wrote to ZooKeeper. Since v9 the generation is a member epoch if the group uses the consumer
    protocol (KIP-848).
    """

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(since=1, default=NO_GENERATION_ID, ignorable=True)
    member_id: str = string(since=1, ignorable=True)
    group_instance_id: str | None = string(since=7, nullable="7+", default=None)
    retention_time_ms: int = int64(since=2, until=4, default=NO_RETENTION_TIME_MS, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@structure
class OffsetCommitResponsePartition:
    """The result of one partition; errors of the whole group are repeated in each."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class OffsetCommitResponseTopic:
    """Partitions of one topic, identified as in the request."""

    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitResponse:
    """One error per partition, in the order of the request."""

    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
