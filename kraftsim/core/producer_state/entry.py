"""What is remembered of one producer in one partition: its epoch and its last five batches.

Five, because a producer may have five requests in flight: any of them may come again and must be recognised. Producers are many, and most of them
write seldom: the latest batch lies in the entry itself, and what costs more than that is there once a second one has come.
Source: org.apache.kafka.storage.internals.log.ProducerStateEntry, BatchMetadata.
"""

from struct import Struct
from typing import ClassVar

import msgspec

from kraftsim.core.producer_state.sequence import NO_SEQUENCE, decrement_sequence

RETAINED_BATCHES_MAX = 5
"""NUM_BATCHES_TO_RETAIN; one in 0.11, five ever since."""

NO_PRODUCER_EPOCH = -1
NO_COORDINATOR_EPOCH = -1
NO_TIMESTAMP = -1
NO_OFFSET = -1
PACKED = Struct("<iqiq")
"""The numbers of a batch, in the order of the fields of `RetainedBatch`: 24 bytes."""


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
    earlier: bytes = b""
    """The batches before the latest one, the oldest first, packed: one object for all of them, whatever they are."""

    @property
    def retained(self) -> tuple[RetainedBatch, ...]:
        """All batches that are remembered, the oldest first."""
        if self.last_offset == NO_OFFSET:
            return ()
        return (*(RetainedBatch(*numbers) for numbers in PACKED.iter_unpack(self.earlier)), self._latest())

    def retained_copy(self, base_sequence: int, last_sequence: int) -> RetainedBatch | None:
        """Return the remembered batch with exactly these sequences, if there is one."""
        if last_sequence == self.last_sequence and self.last_offset != NO_OFFSET and base_sequence == self._first(last_sequence, self.offset_delta):
            return self._latest()
        for numbers in PACKED.iter_unpack(self.earlier):
            if numbers[0] == last_sequence and self._first(last_sequence, numbers[2]) == base_sequence:
                return RetainedBatch(*numbers)
        return None

    def take_epoch(self, producer_epoch: int) -> None:
        """Enter an epoch; batches of another epoch are forgotten."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.last_sequence, self.last_offset, self.earlier = NO_SEQUENCE, NO_OFFSET, b""

    def add_batch(self, last_sequence: int, last_offset: int, offset_delta: int, max_timestamp: int) -> None:
        """Remember a batch of the present epoch; the sixth oldest drops out."""
        if self.last_offset != NO_OFFSET and self.retained_max > 1:
            packed = PACKED.pack(self.last_sequence, self.last_offset, self.offset_delta, self.max_timestamp)
            self.earlier = (self.earlier + packed)[PACKED.size * (1 - self.retained_max) :]
        self.last_sequence, self.last_offset, self.offset_delta = last_sequence, last_offset, offset_delta
        self.max_timestamp = self.last_timestamp = max_timestamp

    def _latest(self) -> RetainedBatch:
        return RetainedBatch(self.last_sequence, self.last_offset, self.offset_delta, self.max_timestamp)

    def _first(self, last_sequence: int, offset_delta: int) -> int:
        """Return where a batch begins that ends at a sequence."""
        return decrement_sequence(last_sequence, offset_delta)
