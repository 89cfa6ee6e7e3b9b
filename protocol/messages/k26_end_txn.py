"""EndTxn (26): commit or abort a transaction.

Answered as soon as the decision is in the transaction log; the markers follow. Since v5 the
decision also bumps the producer's epoch, so that no late batch of the old transaction can slip into
the next one (KIP-890).
Source: KIP-98 (v0), KIP-588 (v2), KIP-890 (v4, v5); EndTxnRequest.json, EndTxnResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import boolean, int16, int32, int64, message, string

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_REQUEST,  # an empty transactional id
    ErrorCode.INVALID_PRODUCER_EPOCH,  # up to v1, in place of PRODUCER_FENCED
    ErrorCode.INVALID_TXN_STATE,  # nothing is going on, or the other decision was made
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS,  # the same decision was made, its markers are on the way
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_FENCED,  # since v2
    ErrorCode.TRANSACTION_ABORTABLE,  # declared for v4, sent by no release so far
)


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """v5 requests a new epoch with the decision, which requires transaction.version 2."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """v5 adds the id and epoch to continue with; the id is a new one if the epochs of the old one
    are exhausted.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(since=5, default=NO_PRODUCER_ID, ignorable=True)
    producer_epoch: int = int16(since=5, default=NO_PRODUCER_EPOCH, ignorable=True)
