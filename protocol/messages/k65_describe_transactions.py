"""DescribeTransactions (65): the state of transactional ids, sent to the transaction coordinator of
each.

Source: KIP-664; DescribeTransactionsRequest.json, DescribeTransactionsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure

NO_START_TIME = -1

ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_REQUEST,  # an empty transactional id
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,  # unknown, or expired
)


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """An empty list describes nothing."""

    transactional_ids: list[str] = array(string)


@structure
class TopicData:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@structure
class TransactionState:
    """The last transaction of a transactional id.

    It is Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort,
    PrepareEpochFence or Dead. The start is in ms since 1970, -1 if none was started. Partitions are
    those that still wait for their marker, none once it is complete. Topics that the client may not
    see are left out.
    """

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """One entry per requested id, each with its own error."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
