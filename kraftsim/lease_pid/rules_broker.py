"""The server's side of lease_pid: the allocation of ids, what a partition knows of its producers,
the check of a message, snapshots, and leases.

The draft contradicts itself and leaves gaps; every reading that the text permits has a name in
`Readings`.
Source: the lease_pid draft, compared with KIP-98.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

import msgspec

from kraftsim.core.decision import Refusal
from kraftsim.producer_state.rules_entries import (
    decrement_sequence,
    increment_sequence,
    is_next_sequence,
)
from protocol.errors import ErrorCode
from protocol.lease_pid.messages import ASKS_FOR_ONE, NOT_IDEMPOTENT, LeasedMessage
from protocol.lease_pid.stored import StoredPartition, StoredProducer, StoredSnapshot
from protocol.records.batches import SEQUENCES

# --------------------------------------------------------------------------------------------------
# Ids: one counter in ZooKeeper, from which servers take a hundred at a time
#
# The counter only grows; an id is the counter truncated to `id_bits` bits, without 0 (not
# idempotent) and without all ones (-1, a request for a new id). So an id repeats after four
# billion. Ids that a server has taken and not allocated are lost when it stops.


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberBlock:
    """The counter values first_number .. next_number - 1."""

    first_number: int
    next_number: int


def id_of(number: int, id_bits: int) -> int:
    """Return the id of a counter value."""
    return 1 + number % ((1 << id_bits) - 2)


class IdReserve:
    """The block of one server. `claim` returns the next id, or None: another block is needed."""

    def __init__(self, id_bits: int = 32) -> None:
        self._id_bits = id_bits
        self._next_number = 0
        self._end_number = 0
        self.given_count = 0

    @property
    def left(self) -> int:
        """The number of ids that are left without another block; lost when the server stops."""
        return self._end_number - self._next_number

    def claim(self) -> int | None:
        """Allocate the next id."""
        if not self.left:
            return None
        self._next_number += 1
        self.given_count += 1
        return id_of(self._next_number - 1, self._id_bits)

    def take(self, block: NumberBlock) -> None:
        """Continue with another block; ids left of the former one are lost."""
        assert block.first_number >= self._end_number, "the counter only grows"
        self._next_number, self._end_number = block.first_number, block.next_number


# --------------------------------------------------------------------------------------------------
# The readings of the draft
#
# The first of each keeps the draft's guarantees; the others are for comparison.

DAY_MS: Final = 86_400_000
IDS_PER_BLOCK: Final = 100


class Lookup(Enum):
    """The representation of a partition's producers."""

    REPAIRED_LIST = "repaired list"
    """Ordered by id, with insertion in order; the smallest ids expire first, one by one, as long as
    they are due.
    """
    LITERAL_LIST = "literal list"
    """Appended regardless of id; searched as if ordered; if id N expires, all above N expire, as
    the draft says.
    """
    TABLE = "table"
    """Unordered."""


class CountsFrom(Enum):
    """The start of the expiry time."""

    LAST_SEEN = "last seen"
    """The last message: ids without messages expire."""
    FIRST_SEEN = "first seen"
    """The first message seen by a server: an active producer expires too."""


class NextGeneration(Enum):
    """The sequence number of the first message of the next generation."""

    CONTINUES = "continues"
    """The next one, as in the lease."""
    BEGINS_AT_ZERO = "begins at zero"
    """0, as in Kafka after an epoch bump."""


class SequenceOfLease(Enum):
    """The meaning of a lease's sequence number."""

    NEXT = "next"
    """The next one that the partition accepts: a new producer starts with 0."""
    HIGH_WATERMARK = "high watermark"
    """The last one of the partition: a new producer starts with 1, one above the 0 of its lease."""


class AnswerToRepeat(Enum):
    """The response to a message that is already in the log."""

    DUPLICATE = "46"
    SUCCESS = "0"
    OUT_OF_ORDER = "45"


class AnswerToUnknown(Enum):
    """The response to an unknown producer that does not start with 0: its lease has expired, or the
    state was lost.
    """

    UNKNOWN = "59"
    OUT_OF_ORDER = "45"
    TAKEN = "taken"
    """Like Kafka brokers since 2.5."""


