"""DescribeTransactions: the state of transactional ids at their coordinator.

Source: KIP-664, TransactionCoordinator.handleDescribeTransactions.
"""

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.slices import Slices
from kraftsim.transactions.transaction_coordinator import TransactionsBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(broker: TransactionsBroker, call: Call) -> Answer:
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


def refuse(call: Call, error: ErrorCode) -> Answer:
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
HANDLER = Handler(key=ApiKey.DESCRIBE_TRANSACTIONS, handle=handle, refuse=refuse, slices=SLICES)
