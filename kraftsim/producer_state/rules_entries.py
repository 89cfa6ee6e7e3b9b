"""What a partition keeps of a producer: its entry with the last batches, sequence arithmetic, the
result of a check, and the snapshot file.

Source: KIP-98, KIP-360, KIP-854; org.apache.kafka.storage.internals.log.{ProducerStateEntry,
BatchMetadata, ProducerStateManager}.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import ClassVar, Final
from zlib import crc32

import msgspec

from kraftsim.core.decision import Refusal
from protocol.errors import ErrorCode
from protocol.storage.producer_snapshot import NO_TRANSACTION, ROW, ProducerRow, build_packed_rows

# --------------------------------------------------------------------------------------------------
# Sequence numbers of batches: 0 to 2^31-1, then 0 again
#
# Clients wrap, so the broker must wrap alike; arithmetic without the wrap-around was KAFKA-7692.
# Source: DefaultRecordBatch.incrementSequence and decrementSequence, ProducerAppendInfo.inSequence.

LAST_SEQUENCE = 2**31 - 1
NO_SEQUENCE = -1


def increment_sequence(sequence: int, by: int) -> int:
    """Return the sequence number `by` steps ahead; by is at most LAST_SEQUENCE."""
    return sequence + by if sequence <= LAST_SEQUENCE - by else by - (LAST_SEQUENCE - sequence) - 1


def decrement_sequence(sequence: int, by: int) -> int:
    """Return the sequence number `by` steps back; by is at most LAST_SEQUENCE."""
    return sequence - by if sequence >= by else LAST_SEQUENCE - (by - sequence) + 1


def sequences_between(first: int, following: int) -> int:
    """Return the number of sequence numbers from `first` up to `following`, exclusive."""
    return (following - first) % (LAST_SEQUENCE + 1)


def is_next_sequence(last_sequence: int, base_sequence: int) -> bool:
    """Return whether a batch that starts at base_sequence follows a batch that ended at
    last_sequence (NO_SEQUENCE: nothing came before).
    """
    return base_sequence == last_sequence + 1 or (
        base_sequence == 0 and last_sequence == LAST_SEQUENCE
    )


# --------------------------------------------------------------------------------------------------
# One producer: its epoch and its last five batches
#
# Five, as a producer may have five requests in flight: any of them may be retried and must be
# recognized as a duplicate. There are many producers, and most of them write rarely: the latest
# batch is inline, and the rest is allocated with the second batch.

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
    """Mutable, and changed only by the manager when a batch is in the log.

    `retained_max`: the number of retained batches.
    """

    retained_max: ClassVar[int] = RETAINED_BATCHES_MAX

    producer_id: int
    producer_epoch: int
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """The epoch of the coordinator that wrote the last marker; a lower one is fenced (KIP-98)."""
    first_transaction_offset: int | None = None
    """The first offset of the producer's open transaction in this partition; None if there is
    none.
    """
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
        return (
            *(RetainedBatch(*numbers) for numbers in PACKED.iter_unpack(self.earlier)),
            self._latest(),
        )

    def retained_copy(self, base_sequence: int, last_sequence: int) -> RetainedBatch | None:
        """Return the retained batch with exactly these sequences, if there is one."""
        if (
            last_sequence == self.last_sequence
            and self.last_offset != NO_OFFSET
            and base_sequence == self._first(last_sequence, self.offset_delta)
        ):
            return self._latest()
        for numbers in PACKED.iter_unpack(self.earlier):
            if (
                numbers[0] == last_sequence
                and self._first(last_sequence, numbers[2]) == base_sequence
            ):
                return RetainedBatch(*numbers)
        return None

    def take_epoch(self, producer_epoch: int) -> None:
        """Set the epoch; batches of another epoch are dropped."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.last_sequence, self.last_offset, self.earlier = NO_SEQUENCE, NO_OFFSET, b""

    def add_batch(
        self, last_sequence: int, last_offset: int, offset_delta: int, max_timestamp: int
    ) -> None:
        """Retain a batch of the current epoch; the sixth oldest is dropped."""
        if self.last_offset != NO_OFFSET and self.retained_max > 1:
            packed = PACKED.pack(
                self.last_sequence, self.last_offset, self.offset_delta, self.max_timestamp
            )
            self.earlier = (self.earlier + packed)[PACKED.size * (1 - self.retained_max) :]
        self.last_sequence, self.last_offset, self.offset_delta = (
            last_sequence,
            last_offset,
            offset_delta,
        )
        self.max_timestamp = self.last_timestamp = max_timestamp

    def _latest(self) -> RetainedBatch:
        return RetainedBatch(
            self.last_sequence, self.last_offset, self.offset_delta, self.max_timestamp
        )

    def _first(self, last_sequence: int, offset_delta: int) -> int:
        """Return the first sequence of a batch by its last one."""
        return decrement_sequence(last_sequence, offset_delta)


