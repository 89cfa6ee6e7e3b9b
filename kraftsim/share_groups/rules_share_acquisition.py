"""Acquisition: which of the records that a fetch has read a member gets, and for how long.

With batch_optimized (0) a member gets whole batches, and may get more records than it asked for, so
that a batch is not torn; with record_limit (1) never more (KIP-1206). What is acquired together has
one state; `batch_size` is how large such a piece should be.

Records that were delivered half as often as allowed are suspected: fetches get ever smaller pieces
of their batches, and in the end single records, so that one bad record does not take its
neighbours with it (KAFKA-19020 and later).

Source: KIP-932, KIP-1206; kafka.server.share.SharePartition.acquire.
"""

import heapq
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, Protocol

from msgspec import Struct

from kraftsim.share_groups.events import ShareRecordsAcquired
from kraftsim.share_groups.rules_share_partition import ShareLimits, SharePartition
from kraftsim.share_groups.rules_share_records import InFlightBatch, InFlightState, RecordState

THROTTLED_DELIVERIES_MIN: Final = 2
"""With a limit of this many deliveries or fewer the last delivery is not isolated."""

UNLIMITED: Final = -1


class AcquireMode(IntEnum):
    """How strictly the number of records is limited (ShareFetch v2)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class ReadBatch(Protocol):
    """What the rules see of a record batch."""

    base_offset: int
    last_offset: int
    is_control: bool
    producer_id: int

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction."""
        ...


class AbortedRange(Struct, frozen=True):
    """A transaction that was aborted: its producer and the offset of its first record."""

    producer_id: int
    first_offset: int


class AcquireRequest(Struct, frozen=True, kw_only=True):
    """A member, what it asks for, and what was read for it from `fetch_offset` on.

    `aborted` are the aborted transactions of what was read, for read_committed only;
    `abort_markers` the base offsets of the batches that are abort markers.
    """

    member_id: str
    mode: AcquireMode
    batch_size: int
    records_max: int
    fetch_offset: int
    batches: Sequence[ReadBatch]
    aborted: Sequence[AbortedRange] = ()
    abort_markers: frozenset[int] = frozenset()


