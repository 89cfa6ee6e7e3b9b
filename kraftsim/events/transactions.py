"""What a transaction coordinator writes down, and whom it turns away.   Source: KIP-98, KIP-360, KIP-890."""

from kraftsim.events.event import Event


class TransactionStateChanged(Event):
    """A record of `__transaction_state` is committed: this is what holds for the transactional id from now on.

    `state` is the name that DescribeTransactions shows, `partitions` the members of the transaction as 'topic-number' between commas. The epoch is
    that of the record. `transaction_version` is 2 where the decision has raised it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    partitions: str
    coordinator_epoch: int
    partition: int
    offset: int
    transaction_version: int = 0
    timeout_ms: int = 0


class TransactionalIdExpired(Event):
    """Nobody has used a transactional id for transactional.id.expiration.ms: its tombstone is committed, and nothing is known of it any more."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partition: int
    offset: int


class TransactionAbortForced(Event):
    """A coordinator is about to abort a transaction that its producer did not end; `reason` is 'timeout', or 'initialised' by another producer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    reason: str


class TransactionRefused(Event):
    """A coordinator refused what somebody asked for a transactional id, other than that another producer has taken over."""

    api: str
    transactional_id: str
    error_code: int
    producer_id: int
    producer_epoch: int


class ProducerFenced(Event):
    """A coordinator refused a producer because its epoch is not the present one of the transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    api: str


class TransactionsLoaded(Event):
    """A broker answers for the transactional ids of a partition of `__transaction_state` from now on; it has read the log up to next_offset."""

    partition: int
    coordinator_epoch: int
    transaction_count: int
    next_offset: int


class TransactionsUnloaded(Event):
    """A broker answers for the transactional ids of a partition of `__transaction_state` no longer."""

    partition: int
    coordinator_epoch: int