# --------------------------------------------------------------------------------------------------
# A digest of a partition's producer state, by which events compare replicas


def producer_digest(entries: Iterable[ProducerStateEntry]) -> str:
    """Return the digest of each producer's epoch, latest batch and open transaction, in the order
    of their ids.
    """
    rows = sorted(
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_offset,
            each.first_transaction_offset,
        )
        for each in entries
    )
    return f"{len(rows)}-{crc32(repr(rows).encode()):08x}"


# --------------------------------------------------------------------------------------------------
# The result of checking a client's batch
#
# Source: UnifiedLog.analyzeAndValidateProducerState.


@dataclass(frozen=True, slots=True)
class ProducerAppend:
    """The batch is new and in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The batch is already in the log: acknowledge it again with these values, and write nothing.

    Both offsets are inclusive. The append time is the batch's maximum timestamp, even where a
    normal append returns -1.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    error: ErrorCode = ErrorCode.NONE
    """The error returned to the producer: none, except in a variant of KIP-758."""


APPEND: Final = ProducerAppend()

CheckResult = ProducerAppend | Duplicate | Refusal


# --------------------------------------------------------------------------------------------------
# Release differences, selected by traits in `kraftsim/server/parts.py`

DAY_MS = 86_400_000
SEQUENCES_BEHIND_DEFAULT = 10_000_000
SEQUENCES_BEHIND_MAX = 2**30
"""With a larger value, sequences behind and ahead of the latest batch would be ambiguous."""


class UnknownProducer(Enum):
    """How a partition handles the first batch of an unknown producer id if it does not start at
    sequence 0.
    """

    ACCEPTED = "accepted"
    """Since 2.5 (KIP-360): accepted, as retention may have removed the state."""
    UNKNOWN_PRODUCER_ID = "unknown producer id"
    """1.0 to 2.4: error 59."""
    OUT_OF_ORDER = "out of order"
    """0.11: error 45."""
    OUT_OF_ORDER_IN_NEW_LOGS = "out of order in new logs"
    """After 4.4 (KAFKA-15591): error 45 from a log that never had a record; otherwise accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStatePolicy:
    """`expiration_ms`: producer.id.expiration.ms.

    `verifies_transactions`: transaction.partition.verification.enable (KIP-890, since 3.6).

    `transactions_have_epochs`: an open transaction with another producer epoch is a different one
    (KIP-890 part 2, since 4.0). `checks_epochs_first`: a past epoch is reported before an outdated
    verification (KAFKA-19690, since 4.0). `sequences_behind`:
    max.in.flight.sequence.number.per.connection (KIP-758); not used by Kafka's own rules.
    """

    unknown_producer: UnknownProducer = UnknownProducer.ACCEPTED
    expiration_ms: int = DAY_MS
    verifies_transactions: bool = True
    transactions_have_epochs: bool = False
    checks_epochs_first: bool = False
    sequences_behind: int = SEQUENCES_BEHIND_DEFAULT
    keeps_deleted: bool = True
    """Whether a producer is retained when its records are deleted (KAFKA-7190, since 2.4; before:
    removed with the last of them).
    """


# --------------------------------------------------------------------------------------------------
# Snapshots: for every producer its epochs, its open transaction and its latest batch
#
# So a restarted broker retains one batch per producer: a retry of an older one is out of order, as
# for Apache Kafka.


def snapshot_rows(known: Iterable[ProducerStateEntry]) -> Iterator[ProducerRow]:
    """Yield the row of each producer."""
    for entry in known:
        first_transaction_offset = entry.first_transaction_offset
        yield ProducerRow(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            0 if entry.last_offset == NO_OFFSET else entry.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            NO_TRANSACTION if first_transaction_offset is None else first_transaction_offset,
        )


def snapshot_file(known: Iterable[ProducerStateEntry]) -> bytes:
    """Return the file with the same rows: it is written with every segment, for up to a hundred
    thousand producers, so no row objects are created.
    """
    pack = ROW.pack
    return build_packed_rows(
        [
            pack(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_offset,
                0 if entry.last_offset == NO_OFFSET else entry.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                NO_TRANSACTION
                if entry.first_transaction_offset is None
                else entry.first_transaction_offset,
            )
            for entry in known
        ]
    )


def state_entries(
    written: Iterable[ProducerRow], entry_class: type[ProducerStateEntry] = ProducerStateEntry
) -> Iterator[ProducerStateEntry]:
    """Yield the entry of each row, as instances of `entry_class`."""
    for each in written:
        entry = entry_class(each.producer_id, each.producer_epoch)
        if each.last_offset >= 0:
            entry.add_batch(each.last_sequence, each.last_offset, each.offset_delta, each.timestamp)
        entry.last_timestamp = each.timestamp
        entry.coordinator_epoch = each.coordinator_epoch
        if each.current_transaction_first_offset >= 0:
            entry.first_transaction_offset = each.current_transaction_first_offset
        yield entry