class OffsetsAcquired(Struct, frozen=True):
    """Offsets that a member has acquired, both inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcquiredOffsets(Struct, frozen=True):
    """Everything that a member got of one share-partition; `count` is the number of offsets."""

    ranges: tuple[OffsetsAcquired, ...] = ()
    count: int = 0


NOTHING_ACQUIRED: Final = AcquiredOffsets()


def acquire(
    partition: SharePartition, asked: AcquireRequest, limits: ShareLimits, now_ms: int
) -> AcquiredOffsets:
    """Acquire records for a member; nothing if nothing is available, or too much is in flight."""
    if not partition.is_active or asked.records_max <= 0 or not asked.batches:
        return NOTHING_ACQUIRED
    acquired = _Acquisition(partition, asked, limits, now_ms).run()
    for each in acquired.ranges:
        partition.emit(
            ShareRecordsAcquired(
                **partition.names,
                state_epoch=partition.state_epoch,
                member_id=asked.member_id,
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_count=each.delivery_count,
                delivery_count_max=limits.delivery_count_max,
                is_counted=limits.counts_abandoned,
            )
        )
    if not asked.aborted or not acquired.ranges:
        return acquired
    return _without_aborted(partition, asked, acquired)


class _Acquisition:
    """One acquisition. `_left` is how many more records it may acquire."""

    def __init__(
        self, partition: SharePartition, asked: AcquireRequest, limits: ShareLimits, now_ms: int
    ) -> None:
        self._partition = partition
        self._asked = asked
        self._limits = limits
        self._deadline_ms = now_ms + limits.record_lock_duration_ms
        self._is_limit = asked.mode is AcquireMode.RECORD_LIMIT
        self._first_read = asked.batches[0].base_offset
        self._last_read = asked.batches[-1].last_offset
        self._found: list[OffsetsAcquired] = []
        self._count = 0
        self._left = 0

    def run(self) -> AcquiredOffsets:
        """Acquire what there is."""
        partition = self._partition
        if self._last_read < partition.start_offset:
            return NOTHING_ACQUIRED
        self._left = self._records_max()
        if self._left <= 0:
            return NOTHING_ACQUIRED
        first_offset = self._first_read
        partition.archive_stale(self._asked.fetch_offset, first_offset)
        floor = partition.cache.floor(first_offset)
        if floor is None:
            first_offset = max(first_offset, partition.start_offset)
        elif floor.last_offset >= first_offset:
            first_offset = floor.first_offset
        known = partition.cache.between(min(self._first_read, first_offset), self._last_read)
        if not known:
            self._acquire_new(first_offset, self._last_read)
        else:
            self._acquire_known(known, first_offset)
            if self._left > 0 and known[-1].last_offset < self._last_read:
                self._acquire_new(known[-1].last_offset + 1, self._last_read)
            if self._found:
                partition.pass_gaps(self._found[-1].last_offset + 1)
        return AcquiredOffsets(tuple(self._found), self._count)

    def _records_max(self) -> int:
        """Return how many records may be acquired.

        If too much is in flight only what is in flight can be, and the read ends there.
        """
        partition, asked = self._partition, self._asked
        free = min(asked.records_max, self._limits.record_locks_max - partition.in_flight_count)
        if free > 0 or asked.fetch_offset > partition.end_offset:
            return free
        self._last_read = min(self._last_read, partition.end_offset)
        return min(asked.records_max, partition.end_offset - asked.fetch_offset + 1)

    def _acquire_known(self, known: Sequence[InFlightBatch], first_offset: int) -> None:
        partition = self._partition
        gap_offset = first_offset
        for batch in known:
            if self._left <= 0:
                return
            if partition.active_gaps is not None:
                if gap_offset < batch.first_offset:
                    self._acquire_new(gap_offset, batch.first_offset - 1)
                gap_offset = batch.last_offset + 1
                if self._left <= 0:
                    return
            is_throttled = self._is_throttled(batch)
            if is_throttled and self._count:
                self._left = 0
                return
            is_covered = (
                self._first_read <= batch.first_offset and batch.last_offset <= self._last_read
            )
            whole = batch.whole
            if whole is not None and not whole.is_available:
                continue
            is_too_large = self._is_limit and batch.size > self._left
            if whole is None or not is_covered or is_too_large or is_throttled:
                batch.split()
                if self._acquire_offsets(batch) and is_throttled:
                    self._left = 0
                    return
            else:
                self._acquire_whole(batch, whole)

    def _acquire_whole(self, batch: InFlightBatch, whole: InFlightState) -> None:
        if self._take(whole):
            self._lock(batch.first_offset, batch.last_offset, whole)
            self._add(OffsetsAcquired(batch.first_offset, batch.last_offset, whole.delivery_count))

    def _take(self, state: InFlightState) -> bool:
        return state.try_change(
            RecordState.ACQUIRED,
            self._limits.delivery_count_max,
            self._asked.member_id,
            counted=1,
        )

    def _lock(self, first_offset: int, last_offset: int, state: InFlightState) -> None:
        state.lock_deadline_ms = self._deadline_ms
        self._partition.lock(first_offset, last_offset, self._deadline_ms)

    def _add(self, found: OffsetsAcquired) -> None:
        """Add a range; it continues the last one of its batch if it follows it."""
        size = found.last_offset - found.first_offset + 1
        self._found.append(found)
        self._count += size
        self._left -= size

    # Suspected records
    # ----------------------------------------------------------------------------------------------

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        if not self._limits.throttles_deliveries:
            return False
        counts = [
            state.delivery_count
            for first, last, state in batch.states()
            if state.is_available
            and (batch.whole is not None or self._first_read <= first <= self._last_read)
        ]
        return max(counts, default=0) >= self._limits.throttled_from

    def _acquire_offsets(self, batch: InFlightBatch) -> bool:
        """Acquire single offsets of a batch, and return whether there were any."""
        delivery_count_max = self._limits.delivery_count_max
        isolates = (
            self._limits.throttles_deliveries and delivery_count_max > THROTTLED_DELIVERIES_MIN
        )
        piece_max, left = UNLIMITED, self._left
        taken: list[OffsetsAcquired] = []
        for offset, state in batch.offsets.items():
            if offset < self._first_read or not state.is_available:
                continue
            if offset > self._last_read:
                break
            if isolates and state.delivery_count == delivery_count_max - 1 and taken:
                break
            excess = state.delivery_count - self._limits.throttled_from
            if self._limits.throttles_deliveries and excess >= 0 and piece_max == UNLIMITED:
                piece_max = max(1, len(batch.offsets) >> excess + 1)
            if not self._take(state):
                continue
            self._lock(offset, offset, state)
            taken.append(OffsetsAcquired(offset, offset, state.delivery_count))
            if isolates and state.delivery_count == delivery_count_max:
                break
            if (self._is_limit and len(taken) == left) or len(taken) == piece_max:
                break
        for each in joined(taken):
            self._add(each)
        return bool(taken)

    # New records
    # ----------------------------------------------------------------------------------------------

    def _acquire_new(self, first_offset: int, last_offset: int) -> None:
        """Acquire offsets that are not in flight yet, up to the end of the batch that contains the
        last one asked for.
        """
        partition = self._partition
        if not partition.cache:
            first_offset = max(first_offset, partition.end_offset)
        last = last_offset
        if self._left < last - first_offset + 1:
            last = self._end_of_batch(first_offset + self._left - 1)
            if partition.active_gaps is not None:
                last = min(last, last_offset)
        partition.skip_to(first_offset)
        added = self._add_batches(first_offset, last)
        if partition.cache.first.first_offset == first_offset:
            partition.begin_at(first_offset)
        partition.end_offset = max(partition.end_offset, last)
        if self._is_limit:
            last = added[0].last_offset
        partition.pass_gaps(last + 1)
        self._found += added
        self._count += last - first_offset + 1
        self._left -= last - first_offset + 1

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of the batch that contains an offset; the offset itself if none
        does.
        """
        holding: ReadBatch | None = None
        for batch in self._asked.batches:
            if offset < batch.base_offset:
                break
            holding = batch
        return offset if holding is None or offset > holding.last_offset else holding.last_offset

    def _add_batches(self, first_offset: int, last_offset: int) -> list[OffsetsAcquired]:
        """Put new offsets in flight, in pieces of `batch_size` that begin with a record batch."""
        if self._is_limit:
            return [self._add_limited(first_offset, last_offset)]
        pieces: list[OffsetsAcquired] = []
        batch_size = self._asked.batch_size
        if last_offset - first_offset + 1 > batch_size:
            for batch in self._asked.batches:
                if batch.base_offset > last_offset:
                    break
                if batch.base_offset - first_offset >= batch_size:
                    pieces.append(OffsetsAcquired(first_offset, batch.base_offset - 1, 1))
                    first_offset = batch.base_offset
        pieces.append(OffsetsAcquired(first_offset, last_offset, 1))
        for piece in pieces:
            self._put(piece.first_offset, piece.last_offset)
        return pieces

    def _add_limited(self, first_offset: int, last_offset: int) -> OffsetsAcquired:
        batch = self._put(first_offset, last_offset)
        if batch.size <= self._left:
            return OffsetsAcquired(first_offset, last_offset, 1)
        last_acquired_offset = first_offset + self._left - 1
        batch.split_acquired(last_acquired_offset)
        self._partition.may_have_available = True
        return OffsetsAcquired(first_offset, last_acquired_offset, 1)

    def _put(self, first_offset: int, last_offset: int) -> InFlightBatch:
        state = InFlightState(RecordState.ACQUIRED, 1, self._asked.member_id)
        batch = InFlightBatch(first_offset, last_offset, state)
        self._lock(first_offset, last_offset, state)
        self._partition.cache.put(batch)
        return batch


