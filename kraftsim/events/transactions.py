"""What a transaction coordinator writes down, and whom it turns away.   Source: KIP-98, KIP-360, KIP-890."""

from kraftsim.events.event import Event


class TransactionStateChanged(Event):
    """A record of `__transaction_state` is committed: this is what the coordinator believes of the transactional id from now on.

    `state` is the name that DescribeTransactions shows, `partitions` the members of the transaction as 'topic-number' between commas, sorted.
    `transaction_version` is 2 where the decision has raised the epoch.
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
    coordinator_epoch: int = -1


class TransactionChangeGivenUp(Event):
    """A coordinator could not see a record of a transactional id committed and goes on as if it were not there, which nobody knows.

    `offset` is where it was appended, -1 where it was not; a coordinator that reads the log later on finds it or does not.
    """

    transactional_id: str
    partition: int
    coordinator_epoch: int
    offset: int
    error_code: int


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


class TransactionLoaded(Event):
    """Right before TransactionsLoaded, once per transactional id: what the broker believes of it, and at which offset it has read that."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    partitions: str
    coordinator_epoch: int
    partition: int
    record_offset: int


class TransactionsUnloaded(Event):
    """A broker answers for the transactional ids of a partition of `__transaction_state` no longer."""

    partition: int
    coordinator_epoch: int
