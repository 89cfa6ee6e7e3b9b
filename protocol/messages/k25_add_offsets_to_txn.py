"""AddOffsetsToTxn (25): a transaction is about to commit the offsets of a group.

The partition of `__consumer_offsets` of the group is added to the transaction; TxnOffsetCommit (28)
then writes there. Not needed any more where TxnOffsetCommit v5 does both.
Source: KIP-98 (v0), KIP-588 (v2), KIP-890 (v4); AddOffsetsToTxnRequest.json,
AddOffsetsToTxnResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import int16, int32, int64, message, string

ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,  # an empty transactional id
    ErrorCode.INVALID_PRODUCER_EPOCH,  # up to v1, in place of PRODUCER_FENCED
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS,  # the one before has not ended yet
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_FENCED,  # since v2
    ErrorCode.TRANSACTION_ABORTABLE,  # declared for v4, sent by no release so far
)


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Sent to the transaction coordinator, not to the group coordinator."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Only an error code."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
