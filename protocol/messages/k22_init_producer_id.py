"""InitProducerId (22): a producer obtains its producer id and epoch.

Without a transactional id any broker returns a new id; with one, the transaction coordinator bumps
the epoch and so fences the previous producer.
Source: KIP-98; KIP-360 (v3), KIP-588 (v4), KIP-890 (v5), KIP-939 (v6); InitProducerIdRequest.json,
InitProducerIdResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import boolean, int16, int32, int64, message, string

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

ERRORS = (
    # 3.0 to 3.3.1: no block of ids yet, which older clients took for the end (KAFKA-14417)
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,  # also while the broker waits for a block of ids
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # without a transactional id
    ErrorCode.INVALID_REQUEST,  # an empty transactional id, or only one of producer id and epoch
    ErrorCode.INVALID_PRODUCER_EPOCH,  # up to v3, in place of PRODUCER_FENCED
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.CONCURRENT_TRANSACTIONS,  # the former owner's transaction is being ended first
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_FENCED,  # since v4
    ErrorCode.TRANSACTION_ABORTABLE,  # declared for v5, sent by no release so far
)


@message(key=22, versions="0-6", flexible="2+", latest_unstable=True)
class InitProducerIdRequest:
    """Obtain a producer id, or initialise a transactional id and fence its previous producer.

    v3 lets a producer send its current id and epoch (KIP-360); v4 may return PRODUCER_FENCED
    (KIP-588), v5 TRANSACTION_ABORTABLE (KIP-890). v6, unstable in every release so far, is for
    two-phase commit (KIP-939).
    """

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=NO_PRODUCER_ID)
    producer_epoch: int = int16(since=3, default=NO_PRODUCER_EPOCH)
    enable2_pc: bool = boolean(since=6, kafka_name="Enable2Pc")
    keep_prepared_txn: bool = boolean(since=6)


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    """The id and epoch of all batches from now on; both -1 with an error."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=NO_PRODUCER_ID)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(since=6, default=NO_PRODUCER_ID)
    ongoing_txn_producer_epoch: int = int16(since=6, default=NO_PRODUCER_EPOCH)