def joined(ranges: Sequence[OffsetsAcquired]) -> list[OffsetsAcquired]:
    """Return ranges with those joined that follow each other and have one delivery count."""
    found: list[OffsetsAcquired] = []
    for each in ranges:
        last = found[-1] if found else None
        if (
            last is not None
            and last.last_offset + 1 == each.first_offset
            and last.delivery_count == each.delivery_count
        ):
            found[-1] = OffsetsAcquired(last.first_offset, each.last_offset, last.delivery_count)
        else:
            found.append(each)
    return found


# --------------------------------------------------------------------------------------------------
# Aborted transactions (read_committed): their records are archived right after they were acquired,
# and are not delivered
#
# Source: SharePartition.filterAbortedTransactionalAcquiredRecords.


def _without_aborted(
    partition: SharePartition, asked: AcquireRequest, acquired: AcquiredOffsets
) -> AcquiredOffsets:
    aborted = aborted_batches(asked.batches, asked.aborted, asked.abort_markers)
    for batch in aborted:
        partition.archive(
            batch.base_offset,
            batch.last_offset + 1,
            partition.cache.overlapping(batch.base_offset, batch.last_offset),
            RecordState.ACQUIRED,
            is_counted=True,
        )
    ranges = _cut_out(acquired.ranges, aborted)
    count = sum(each.last_offset - each.first_offset + 1 for each in ranges)
    return AcquiredOffsets(tuple(ranges), count)


def aborted_batches(
    batches: Sequence[ReadBatch],
    aborted: Sequence[AbortedRange],
    abort_markers: frozenset[int],
) -> list[ReadBatch]:
    """Return the batches whose records were aborted: from the first offset of an aborted
    transaction to its marker.
    """
    waiting = [(each.first_offset, each.producer_id) for each in aborted]
    heapq.heapify(waiting)
    open_producers: set[int] = set()
    found: list[ReadBatch] = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        while waiting and waiting[0][0] <= batch.last_offset:
            open_producers.add(heapq.heappop(waiting)[1])
        if batch.base_offset in abort_markers:
            open_producers.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in open_producers:
            found.append(batch)
    return found


def _cut_out(
    ranges: Sequence[OffsetsAcquired], aborted: Sequence[ReadBatch]
) -> list[OffsetsAcquired]:
    """Return ranges without the offsets of aborted batches, both in ascending order."""
    found: list[OffsetsAcquired] = []
    place = 0
    for each in ranges:
        first_offset = each.first_offset
        while place < len(aborted) and aborted[place].last_offset < first_offset:
            place += 1
        at = place
        while at < len(aborted) and aborted[at].base_offset <= each.last_offset:
            if first_offset < aborted[at].base_offset:
                found.append(
                    OffsetsAcquired(first_offset, aborted[at].base_offset - 1, each.delivery_count)
                )
            first_offset = aborted[at].last_offset + 1
            at += 1
        if first_offset <= each.last_offset:
            found.append(OffsetsAcquired(first_offset, each.last_offset, each.delivery_count))
    return found
