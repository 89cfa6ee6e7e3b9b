"""Events of transaction coordinators: state changes, and refused requests.

Source: KIP-98, KIP-360, KIP-890.
"""

from kraftsim.events.event import Event


class TransactionStateChanged(Event):
    """A record of `__transaction_state` is committed: the state of the transactional id at the
    coordinator from now on.

    `state` is the name that DescribeTransactions shows, `partitions` the partitions of the
    transaction as 'topic-number', comma-separated, sorted. `transaction_version` is 2 if the epoch
    was bumped with the decision.
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
    """A transactional id has expired after transactional.id.expiration.ms without use: its
    tombstone is committed.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partition: int
    offset: int
    coordinator_epoch: int = -1


class TransactionChangeGivenUp(Event):
    """A coordinator could not confirm that a record of a transactional id is committed, and assumes
    that it is not.

    `offset` is where it was appended, -1 if it was not; a coordinator that loads the log later may
    or may not find it.
    """

    transactional_id: str
    partition: int
    coordinator_epoch: int
    offset: int
    error_code: int


class TransactionKept(Event):
    """A coordinator is about to give a transactional id to another producer, and keeps the open
    transaction: its producer id and epoch, and those of the producer from now on (KIP-939).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    next_producer_id: int
    next_producer_epoch: int
    partition: int
    coordinator_epoch: int


class TransactionAbortForced(Event):
    """A coordinator is about to abort a transaction that its producer did not end; `reason` is
    'timeout', or 'initialised' by another producer.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    reason: str


class TransactionRefused(Event):
    """A coordinator refused a request for a transactional id, for another reason than that the
    producer is fenced.
    """

    api: str
    transactional_id: str
    error_code: int
    producer_id: int
    producer_epoch: int


class ProducerFenced(Event):
    """A coordinator refused a producer because its epoch is not the current one of the
    transactional id.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    api: str


class TransactionsLoaded(Event):
    """A broker coordinates the transactional ids of a partition of `__transaction_state` from now
    on; it has loaded the log up to next_offset.
    """

    partition: int
    coordinator_epoch: int
    transaction_count: int
    next_offset: int


class TransactionLoaded(Event):
    """Right before TransactionsLoaded, once per transactional id: its loaded state, and the offset
    of its record.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    partitions: str
    coordinator_epoch: int
    partition: int
    record_offset: int


class TransactionsUnloaded(Event):
    """A broker has unloaded the transactional ids of a partition of `__transaction_state`."""

    partition: int
    coordinator_epoch: int
