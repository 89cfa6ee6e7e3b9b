"""The read path of a partition's log: finds batches by offset or timestamp through sparse indexes.

Data that is sent as it is on disk is not read into memory; searches use batch headers only where
possible.

Source: org.apache.kafka.storage.internals.log.{LocalLog.read, LogSegment.read,
UnifiedLog.fetchOffsetByTimestamp}.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from struct import Struct
from types import TracebackType
from typing import TypeAlias

from kraftsim.partitions.rules_log import Segment, SegmentList, SegmentSettings
from kraftsim.partitions.rules_reading import takes_long
from kraftsim.partitions.segment_files import (
    PartitionDirectory,
    SegmentFiles,
    SegmentScan,
    TransactionIndexes,
    whole_batches,
)
from kraftsim.world.interface import Chunk, File, FileSlice, World
from protocol.records.batches import HEADER_SIZE_BYTES, LENGTH_OVERHEAD_BYTES, RecordBatch
from protocol.storage.indexes import AbortedTransaction

# --------------------------------------------------------------------------------------------------
# Search for a record by timestamp: batch by batch, with slow batches searched in a thread
#
# Source: FileRecords.TimestampAndOffset, UnifiedLog.fetchOffsetByTimestamp.


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FoundCandidate:
    """A batch that may contain the first record with this timestamp or a greater one."""

    batch: RecordBatch
    timestamp: int


Search: TypeAlias = Generator[FoundCandidate, FoundRecord | None, FoundRecord | None]
"""Yields batches to be searched, receives the record found in each, and returns the result."""


def first_record(batch: RecordBatch, timestamp: int) -> FoundRecord | None:
    """Return the first record of a batch with this timestamp or a greater one.

    Raises MalformedBatch for undecodable records.
    """
    for record in batch.records():
        if record.timestamp >= timestamp:
            return FoundRecord(
                offset=record.offset,
                timestamp=record.timestamp,
                leader_epoch=batch.partition_leader_epoch,
            )
    return None


async def first_record_aside(
    world: World, batch: RecordBatch, timestamp: int
) -> FoundRecord | None:
    """The same; a slow batch is searched in a thread."""
    if takes_long(batch.view()):
        return await world.aside(lambda: first_record(batch, timestamp))
    return first_record(batch, timestamp)


def searched(search: Search) -> FoundRecord | None:
    """Run a search to its end in one turn. Raises MalformedBatch and OSError."""
    try:
        candidate = next(search)
        while True:
            candidate = search.send(first_record(candidate.batch, candidate.timestamp))
    except StopIteration as end:
        found: FoundRecord | None = end.value
        return found


# --------------------------------------------------------------------------------------------------
# Mutual exclusion for changes of existing log data: truncation, moves and deletion, and the
# cleaner, which is cancelled for any of them
#
# Appends and reads are not affected.
#
# Source: kafka.log.LogCleanerManager.{abortAndPauseCleaning, resumeCleaning, doneCleaning}.


class LogGate:
    """`async with gate` waits until the cleaner has released the log, and excludes it meanwhile.
    Without a running cleaner it does not wait.
    """

    __slots__ = ("_claims", "_is_cleaned", "_released")

    def __init__(self) -> None:
        self._claims = 0
        self._is_cleaned = False
        self._released: asyncio.Future[None] | None = None

    @property
    def is_free(self) -> bool:
        """Whether the log is neither claimed nor being cleaned."""
        return not self._claims and not self._is_cleaned

    @property
    def is_wanted(self) -> bool:
        """Whether the cleaner must release the log as soon as possible."""
        return self._claims > 0

    def begin_cleaning(self) -> None:
        """The cleaner acquires the log."""
        assert self.is_free, "one at a time"
        self._is_cleaned = True

    def end_cleaning(self) -> None:
        """The cleaner releases the log."""
        self._is_cleaned = False
        released, self._released = self._released, None
        if released is not None and not released.done():
            released.set_result(None)

    async def __aenter__(self) -> None:
        await self.claim()

    async def claim(self) -> None:
        """Wait until the cleaner has released the log, and exclude it from now on."""
        self._claims += 1
        try:
            while self._is_cleaned:
                if self._released is None:
                    self._released = asyncio.get_running_loop().create_future()
                await asyncio.shield(self._released)
        except BaseException:
            self._claims -= 1
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._claims -= 1


NOTHING = memoryview(b"")
SLICE_BYTES_MIN = 128 * 1024
"""Smaller slices are read into memory, and leave together with the response around them, in one
write.
"""
UNKNOWN_READ = (-1, -1, -1)
_BATCH_START = Struct(">qi").unpack_from
_LAST_OFFSET_DELTA = Struct(">i").unpack_from
_LAST_OFFSET_DELTA_POSITION = 23


class LogReader(PartitionDirectory):
    """The read interface of a log. OSErrors of the disk are passed on."""

    def __init__(
        self,
        world: World,
        topic: str,
        partition: int,
        settings: SegmentSettings,
        directory: str | None = None,
    ) -> None:
        super().__init__(world, topic, partition, directory)
        self._segments = SegmentList(settings)
        self._files = SegmentFiles(world.disk, self.directory)
        self._transactions = TransactionIndexes(self._files)
        self.gate = LogGate()
        """Operations that truncate, move or delete the log acquire it; the cleaner yields to
        them.
        """
        self._begun_at = 0
        """The log start offset, if it is inside the first segment, or before it."""
        self.is_tiered = False
        """Whether a part of the log may be in remote storage."""
        self._next_read = UNKNOWN_READ
        """(offset, base offset of its segment, position): the end of the last read, where the next
        one usually starts.
        """
        self._last_read = UNKNOWN_READ
        """The same for the start of the last read: other consumers often read the same."""

    @property
    def log_start_offset(self) -> int:
        """The log start offset, local or remote."""
        return self._begun_at if self.is_tiered else self.local_start_offset

    @property
    def local_start_offset(self) -> int:
        """The first local offset. Earlier offsets of a tiered log are in remote storage only."""
        return max(self._segments.first_base_offset, self._begun_at)

    @property
    def log_end_offset(self) -> int:
        """The first offset that is not in the log."""
        return self._segments.log_end_offset

    @property
    def size_bytes(self) -> int:
        """The total size of its segments."""
        return sum(segment.size_bytes for segment in self._segments.segments)

    @property
    def segments(self) -> Sequence[Segment]:
        """Its segments, the active one last. They change as the log grows."""
        return self._segments.segments

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets of the segments, ascending."""
        return [segment.base_offset for segment in self._segments.segments]

    def spans_segments(self, first_offset: int, end_offset: int) -> bool:
        """Return whether the offsets of [first_offset, end_offset) are in several segments."""
        base_offsets = self.base_offsets
        return first_offset < end_offset and bisect_right(base_offsets, first_offset) < (
            bisect_right(base_offsets, end_offset - 1)
        )

    def records_file(self, base_offset: int) -> File:
        """Return the records file of the segment with this base offset."""
        return self._files.log_file(base_offset)

    def file_of_segment(self, base_offset: int, suffix: str) -> bytes | None:
        """Return another file of a segment; None if there is none. Raises OSError."""
        path = self._files.path(base_offset, suffix)
        return self._files.disk.read(path) if self._files.disk.exists(path) else None

    @property
    def read_end_offset(self) -> int:
        """The offset after the last batch read."""
        return self._next_read[0]

    def aborted_between(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from first_offset on and below end_offset,
        in the order of their markers.
        """
        base_offsets = self.base_offsets
        return self._transactions.between(
            base_offsets[max(bisect_right(base_offsets, first_offset) - 1, 0) :],
            first_offset,
            end_offset,
        )

    def scan(self, segment: Segment, first_offset: int = 0) -> SegmentScan:
        """Return an iterator over the batches of a segment that verifies all checksums, starting at
        or before first_offset.
        """
        return SegmentScan(
            self._files.log_file(segment.base_offset),
            segment.position_before(first_offset),
            verify_from_offset=0,
        )

    def replay(
        self,
        on_batch: Callable[[RecordBatch], object],
        *,
        first_offset: int = 0,
        end_offset: int | None = None,
    ) -> None:
        """Pass every batch that ends at first_offset or later and starts before end_offset to
        `on_batch`, in order.
        """
        end_offset = self.log_end_offset if end_offset is None else end_offset
        if first_offset >= end_offset:
            return
        for segment in self._segments.segments:
            following = self._segments.after(segment)
            if segment.base_offset >= end_offset or (
                following is not None and following.base_offset <= first_offset
            ):
                continue
            for batch in SegmentScan(
                self._files.log_file(segment.base_offset), segment.position_before(first_offset)
            ):
                if batch.base_offset >= end_offset:
                    break
                if batch.next_offset > first_offset:
                    on_batch(batch)

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool = True
    ) -> memoryview:
        """Return complete batches from the one that contains `offset`, all below `end_offset` and
        at most max_bytes in total.

        With `at_least_one` the first batch is returned whatever its size. Empty: there is none, or
        the first batch is too large.
        """
        found = self._place_of(offset)
        return (
            NOTHING if found is None else self._read_at(*found, max_bytes, end_offset, at_least_one)
        )

    def batch_base(self, offset: int) -> int:
        """Return the base offset of the batch that contains an offset; the offset itself if there
        is no such batch.
        """
        found = self._place_of(offset)
        if found is None:
            return offset
        segment, position = found
        base_offset: int = _BATCH_START(
            self._files.log_file(segment.base_offset).read(position, HEADER_SIZE_BYTES)
        )[0]
        return min(base_offset, offset)

    def slice(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool = True
    ) -> Chunk | FileSlice:
        """Return the same batches in the form that is sent most efficiently: large slices are not
        read into memory.
        """
        found = self._place_of(offset)
        if found is None:
            return NOTHING
        segment, position = found
        if min(max_bytes, segment.size_bytes - position) < SLICE_BYTES_MIN:
            return self._read_at(segment, position, max_bytes, end_offset, at_least_one)
        size_bytes, next_offset = self._measure(
            segment, position, max_bytes, end_offset, at_least_one
        )
        if not size_bytes:
            return NOTHING
        self._next_read = (next_offset, segment.base_offset, position + size_bytes)
        file = self._files.log_file(segment.base_offset)
        if (
            size_bytes < SLICE_BYTES_MIN
        ):  # the segment is large, but little of it is below end_offset
            return memoryview(file.read(position, size_bytes))
        return file.slice(position, size_bytes)

    def read_truncated(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool
    ) -> memoryview:
        """Return the bytes of those batches cut at max_bytes, even inside a batch; `at_least_one`
        exempts the first batch.
        """
        found = self._place_of(offset)
        if found is None:
            return NOTHING
        segment, position = found
        there_bytes, _ = self._measure(segment, position, segment.size_bytes, end_offset, True)
        file = self._files.log_file(segment.base_offset)
        if at_least_one:
            max_bytes = max(
                max_bytes,
                _BATCH_START(file.read(position, HEADER_SIZE_BYTES))[1] + LENGTH_OVERHEAD_BYTES,
            )
        return memoryview(file.read(position, min(there_bytes, max_bytes)))

    def ends_before(self, timestamp: int, now_ms: int) -> list[int]:
        """Return the base offsets of the segments last written by `timestamp`, newest first,
        preceded by the log end offset.

        This is the lookup for messages without timestamps. `now_ms` is the wall clock, the
        timestamp of the log end offset.
        """
        segments = self._segments.segments
        times = [
            (max(segment.base_offset, self.local_start_offset), segment.last_written_ms)
            for segment in segments
        ]
        if segments[-1].size_bytes:
            times.append((self.log_end_offset, now_ms))
        last = next(
            (index for index in reversed(range(len(times))) if times[index][1] <= timestamp), -1
        )
        return [offset for offset, _ in reversed(times[: last + 1])]

    def find_timestamp(self, timestamp: int, end_offset: int) -> Search:
        """Search for the first record below end_offset with this timestamp or a greater one.

        Raises OSError.
        """
        segment = self._segments.holding_timestamp(timestamp)
        if segment is None:
            return None
        for batch in SegmentScan(
            self._files.log_file(segment.base_offset), segment.position_before_timestamp(timestamp)
        ):
            if batch.max_timestamp >= timestamp:
                found = yield FoundCandidate(batch, timestamp)
                if found is not None:
                    return found if found.offset < end_offset else None
        return None

    def find_max_timestamp(self, end_offset: int) -> Search:
        """Search for the first record with the greatest timestamp of the log, and return it if it
        is below end_offset.

        Raises OSError.
        """
        segment = self._segments.holding_max_timestamp()
        position = (
            None if segment is None else self._position_of(segment, segment.offset_of_max_timestamp)
        )
        if segment is None or position is None:
            return None
        batch = next(iter(SegmentScan(self._files.log_file(segment.base_offset), position)))
        found = yield FoundCandidate(batch, segment.max_timestamp)
        return found if found is not None and found.offset < end_offset else None

    def _place_of(self, offset: int) -> tuple[Segment, int] | None:
        """Return the segment and position of the first batch that ends at `offset` or later."""
        segment = self._segments.holding(offset)
        while segment is not None:
            position = self._position_of(segment, offset)
            if position is not None:
                return segment, position
            segment = self._segments.after(segment)
        return None

    def _measure(
        self, segment: Segment, position: int, max_bytes: int, end_offset: int, at_least_one: bool
    ) -> tuple[int, int]:
        """Return the size of the complete batches from `position` that start below end_offset, at
        most max_bytes, and the offset after them.

        The sparse index locates the last batches of the range; only their headers are read.
        """
        following = self._segments.after(segment)
        segment_end_offset = self.log_end_offset if following is None else following.base_offset
        left_bytes = segment.size_bytes - position
        if left_bytes <= max_bytes and segment_end_offset <= end_offset:
            return left_bytes, segment_end_offset
        file = self._files.log_file(segment.base_offset)
        at, next_offset = (
            max(position, segment.boundary_before(position + max_bytes, end_offset)),
            -1,
        )
        while at < segment.size_bytes:
            header = file.read(at, HEADER_SIZE_BYTES)
            base_offset, length = _BATCH_START(header)
            batch_end = at + length + LENGTH_OVERHEAD_BYTES
            may_be_first = at == position and at_least_one
            if base_offset >= end_offset or (batch_end > position + max_bytes and not may_be_first):
                return at - position, base_offset
            at, next_offset = (
                batch_end,
                base_offset + _LAST_OFFSET_DELTA(header, _LAST_OFFSET_DELTA_POSITION)[0] + 1,
            )
        return at - position, next_offset

    def _position_of(self, segment: Segment, offset: int) -> int | None:
        """Return the position of the first batch that ends at `offset` or later; None if the
        segment has none.
        """
        for known_offset, base_offset, position in (self._next_read, self._last_read):
            if (
                known_offset == offset
                and base_offset == segment.base_offset
                and position < segment.size_bytes
            ):
                self._last_read = (offset, base_offset, position)
                return position
        file = self._files.log_file(segment.base_offset)
        position = segment.position_before(offset)
        while position < segment.size_bytes:
            header = file.read(position, HEADER_SIZE_BYTES)
            base_offset, length = _BATCH_START(header)
            if base_offset + _LAST_OFFSET_DELTA(header, _LAST_OFFSET_DELTA_POSITION)[0] >= offset:
                self._last_read = (offset, segment.base_offset, position)
                return position
            position += length + LENGTH_OVERHEAD_BYTES
        return None

    def _read_at(
        self, segment: Segment, position: int, max_bytes: int, end_offset: int, at_least_one: bool
    ) -> memoryview:
        file = self._files.log_file(segment.base_offset)
        data = file.read(
            position, min(max(max_bytes, HEADER_SIZE_BYTES), segment.size_bytes - position)
        )
        base_offset, length = _BATCH_START(data)
        first_size_bytes = length + LENGTH_OVERHEAD_BYTES
        if base_offset >= end_offset or (first_size_bytes > max_bytes and not at_least_one):
            return NOTHING
        if first_size_bytes > len(data):
            data = file.read(position, first_size_bytes)
        size_bytes, next_offset = whole_batches(data, end_offset)
        self._next_read = (next_offset, segment.base_offset, position + size_bytes)
        return memoryview(data)[:size_bytes]
