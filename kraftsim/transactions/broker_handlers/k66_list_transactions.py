"""ListTransactions: the transactional ids that this broker coordinates.

Source: KIP-664, KIP-994, KIP-1152; TransactionStateManager.listTransactionStates.
"""

from typing import Final, Protocol

from kraftsim.core.expressions import InvalidExpression, client_expression
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import RunningBroker
from kraftsim.transactions.rules_state import STATE_BY_LABEL, TransactionFacts
from kraftsim.transactions.transaction_coordinator import TransactionsBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k66_list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ANY_DURATION_BELOW: Final = 0


class TransactionListingBroker(TransactionsBroker, RunningBroker, Protocol):
    """A broker that lists transactions."""


def handle(broker: TransactionListingBroker, call: Call) -> Answer:
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


HANDLER = Handler(
    key=ApiKey.LIST_TRANSACTIONS,
    handle=handle,
    refuse=lambda call, error: ListTransactionsResponse(error_code=error),
)