class AskedExpiry(Enum):
    """How a server uses the expire_ms of a request."""

    IGNORED = "ignored"
    """One period for the cluster, as the draft proposes."""
    CAPPED = "capped"
    HONOURED = "honoured"


class EndsWith(Enum):
    """What ends a lease."""

    DISUSE = "disuse"
    CONNECTION = "connection"
    """Rejected by the draft: ids are released when their connection closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """The readings of one server.

    `expire_ms`: unused ids expire after this time. `id_bits` below 32 makes ids repeat soon.
    """

    lookup: Lookup = Lookup.REPAIRED_LIST
    counts_from: CountsFrom = CountsFrom.LAST_SEEN
    next_generation: NextGeneration = NextGeneration.CONTINUES
    sequence_of_lease: SequenceOfLease = SequenceOfLease.NEXT
    repeat: AnswerToRepeat = AnswerToRepeat.DUPLICATE
    unknown: AnswerToUnknown = AnswerToUnknown.UNKNOWN
    asked_expiry: AskedExpiry = AskedExpiry.IGNORED
    ends_with: EndsWith = EndsWith.DISUSE
    expire_ms: int = DAY_MS
    ids_per_block: int = IDS_PER_BLOCK
    id_bits: int = 32

    @property
    def first_sequence(self) -> int:
        """Return the sequence number of the first message of a new producer."""
        return 0 if self.sequence_of_lease is SequenceOfLease.NEXT else 1


# --------------------------------------------------------------------------------------------------
# The producers of a partition, in three representations: an ordered list, the list that the draft
# describes literally, and a hash table
#
# A list with new producers appended at one end and expired ones removed from the other supports
# binary search if ids arrive in order; but they do not. A server allocates 101 to 105 in order, and
# 105 may write first; a new leader continues with a block of smaller ids. The repaired list inserts
# each entry in order. The literal rule, that all ids above an expired one expire too, removes the
# youngest: as ids are allocated upward, the smaller ones are older.


class LeasedProducerEntry(msgspec.Struct, gc=False, eq=True):
    """The state of one producer in one partition.

    Times are of the wall clock of the server that recorded them.
    """

    producer_id: int
    generation: int
    sequence_high_watermark: int
    first_seen_ms: int
    last_seen_ms: int


IsDue = Callable[[LeasedProducerEntry], bool]


class LeaseTable(Protocol):
    """A lookup of producers by id."""

    def get(self, producer_id: int) -> LeasedProducerEntry | None:
        """Return the entry of a producer."""
        ...

    def add(self, entry: LeasedProducerEntry) -> None:
        """Add a producer that `get` did not find."""
        ...

    def expire(self, is_due: IsDue) -> list[int]:
        """Remove expired producers, as far as the representation allows it; return their ids."""
        ...

    def entries(self) -> Iterator[LeasedProducerEntry]:
        """Yield all entries, in a deterministic order."""
        ...

    def __len__(self) -> int:
        """Return the number of entries."""
        ...


class RepairedList:
    """Ordered by id.

    Expires from the front; an entry that is not due keeps all behind it, which costs memory only.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._entries: list[LeasedProducerEntry] = []

    def get(self, producer_id: int) -> LeasedProducerEntry | None:
        """Binary search."""
        place = bisect_left(self._ids, producer_id)
        return (
            self._entries[place]
            if place < len(self._ids) and self._ids[place] == producer_id
            else None
        )

    def add(self, entry: LeasedProducerEntry) -> None:
        """Insert in order: mostly at the end."""
        place = bisect_left(self._ids, entry.producer_id)
        self._ids.insert(place, entry.producer_id)
        self._entries.insert(place, entry)

    def expire(self, is_due: IsDue) -> list[int]:
        """Remove the smallest ids, up to the first that is not due."""
        count = 0
        while count < len(self._entries) and is_due(self._entries[count]):
            count += 1
        gone = self._ids[:count]
        del self._ids[:count], self._entries[:count]
        return gone

    def entries(self) -> Iterator[LeasedProducerEntry]:
        """Yield them by id."""
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class LiteralList(RepairedList):
    """Literal: appended in the order of arrival, still searched by bisection, and one expired entry
    removes all above it.
    """

    def add(self, entry: LeasedProducerEntry) -> None:
        """Append it."""
        self._ids.append(entry.producer_id)
        self._entries.append(entry)

    def expire(self, is_due: IsDue) -> list[int]:
        """Remove the first that is due, and all behind it."""
        place = next(
            (number for number, entry in enumerate(self._entries) if is_due(entry)),
            len(self._entries),
        )
        gone = self._ids[place:]
        del self._ids[place:], self._entries[place:]
        return gone


