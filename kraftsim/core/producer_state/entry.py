"""What is remembered of one producer in one partition: its epoch and its last five batches.

Five, because a producer may have five requests in flight: any of them may come again and must be recognised. Producers are many, and most of them
write seldom: the latest batch lies in the entry itself, and what costs more than that is there once a second one has come.
Source: org.apache.kafka.storage.internals.log.ProducerStateEntry, BatchMetadata.
"""

from typing import ClassVar

import msgspec

from kraftsim.core.producer_state.sequence import NO_SEQUENCE, decrement_sequence

RETAINED_BATCHES_MAX = 5
"""NUM_BATCHES_TO_RETAIN; one in 0.11, five ever since."""

NO_PRODUCER_EPOCH = -1
NO_COORDINATOR_EPOCH = -1
NO_TIMESTAMP = -1
NO_OFFSET = -1


class RetainedBatch(msgspec.Struct, gc=False, eq=False):
    """A batch that is in the log; both ends of each range are inside."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    max_timestamp: int

    @property
    def first_offset(self) -> int:
        """Where it begins."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record."""
        return decrement_sequence(self.last_sequence, self.offset_delta)


class ProducerStateEntry(msgspec.Struct, gc=False, eq=False):
    """Mutable, and mutated only by the manager when a batch is in the log. `retained_max`: how many batches it remembers."""

    retained_max: ClassVar[int] = RETAINED_BATCHES_MAX

    producer_id: int
    producer_epoch: int
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """Of the coordinator that wrote the last marker; an older one is fenced (KIP-98)."""
    first_transaction_offset: int | None = None
    """Where the open transaction of this producer begins in this partition; None if there is none."""
    last_sequence: int = NO_SEQUENCE
    """Sequence of the last record appended; NO_SEQUENCE if no batch of this epoch is remembered."""
    last_offset: int = NO_OFFSET
    """Its offset; NO_OFFSET if no batch of this epoch is remembered."""
    offset_delta: int = 0
    max_timestamp: int = NO_TIMESTAMP
    """Both of the latest batch."""
    earlier: tuple[RetainedBatch, ...] = ()
    """The batches before the latest one, the oldest first."""

    @property
    def retained(self) -> tuple[RetainedBatch, ...]:
        """All batches that are remembered, the oldest first."""
        return () if self.last_offset == NO_OFFSET else (*self.earlier, self._latest())

    def retained_copy(self, base_sequence: int, last_sequence: int) -> RetainedBatch | None:
        """Return the remembered batch with exactly these sequences, if there is one."""
        if last_sequence == self.last_sequence and self.last_offset != NO_OFFSET and base_sequence == self._first(last_sequence, self.offset_delta):
            return self._latest()
        for batch in self.earlier:
            if batch.last_sequence == last_sequence and self._first(last_sequence, batch.offset_delta) == base_sequence:
                return batch
        return None

    def take_epoch(self, producer_epoch: int) -> None:
        """Enter an epoch; batches of another epoch are forgotten."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.last_sequence, self.last_offset, self.earlier = NO_SEQUENCE, NO_OFFSET, ()

    def add_batch(self, last_sequence: int, last_offset: int, offset_delta: int, max_timestamp: int) -> None:
        """Remember a batch of the present epoch; the sixth oldest drops out."""
        if self.last_offset != NO_OFFSET and self.retained_max > 1:
            self.earlier = (*self.earlier, self._latest())[1 - self.retained_max :]
        self.last_sequence, self.last_offset, self.offset_delta = last_sequence, last_offset, offset_delta
        self.max_timestamp = self.last_timestamp = max_timestamp

    def _latest(self) -> RetainedBatch:
        return RetainedBatch(self.last_sequence, self.last_offset, self.offset_delta, self.max_timestamp)

    def _first(self, last_sequence: int, offset_delta: int) -> int:
        """Return where a batch begins that ends at a sequence."""
        return decrement_sequence(last_sequence, offset_delta)
