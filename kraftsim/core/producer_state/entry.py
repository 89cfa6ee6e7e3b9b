"""What is remembered of one producer in one partition: its epoch and its last five batches.

Five, because a producer may have five requests in flight: any of them may come again and must be recognised.
Source: org.apache.kafka.storage.internals.log.ProducerStateEntry, BatchMetadata.
"""

from kraftsim.core.producer_state.sequence import NO_SEQUENCE, decrement_sequence

RETAINED_BATCHES_MAX = 5
"""NUM_BATCHES_TO_RETAIN; one in 0.11, five ever since."""

NO_PRODUCER_EPOCH = -1
NO_COORDINATOR_EPOCH = -1
NO_TIMESTAMP = -1


class RetainedBatch:
    """A batch that is in the log; both ends of each range are inside."""

    __slots__ = ("first_offset", "first_sequence", "last_offset", "last_sequence", "max_timestamp")

    def __init__(self, last_sequence: int, last_offset: int, offset_delta: int, max_timestamp: int) -> None:
        self.last_sequence = last_sequence
        self.first_sequence = decrement_sequence(last_sequence, offset_delta)
        self.last_offset = last_offset
        self.first_offset = last_offset - offset_delta
        self.max_timestamp = max_timestamp


class ProducerStateEntry:
    """Mutable, and mutated only by the manager when a batch is in the log. `retained_max`: how many batches it remembers."""

    retained_max = RETAINED_BATCHES_MAX
    __slots__ = ("coordinator_epoch", "first_transaction_offset", "last_timestamp", "producer_epoch", "producer_id", "retained")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        """Of the coordinator that wrote the last marker; an older one is fenced (KIP-98)."""
        self.first_transaction_offset: int | None = None
        """Where the open transaction of this producer begins in this partition; None if there is none."""
        self.retained: tuple[RetainedBatch, ...] = ()
        """The oldest first. Most producers write seldom, and are many: a tuple of one costs least."""

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record appended; NO_SEQUENCE if no batch of this epoch is remembered."""
        return self.retained[-1].last_sequence if self.retained else NO_SEQUENCE

    def retained_copy(self, base_sequence: int, last_sequence: int) -> RetainedBatch | None:
        """Return the remembered batch with exactly these sequences, if there is one."""
        for batch in self.retained:
            if batch.first_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def take_epoch(self, producer_epoch: int) -> None:
        """Enter an epoch; batches of another epoch are forgotten."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.retained = ()

    def add_batch(self, last_sequence: int, last_offset: int, offset_delta: int, max_timestamp: int) -> None:
        """Remember a batch of the present epoch; the sixth oldest drops out."""
        batch = RetainedBatch(last_sequence, last_offset, offset_delta, max_timestamp)
        self.retained = (*self.retained, batch)[-self.retained_max :]
        self.last_timestamp = max_timestamp
