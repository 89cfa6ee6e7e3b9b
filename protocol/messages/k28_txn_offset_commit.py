"""TxnOffsetCommit (28): a producer commits a consumer group's offsets as part of its transaction.

The group coordinator appends them at once but returns them only after the commit marker: consumed
input and produced output are atomic. Sent to the group coordinator, after AddOffsetsToTxn (25) to
the transaction coordinator.
Source: KIP-98 (v0), KIP-320 (v2), KIP-447 (v3: fencing by generation), KIP-890 (v4; v5: adds the
partition itself), KIP-1319 (v6: topic ids); TxnOffsetCommitRequest.json,
TxnOffsetCommitResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure, uuid

NO_GENERATION_ID = -1
NO_LEADER_EPOCH = -1

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,  # 4.x: the record would be larger than the offsets topic takes
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,  # since v2; v0 and v1 return COORDINATOR_NOT_AVAILABLE
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.ILLEGAL_GENERATION,  # since v3
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.UNKNOWN_MEMBER_ID,  # since v3
    # up to 3.x: the record would be larger than the offsets topic takes
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,  # up to v3: the offsets partition is not in the transaction
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_ID_NOT_FOUND,  # since v6
    ErrorCode.FENCED_INSTANCE_ID,  # since v3
    ErrorCode.UNKNOWN_TOPIC_ID,  # since v6
    ErrorCode.STALE_MEMBER_EPOCH,  # since v6; ILLEGAL_GENERATION before
    ErrorCode.TRANSACTION_ABORTABLE,  # since v4: the offsets partition is not in the transaction
)


@structure
class TxnOffsetCommitRequestPartition:
    """The next offset to read, with metadata of the consumer's own."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=NO_LEADER_EPOCH, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


@structure
class TxnOffsetCommitRequestTopic:
    """Partitions of one topic, identified by its name up to v5 and by its id since v6."""

    name: str = string(until=5, ignorable=True)
    topic_id: bytes = uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    """v3 adds the member whose offsets these are, so that one that has lost its partitions cannot
    commit any more.

    Without a member (empty id, generation -1) only the producer is checked. v5 needs no
    AddOffsetsToTxn before it.
    """

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id_or_member_epoch: int = int32(since=3, default=NO_GENERATION_ID)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@structure
class TxnOffsetCommitResponsePartition:
    """The result of one partition; errors of the whole group are repeated in each."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class TxnOffsetCommitResponseTopic:
    """Partitions of one topic, identified as in the request."""

    name: str = string(until=5, ignorable=True)
    topic_id: bytes = uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    """One error per partition, in the order of the request."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
