"""Requests that describe and list the transactions of a coordinator."""

from typing import Final, Protocol

from kraftsim.core.expressions import InvalidExpression, client_expression
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import RunningBroker
from kraftsim.server.slices import Slices
from kraftsim.transactions.rules_state import STATE_BY_LABEL, TransactionFacts
from kraftsim.transactions.transaction_coordinator import TransactionsBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from protocol.messages.k66_list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

# --------------------------------------------------------------------------------------------------
# DescribeTransactions: the state of transactional ids at their coordinator
#
# Source: KIP-664, TransactionCoordinator.handleDescribeTransactions.


def handle_describe_transactions(broker: TransactionsBroker, call: Call) -> Answer:
    """Return for each id its state, INVALID_REQUEST, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS
    or TRANSACTIONAL_ID_NOT_FOUND.
    """
    request = call.body
    assert isinstance(request, DescribeTransactionsRequest), "dispatch decodes by API key"
    return DescribeTransactionsResponse(
        transaction_states=[_described(broker, each) for each in request.transactional_ids]
    )


def _described(broker: TransactionsBroker, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return refused(transactional_id, ErrorCode.INVALID_REQUEST)
    led = broker.transactions.partitions.coordinated(transactional_id)
    if isinstance(led, ErrorCode):
        return refused(transactional_id, led)
    entry = led.shard.entries.get(transactional_id)
    if entry is None:
        return refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    facts = entry.facts
    topics: dict[str, TopicData] = {}
    for topic, number in facts.partitions:
        topics.setdefault(topic, TopicData(topic=topic)).partitions.append(number)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=facts.state.label,
        transaction_timeout_ms=facts.timeout_ms,
        transaction_start_time_ms=facts.start_ms,
        producer_id=facts.producer_id,
        producer_epoch=facts.producer_epoch,
        topics=list(topics.values()),
    )


def refused(transactional_id: str, error: ErrorCode) -> TransactionState:
    """Return the row of an id with an error."""
    return TransactionState(error_code=error, transactional_id=transactional_id)


def refuse_describe_transactions(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every id."""
    request = call.body
    assert isinstance(request, DescribeTransactionsRequest), "dispatch decodes by API key"
    return DescribeTransactionsResponse(
        transaction_states=[refused(each, error) for each in request.transactional_ids]
    )


def _weight(broker: TransactionsBroker, transactional_id: str) -> int:
    led = broker.transactions.partitions.coordinated(transactional_id)
    entry = None if isinstance(led, ErrorCode) else led.shard.entries.get(transactional_id)
    return 1 if entry is None else 1 + len(entry.facts.partitions)


SLICES = Slices(entries="transactional_ids", rows="transaction_states", weight=_weight)
DESCRIBE_TRANSACTIONS = Handler(
    key=ApiKey.DESCRIBE_TRANSACTIONS,
    handle=handle_describe_transactions,
    refuse=refuse_describe_transactions,
    slices=SLICES,
)


# --------------------------------------------------------------------------------------------------
# ListTransactions: the transactional ids that this broker coordinates
#
# Source: KIP-664, KIP-994, KIP-1152; TransactionStateManager.listTransactionStates.

ANY_DURATION_BELOW: Final = 0


class TransactionListingBroker(TransactionsBroker, RunningBroker, Protocol):
    """A broker that lists transactions."""


def handle_list_transactions(broker: TransactionListingBroker, call: Call) -> Answer:
    """Return the ids that match every filter of the request; COORDINATOR_LOAD_IN_PROGRESS while
    some are being loaded.
    """
    request = call.body
    assert isinstance(request, ListTransactionsRequest), "dispatch decodes by API key"
    try:
        pattern = (
            client_expression(request.transactional_id_pattern)
            if request.transactional_id_pattern
            else None
        )
    except InvalidExpression:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    led = list(broker.transactions.partitions.all())
    if any(each.is_loading for each in led):
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    now_ms = broker.world.clock.wall_ms()
    producer_ids, labels = frozenset(request.producer_id_filters), frozenset(request.state_filters)
    rows = [
        ListedTransaction(
            transactional_id=entry.transactional_id,
            producer_id=entry.facts.producer_id,
            transaction_state=entry.facts.state.label,
        )
        for each in led
        for entry in each.shard.entries.values()
        if _passes(entry.facts, producer_ids, labels)
        and _lasts(entry.facts, request.duration_filter, now_ms)
        and (pattern is None or pattern.fullmatch(entry.transactional_id))
    ]
    unknown = [
        label for label in dict.fromkeys(request.state_filters) if label not in STATE_BY_LABEL
    ]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)


def _passes(facts: TransactionFacts, producer_ids: frozenset[int], labels: frozenset[str]) -> bool:
    if producer_ids and facts.producer_id not in producer_ids:
        return False
    return not labels or facts.state.label in labels


def _lasts(facts: TransactionFacts, duration_ms: int, now_ms: int) -> bool:
    return duration_ms < ANY_DURATION_BELOW or now_ms - facts.start_ms > duration_ms


LIST_TRANSACTIONS = Handler(
    key=ApiKey.LIST_TRANSACTIONS,
    handle=handle_list_transactions,
    refuse=lambda call, error: ListTransactionsResponse(error_code=error),
)


HANDLERS = (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
