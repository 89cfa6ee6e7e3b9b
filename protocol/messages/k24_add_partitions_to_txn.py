"""AddPartitionsToTxn (24): a transaction is about to write to these partitions.

The coordinator must know a partition before the first batch arrives there, so that it can end the
transaction in all of them. Since v4 brokers send this, too, to verify that a partition is in the
transaction before they append (verify_only).
Source: KIP-98 (v0), KIP-588 (v2), KIP-890 (v4, v5); AddPartitionsToTxnRequest.json,
AddPartitionsToTxnResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, int64, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # since v4: only brokers may
    ErrorCode.INVALID_REQUEST,  # an empty transactional id
    ErrorCode.INVALID_PRODUCER_EPOCH,  # up to v1, in place of PRODUCER_FENCED
    ErrorCode.INVALID_TXN_STATE,  # 3.5 to 3.7, verify_only: the partition is not in the transaction
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,  # the transactional id is unknown, or another producer's
    ErrorCode.CONCURRENT_TRANSACTIONS,  # the one before has not ended yet
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.OPERATION_NOT_ATTEMPTED,  # some other partition was refused: none is added
    ErrorCode.PRODUCER_FENCED,  # since v2
    # since v5, verify_only: the partition is not in the transaction
    ErrorCode.TRANSACTION_ABORTABLE,
)


@structure
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(int32)


@structure
class AddPartitionsToTxnTransaction:
    """What one transaction adds, or with verify_only only verifies."""

    transactional_id: str = string(since=4)
    producer_id: int = int64(since=4)
    producer_epoch: int = int16(since=4)
    verify_only: bool = boolean(since=4)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, since=4)


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """v0 to v3 are sent by producers, for one transaction; v4 and later by brokers, for several.

    v5 means that the sender understands TRANSACTION_ABORTABLE.
    """

    transactions: list[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, since=4
    )
    v3_and_below_transactional_id: str = string(until=3)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


@structure
class AddPartitionsToTxnPartitionResult:
    """The result of one partition."""

    partition_index: int = int32()
    partition_error_code: int = int16()


@structure
class AddPartitionsToTxnTopicResult:
    """Partitions of one topic."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )


@structure
class AddPartitionsToTxnResult:
    """The results of one transaction."""

    transactional_id: str = string(since=4)
    topic_results: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, since=4
    )


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """All partitions of a transaction are added or none; error_code (v4) applies to all
    transactions.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, since=4
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, until=3
    )
