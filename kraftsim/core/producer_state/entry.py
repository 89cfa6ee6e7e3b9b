"""The state of one producer in one partition: its epoch and its last five batches.

Five, as a producer may have five requests in flight: any of them may be retried and must be recognized as a duplicate.
There are many producers, and most of them write rarely: the latest batch is inline, and the rest is allocated with the
second batch.
Source: org.apache.kafka.storage.internals.log.ProducerStateEntry, BatchMetadata.
"""

from struct import Struct
from typing import ClassVar

import msgspec

from kraftsim.core.producer_state.sequence import NO_SEQUENCE, decrement_sequence

RETAINED_BATCHES_MAX = 5
"""NUM_BATCHES_TO_RETAIN; one in 0.11, five since 1.0."""

NO_PRODUCER_EPOCH = -1
NO_COORDINATOR_EPOCH = -1
NO_TIMESTAMP = -1
NO_OFFSET = -1
PACKED = Struct("<iqiq")
"""A packed batch, in the order of the fields of `RetainedBatch`: 24 bytes."""


class RetainedBatch(msgspec.Struct, gc=False, eq=False):
    """A batch that is in the log; both ends of each range are inclusive."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    max_timestamp: int

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record."""
        return decrement_sequence(self.last_sequence, self.offset_delta)


class ProducerStateEntry(msgspec.Struct, gc=False, eq=False):
    """Mutable, and changed only by the manager when a batch is in the log. `retained_max`: the number of retained batches."""

    retained_max: ClassVar[int] = RETAINED_BATCHES_MAX

    producer_id: int
    producer_epoch: int
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """The epoch of the coordinator that wrote the last marker; a lower one is fenced (KIP-98)."""
    first_transaction_offset: int | None = None
    """The first offset of the producer's open transaction in this partition; None if there is none."""
    last_sequence: int = NO_SEQUENCE
    """Sequence of the last record appended; NO_SEQUENCE if no batch of this epoch is retained."""
    last_offset: int = NO_OFFSET
    """Its offset; NO_OFFSET if no batch of this epoch is retained."""
    offset_delta: int = 0
    max_timestamp: int = NO_TIMESTAMP
    """Offset delta and maximum timestamp of the latest batch."""
    earlier: bytes = b""
    """The batches before the latest one, the oldest first, packed into one object."""

    @property
    def retained(self) -> tuple[RetainedBatch, ...]:
        """All retained batches, the oldest first."""
        if self.last_offset == NO_OFFSET:
            return ()
        return (*(RetainedBatch(*numbers) for numbers in PACKED.iter_unpack(self.earlier)), self._latest())

    def retained_copy(self, base_sequence: int, last_sequence: int) -> RetainedBatch | None:
        """Return the retained batch with exactly these sequences, if there is one."""
        if last_sequence == self.last_sequence and self.last_offset != NO_OFFSET and base_sequence == self._first(last_sequence, self.offset_delta):
            return self._latest()
        for numbers in PACKED.iter_unpack(self.earlier):
            if numbers[0] == last_sequence and self._first(last_sequence, numbers[2]) == base_sequence:
                return RetainedBatch(*numbers)
        return None

    def take_epoch(self, producer_epoch: int) -> None:
        """Set the epoch; batches of another epoch are dropped."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.last_sequence, self.last_offset, self.earlier = NO_SEQUENCE, NO_OFFSET, b""

    def add_batch(self, last_sequence: int, last_offset: int, offset_delta: int, max_timestamp: int) -> None:
        """Retain a batch of the current epoch; the sixth oldest is dropped."""
        if self.last_offset != NO_OFFSET and self.retained_max > 1:
            packed = PACKED.pack(self.last_sequence, self.last_offset, self.offset_delta, self.max_timestamp)
            self.earlier = (self.earlier + packed)[PACKED.size * (1 - self.retained_max) :]
        self.last_sequence, self.last_offset, self.offset_delta = last_sequence, last_offset, offset_delta
        self.max_timestamp = self.last_timestamp = max_timestamp

    def _latest(self) -> RetainedBatch:
        return RetainedBatch(self.last_sequence, self.last_offset, self.offset_delta, self.max_timestamp)

    def _first(self, last_sequence: int, offset_delta: int) -> int:
        """Return the first sequence of a batch by its last one."""
        return decrement_sequence(last_sequence, offset_delta)