class LeaseRows:
    """A hash table by id."""

    def __init__(self) -> None:
        self._entries: dict[int, LeasedProducerEntry] = {}

    def get(self, producer_id: int) -> LeasedProducerEntry | None:
        """Look it up."""
        return self._entries.get(producer_id)

    def add(self, entry: LeasedProducerEntry) -> None:
        """Add it."""
        self._entries[entry.producer_id] = entry

    def expire(self, is_due: IsDue) -> list[int]:
        """Check all entries."""
        gone = [entry.producer_id for entry in self._entries.values() if is_due(entry)]
        for producer_id in gone:
            del self._entries[producer_id]
        return gone

    def entries(self) -> Iterator[LeasedProducerEntry]:
        """Yield them in order of insertion."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def table_of(lookup: Lookup) -> LeaseTable:
    """Create an empty table of a kind."""
    match lookup:
        case Lookup.REPAIRED_LIST:
            return RepairedList()
        case Lookup.LITERAL_LIST:
            return LiteralList()
        case Lookup.TABLE:
            return LeaseRows()


# --------------------------------------------------------------------------------------------------
# The check of a message: next, duplicate, or refused
#
# A message is appended if its sequence number is one above the last one and its generation is the
# known one or the next. Leases change nothing here: the state follows from the log alone, so that
# followers and recovering servers have the same.

HALF_OF_SEQUENCES: Final = SEQUENCES // 2
"""Sequence numbers up to this far behind the last one were used, those ahead are new; with a larger
range they would be ambiguous.
"""


@dataclass(frozen=True, slots=True)
class Next:
    """The message is the next one: append it."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """It is already in the log; write nothing. `error` is returned to its producer."""

    error: ErrorCode


NEXT: Final = Next()
MessageCheck = Next | Repeated | Refusal
REPEAT_ERRORS: Final = {
    AnswerToRepeat.DUPLICATE: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    AnswerToRepeat.SUCCESS: ErrorCode.NONE,
    AnswerToRepeat.OUT_OF_ORDER: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


def generation_after(generation: int) -> int:
    """Return the next generation; the first one is random, so the largest wraps."""
    return increment_sequence(generation, 1)


class LeasedPartition:
    """`check` a message, `apply` it once it is in the log, `expire` periodically."""

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self._table = table_of(readings.lookup)

    def __len__(self) -> int:
        return len(self._table)

    def entries(self) -> list[LeasedProducerEntry]:
        """Return all entries, by id."""
        return sorted(self._table.entries(), key=lambda entry: entry.producer_id)

    def known(self, producer_id: int) -> LeasedProducerEntry | None:
        """Return the entry of a producer."""
        return self._table.get(producer_id)

    def check(self, message: LeasedMessage) -> MessageCheck:
        """Check a message without changing the state.

        Errors are 45, 46, 47 or 59, depending on the readings.
        """
        if message.producer_id == NOT_IDEMPOTENT:
            return NEXT
        entry = self._table.get(message.producer_id)
        if entry is None:
            return self._check_unknown(message)
        if message.generation == entry.generation:
            return self._check_sequence(entry, message)
        if message.generation == generation_after(entry.generation):
            return self._check_next_generation(entry, message)
        why = (
            f"producer {message.producer_id}: generation {message.generation}, the current one "
            f"is {entry.generation}"
        )
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, why)

    def apply(self, message: LeasedMessage, now_ms: int) -> None:
        """Record a message that is in the log, without checking it."""
        if message.producer_id == NOT_IDEMPOTENT:
            return
        entry = self._table.get(message.producer_id)
        if entry is None:
            self._table.add(
                LeasedProducerEntry(
                    message.producer_id, message.generation, message.sequence_number, now_ms, now_ms
                )
            )
        else:
            entry.generation, entry.sequence_high_watermark = (
                message.generation,
                message.sequence_number,
            )
            entry.last_seen_ms = max(now_ms, entry.last_seen_ms)

    def restore(self, entries: Iterable[LeasedProducerEntry]) -> None:
        """Replace the state by that of a snapshot."""
        self._table = table_of(self.readings.lookup)
        for entry in entries:
            self._table.add(entry)

    def forget(self, producer_ids: Collection[int]) -> list[int]:
        """Remove some producers, in use or not; return those that were known."""
        gone = [entry.producer_id for entry in self.entries() if entry.producer_id in producer_ids]
        if gone:
            self.restore(
                [entry for entry in self.entries() if entry.producer_id not in producer_ids]
            )
        return gone

    def expire(self, now_ms: int) -> list[int]:
        """Remove producers that were not seen for the expiry time, by this server's wall clock;
        return their ids.
        """
        return self._table.expire(lambda entry: self._is_due(entry, now_ms))

    def _is_due(self, entry: LeasedProducerEntry, now_ms: int) -> bool:
        seen_ms = (
            entry.first_seen_ms
            if self.readings.counts_from is CountsFrom.FIRST_SEEN
            else entry.last_seen_ms
        )
        return now_ms - seen_ms >= self.readings.expire_ms

    def _check_unknown(self, message: LeasedMessage) -> MessageCheck:
        if (
            message.sequence_number == self.readings.first_sequence
            or self.readings.unknown is AnswerToUnknown.TAKEN
        ):
            return NEXT
        why = (
            f"producer {message.producer_id} is unknown and starts with sequence "
            f"{message.sequence_number}"
        )
        is_59 = self.readings.unknown is AnswerToUnknown.UNKNOWN
        return Refusal(
            ErrorCode.UNKNOWN_PRODUCER_ID if is_59 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why
        )

    def _check_sequence(self, entry: LeasedProducerEntry, message: LeasedMessage) -> MessageCheck:
        mark = entry.sequence_high_watermark
        if is_next_sequence(mark, message.sequence_number):
            return NEXT
        if (mark - message.sequence_number) % SEQUENCES < HALF_OF_SEQUENCES:
            return Repeated(REPEAT_ERRORS[self.readings.repeat])
        return _out_of_order(message, mark)

    def _check_next_generation(
        self, entry: LeasedProducerEntry, message: LeasedMessage
    ) -> MessageCheck:
        """Check the first message of the next generation.

        A sequence behind the last one is no duplicate: another producer has written since the
        lease.
        """
        begins_at_zero = self.readings.next_generation is NextGeneration.BEGINS_AT_ZERO
        before_first = decrement_sequence(self.readings.first_sequence, 1)
        mark = before_first if begins_at_zero else entry.sequence_high_watermark
        return (
            NEXT
            if is_next_sequence(mark, message.sequence_number)
            else _out_of_order(message, mark)
        )


def _out_of_order(message: LeasedMessage, mark: int) -> Refusal:
    why = f"producer {message.producer_id}: sequence {message.sequence_number} after {mark}"
    return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)


# --------------------------------------------------------------------------------------------------
# One snapshot for all partitions of a server, with the vector of offsets up to which they are
# recorded
#
# After a crash each log is replayed from its offset in the vector. A log that ends before this
# offset was truncated meanwhile: then the partition's part of the snapshot is ignored, and its log
# is replayed from the beginning.

Where = tuple[str, int]
"""Topic and partition."""


def snapshot_of(partitions: Mapping[Where, tuple[LeasedPartition, int]]) -> StoredSnapshot:
    """Return the state of all partitions, each with its offset (exclusive)."""
    snapshot = StoredSnapshot()
    for index, ((topic, partition), (leased, next_offset)) in enumerate(partitions.items()):
        snapshot.partitions.append(
            StoredPartition(topic=topic, partition=partition, next_offset=next_offset)
        )
        for entry in leased.entries():
            snapshot.producers.append(
                StoredProducer(
                    partition_index=index,
                    producer_id=entry.producer_id,
                    generation=entry.generation,
                    sequence_high_watermark=entry.sequence_high_watermark,
                    first_seen_ms=entry.first_seen_ms,
                    last_seen_ms=entry.last_seen_ms,
                )
            )
    return snapshot


def restore(
    snapshot: StoredSnapshot | None, where: Where, leased: LeasedPartition, end_offset: int
) -> int:
    """Restore a partition from the snapshot; return the offset from which its log has to be
    replayed.
    """
    leased.restore(())
    for index, stored in enumerate(snapshot.partitions if snapshot is not None else ()):
        if (stored.topic, stored.partition) == where and stored.next_offset <= end_offset:
            assert snapshot is not None, "it has this partition"
            leased.restore(
                LeasedProducerEntry(
                    producer.producer_id,
                    producer.generation,
                    producer.sequence_high_watermark,
                    producer.first_seen_ms,
                    producer.last_seen_ms,
                )
                for producer in snapshot.producers
                if producer.partition_index == index
            )
            return stored.next_offset
    return 0


# --------------------------------------------------------------------------------------------------
# The lease_pid request on the partition leader
#
# It reads the partition's producer state, and does not change it. As a lease is not recorded, two
# requests for the same id before either producer has written get the same generation: neither
# fences the other.


class NeedsIds(Enum):
    """The reserve is empty: take another block from the counter, then retry."""

    NEEDS_IDS = "needs ids"


NEEDS_IDS = NeedsIds.NEEDS_IDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The lease response.

    `sequence_number` is the next one of the partition, or (a reading) its last one.
    """

    producer_id: int
    generation: int
    sequence_number: int
    expire_ms: int


