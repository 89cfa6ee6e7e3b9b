"""ListTransactions: the transactional ids that this broker coordinates.

Source: KIP-664, KIP-994, KIP-1152; TransactionStateManager.listTransactionStates.
"""

import re
from typing import Final

from kraftsim.core.transactions.transaction_entry import TransactionEntry
from kraftsim.core.transactions.transaction_state import STATE_BY_LABEL
from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k66_list_transactions import ListedTransaction, ListTransactionsRequest, ListTransactionsResponse

ANY_DURATION_BELOW: Final = 0


def handle(broker: Broker, call: Call) -> Answer:
    """Answer with the ids that pass every filter that is given; COORDINATOR_LOAD_IN_PROGRESS while some are still being read."""
    request = call.body
    assert isinstance(request, ListTransactionsRequest), "dispatch decodes by API key"
    try:
        pattern = re.compile(request.transactional_id_pattern or "") if request.transactional_id_pattern else None
    except re.error:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    led = list(broker.transactions.partitions.all())
    if any(each.is_loading for each in led):
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    now_ms = broker.world.clock.wall_ms()
    rows = [
        ListedTransaction(transactional_id=entry.transactional_id, producer_id=entry.facts.producer_id, transaction_state=entry.facts.state.label)
        for each in led
        for entry in each.shard.entries.values()
        if _passes(request, entry, now_ms) and (pattern is None or pattern.fullmatch(entry.transactional_id))
    ]
    unknown = [label for label in dict.fromkeys(request.state_filters) if label not in STATE_BY_LABEL]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)


def _passes(request: ListTransactionsRequest, entry: TransactionEntry, now_ms: int) -> bool:
    facts = entry.facts
    if request.producer_id_filters and facts.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and facts.state.label not in request.state_filters:
        return False
    return request.duration_filter < ANY_DURATION_BELOW or now_ms - facts.start_ms > request.duration_filter


HANDLER = Handler(key=ApiKey.LIST_TRANSACTIONS, handle=handle, refuse=lambda call, error: ListTransactionsResponse(error_code=error))
