"""ListTransactions (66): the transactional ids that a broker coordinates.

To list all, every broker is queried.

Source: KIP-664, KIP-994 (v1: duration), KIP-1152 (v2: pattern); ListTransactionsRequest.json,
ListTransactionsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure

ANY_DURATION = -1

ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,  # some of its ids are still being loaded
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_REGULAR_EXPRESSION,  # v2
)


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """All given filters must match; an empty list, a negative duration and a null or empty pattern
    match everything.

    v1 adds the minimum duration of the transaction in ms, v2 a regular expression (RE2) for the
    whole id.
    """

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(since=1, default=ANY_DURATION)
    transactional_id_pattern: str | None = string(since=2, nullable="2+", default=None)


@structure(kafka_name="TransactionState")
class ListedTransaction:
    """A transactional id, its producer id, and its state by name (as in DescribeTransactions)."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """Unknown states in the filter are returned by name.

    Ids that the client may not see are left out.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[ListedTransaction] = array(ListedTransaction)