def decide_lease(
    partition: LeasedPartition,
    reserve: IdReserve,
    *,
    producer_id: int,
    expire_ms: int,
    is_check: bool,
    drawn_generation: Callable[[], int],
) -> Lease | Refusal | NeedsIds:
    """Grant a lease of a new id, or of a known one; only the reserve changes.

    Fails with UNKNOWN_PRODUCER_ID for an id without messages, or an expired one, and
    INVALID_REQUEST for id 0.
    """
    readings = partition.readings
    granted_ms = granted_expiry(readings, expire_ms)
    if producer_id == NOT_IDEMPOTENT:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "id 0 is for messages without sequence numbers and cannot be leased",
        )
    if producer_id == ASKS_FOR_ONE:
        claimed = reserve.claim()
        if claimed is None:
            return NEEDS_IDS
        return Lease(
            producer_id=claimed,
            generation=drawn_generation(),
            sequence_number=0,
            expire_ms=granted_ms,
        )
    entry = partition.known(producer_id)
    if entry is None:
        return Refusal(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"producer {producer_id} has written nothing here, or has expired",
        )
    leased_sequence = _leased_sequence(readings, entry.sequence_high_watermark)
    if is_check:
        return Lease(
            producer_id=producer_id,
            generation=entry.generation,
            sequence_number=leased_sequence,
            expire_ms=granted_ms,
        )
    begins_at_zero = readings.next_generation is NextGeneration.BEGINS_AT_ZERO
    return Lease(
        producer_id=producer_id,
        generation=generation_after(entry.generation),
        sequence_number=0 if begins_at_zero else leased_sequence,
        expire_ms=granted_ms,
    )


def _leased_sequence(readings: Readings, high_watermark: int) -> int:
    if readings.sequence_of_lease is SequenceOfLease.HIGH_WATERMARK:
        return high_watermark
    return increment_sequence(high_watermark, 1)


def granted_expiry(readings: Readings, asked_ms: int) -> int:
    """Return the expiry of a lease; the requested one is used only by readings that allow it."""
    match readings.asked_expiry:
        case AskedExpiry.IGNORED:
            return readings.expire_ms
        case AskedExpiry.CAPPED:
            return min(asked_ms, readings.expire_ms) if asked_ms > 0 else readings.expire_ms
        case AskedExpiry.HONOURED:
            return asked_ms if asked_ms > 0 else readings.expire_ms
