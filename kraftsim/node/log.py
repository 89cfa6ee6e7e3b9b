"""A partition's log on disk, in Kafka's own format: segments of record batches, appended at the end, read from any offset.

What belongs where is decided by the core (`SegmentList`); this moves the bytes. Partition logs rely on the page cache and are flushed when a segment
is rolled or the log is closed; who needs more (the metadata log, log.flush.interval.messages) calls `flush` before it answers.

Source: org.apache.kafka.storage.internals.log.UnifiedLog, LocalLog, LogLoader.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from struct import Struct

from kraftsim.core.partitions.retention import Expired, RetentionRules, expired
from kraftsim.core.partitions.segments import Segment, SegmentList, SegmentSettings
from kraftsim.events.nodes import LogRecovered
from kraftsim.node.found_record import FoundRecord, first_record
from kraftsim.node.partition_directory import PartitionDirectory
from kraftsim.node.segment_extent import segment_extent
from kraftsim.node.segment_files import PendingIndex, SegmentFiles
from kraftsim.node.segment_scan import SegmentScan, whole_batches
from kraftsim.node.transaction_indexes import TransactionIndexes
from kraftsim.world.interface import Chunk, File, FileSlice, World
from protocol.batches import HEADER_SIZE_BYTES, LENGTH_OVERHEAD_BYTES, RecordBatch
from protocol.disk.transaction_index import AbortedTransaction

NOTHING = memoryview(b"")
SLICE_BYTES_MIN = 128 * 1024
"""Less is read: it leaves together with the answer around it, in one write."""
NO_EPOCH = -1
UNKNOWN_READ = (-1, -1, -1)
_BATCH_START = Struct(">qi").unpack_from
_LAST_OFFSET_DELTA = Struct(">i").unpack_from
_LAST_OFFSET_DELTA_POSITION = 23


class FlushedRecordsMissing(ValueError):
    """A log that cannot be read up to where it was flushed. Its files are as they were found: perhaps the disk can read them again one day."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the log ends at offset {offset}")
        self.offset = offset


class PartitionLog(PartitionDirectory):
    """One log. `recover` first; afterwards every batch that `append` was given can be read back until `truncate_to` cuts it off.

    `on_rolled` hears that a segment is complete: whoever owns the log should flush it soon. OSErrors of the disk pass through everywhere.
    """

    def __init__(
        self,
        world: World,
        topic: str,
        partition: int,
        settings: SegmentSettings | None = None,
        *,
        on_rolled: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(world, topic, partition)
        self.flushed_offset = 0
        """Every offset below it survives a power loss."""
        self._segments = SegmentList(settings or SegmentSettings())
        self._files = SegmentFiles(world.disk, self.directory)
        self._transactions = TransactionIndexes(self._files)
        self._on_rolled = on_rolled
        self._pending_index = PendingIndex()
        self._active_file: File | None = None
        self._begun_at = 0
        """Where the log begins, if that is inside its first segment."""
        self._next_read = UNKNOWN_READ
        """(offset, base offset of its segment, position): where the last read ended, which is where the next one mostly begins."""
        self._last_read = UNKNOWN_READ
        """The same of where it began: others read the same."""

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log."""
        return max(self._segments.first_base_offset, self._begun_at)

    @property
    def log_end_offset(self) -> int:
        """The first offset that is not in the log."""
        return self._segments.log_end_offset

    @property
    def size_bytes(self) -> int:
        """How long its segments are together."""
        return sum(segment.size_bytes for segment in self._segments.segments)

    @property
    def is_open(self) -> bool:
        """Whether its files are held."""
        return self._active_file is not None

    @property
    def base_offsets(self) -> list[int]:
        """Where the segments begin, ascending."""
        return [segment.base_offset for segment in self._segments.segments]

    def found_base_offsets(self) -> list[int]:
        """Return where the segments begin that are on disk, ascending, before `recover` has looked at them."""
        return self._files.found_base_offsets()

    # Opening and closing -------------------------------------------------------------------------------------------------------------------

    def recover(
        self,
        on_batch: Callable[[RecordBatch], object],
        *,
        verify_from_offset: int | None = 0,
        sure_until: int = 0,
        on_unclean: Callable[[int], None] | None = None,
    ) -> LogRecovered:
        """Read the log, hand its batches to `on_batch`, and cut off what is torn or corrupt. The event returned is noted already.

        Checksums are looked at from `verify_from_offset` on: the recovery point after a crash, None after a clean stop. What lies before it is taken
        as flushed. Raises FlushedRecordsMissing where it would have to cut before `sure_until`.

        With `on_unclean` the segments before the recovery point are not read if their indexes and the epochs on disk can be believed, and only the
        batches of the others are handed on: `on_unclean` hears of each of those, by its base offset, before its batches come.
        """
        assert self._active_file is None, "a log is recovered once"
        cut_bytes = 0
        found = self._files.found_base_offsets() or [0]
        unclean_from = self._first_unclean(found, verify_from_offset) if on_unclean is not None else 0
        for index, base_offset in enumerate(found):
            following = found[index + 1 :]
            self._begin_segment(base_offset)
            if index >= unclean_from and on_unclean is not None:
                self.epochs.truncate_to(base_offset)
                self._transactions.cut(base_offset, base_offset)
                on_unclean(base_offset)
            if index >= unclean_from:
                cut_bytes += self._fill_active(on_batch, verify_from_offset, sure_until=sure_until)
            else:
                cut_bytes += self._fill_from_indexes(following[0] if following else None)
            if following and (cut_bytes or following[0] < self.log_end_offset):
                cut_bytes += sum(self._files.remove_segment(later) for later in following)
                break
            if following and ((index >= unclean_from and verify_from_offset is not None) or not self._files.has_indexes(base_offset)):
                self._finish_indexes()
        self.epochs.truncate_to(self.log_end_offset)
        self.flushed_offset = self.log_end_offset if verify_from_offset is None else min(verify_from_offset, self.log_end_offset)
        recovered = LogRecovered(
            topic=self.topic,
            partition=self.partition,
            next_offset=self.log_end_offset,
            cut_bytes=cut_bytes,
            clean=verify_from_offset is None and not cut_bytes,
        )
        self._world.note(recovered)
        return recovered

    def _first_unclean(self, found: Sequence[int], recovery_point: int | None) -> int:
        """Return which of the segments is the first that may hold what was not flushed. Take the epochs of those before it from disk."""
        if not self._load_epochs():
            return 0
        return len(found) if recovery_point is None else max(bisect_right(found, recovery_point) - 1, 0)

    def _fill_from_indexes(self, end_offset: int | None) -> int:
        """Count what is in the active segment as its indexes say; the last one is read from its last entry on. Return how many bytes were cut off."""
        base_offset = self._segments.active.base_offset
        extent = segment_extent(self._files, base_offset, end_offset)
        if extent is None:
            self._files.remove_indexes(base_offset)
            return self._fill_active(lambda batch: None, None)
        if end_offset is not None:
            self._segments.restore_active(extent.size_bytes, extent.next_offset, extent.offsets, extent.times, extent.first_timestamp)
            return 0
        self._segments.restore_active(extent.position, extent.next_offset, extent.offsets, extent.times, extent.first_timestamp)
        self._pending_index.offsets, self._pending_index.times = list(extent.offsets), list(extent.times)
        return self._fill_active(lambda batch: None, None)

    def close(self) -> None:
        """Write the indexes of the last segment and give the files back. Flush before, if this is to be a clean stop."""
        self.seal()
        self.abort()

    def seal(self) -> None:
        """Write the indexes of the last segment as well: nothing is appended any more."""
        if self._active_file is not None:
            self._finish_indexes()

    def abort(self) -> None:
        """Give the files back as they are, as a process that dies."""
        self._files.close()
        self._active_file = None

    # Writing -------------------------------------------------------------------------------------------------------------------------------

    def append(self, chunks: Sequence[Chunk], *, first_offset: int, last_offset: int, size_bytes: int, max_timestamp: int, leader_epoch: int) -> None:
        """Write one batch at the end; it is visible at once and durable after `flush`. Both offsets are inside. After an OSError the log is lost."""
        segments = self._segments
        now_ms = self._world.clock.wall_ms()
        if segments.must_roll(last_offset=last_offset, size_bytes=size_bytes, max_timestamp=max_timestamp, now_ms=now_ms):
            self._roll(first_offset)
        assert self._active_file is not None, "a log is recovered before it is written"
        position = self._active_file.append(chunks)
        active = segments.active
        active.written_ms = now_ms
        assert position == active.size_bytes, f"{self._active_file.path} had {position} bytes, {active.size_bytes} were known"
        earned = segments.add_batch(first_offset=first_offset, last_offset=last_offset, size_bytes=size_bytes, max_timestamp=max_timestamp)
        if earned is not None:
            self._pending_index.add(earned)
        if leader_epoch != self.epochs.latest_epoch:
            self._note_epoch(leader_epoch, first_offset)

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """The batch that was appended (or read) last is the marker of an aborted transaction. After an OSError the log is lost."""
        self._transactions.add(self._segments.active.base_offset, aborted)

    def aborted_between(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from first_offset on and below end_offset, in the order of their markers."""
        base_offsets = self.base_offsets
        return self._transactions.between(base_offsets[max(bisect_right(base_offsets, first_offset) - 1, 0) :], first_offset, end_offset)

    @property
    def read_end_offset(self) -> int:
        """The first offset behind what was read last."""
        return self._next_read[0]

    async def flush(self) -> int:
        """Make everything appended before this call durable, and return `flushed_offset`. After an OSError what was not may be gone for good."""
        end_offset = self.log_end_offset
        if end_offset == self.flushed_offset and not self._files.has_new_names:
            return end_offset
        if self._files.has_new_names:
            await self._files.flush_names()
        active = self._segments.active
        for segment in self._segments.segments if self.flushed_offset < active.base_offset else (active,):
            following = self._segments.after(segment) if segment is not active else None
            if following is None or following.base_offset > self.flushed_offset:
                await self._files.log_file(segment.base_offset).flush()
        self.flushed_offset = max(self.flushed_offset, min(end_offset, self.log_end_offset))
        return self.flushed_offset

    def truncate_to(self, offset: int) -> int:
        """Cut off every batch that holds `offset` or a later one, and return how many bytes went.

        Where there is none, an epoch may still go: one that began at the end of the log, and in which its leader wrote nothing. The next leader need
        not know it, and would call the log another one for ever (UnifiedLog.truncateTo).
        """
        if offset >= self.log_end_offset:
            self.epochs.truncate_to(offset)
            return 0
        kept = max(segment.base_offset for segment in self._segments.segments if segment.base_offset <= max(offset, self.log_start_offset))
        removed = self._segments.remove_from(kept)
        cut_bytes = sum(self._files.remove_segment(segment.base_offset) for segment in removed if segment.base_offset != kept)
        self._begin_segment(kept)
        self._files.remove_indexes(kept)
        cut_bytes += self._fill_active(lambda batch: None, None, end_offset=offset)
        self._transactions.cut(kept, self.log_end_offset)
        self.flushed_offset = min(self.flushed_offset, self.log_end_offset)
        self.epochs.truncate_to(self.log_end_offset)
        return cut_bytes

    def begin_at(self, offset: int) -> None:
        """Let the log begin at an offset inside of it; whole segments before it go when `delete_expired` is called next."""
        self._begun_at = max(self._begun_at, offset)

    def delete_expired(self, rules: RetentionRules, *, now_ms: int, high_watermark: int) -> Expired | None:
        """Delete the segments that are due, as far as one reason goes, and say how many went and why; None if none is. Call it until then."""
        due = expired(
            self._segments.segments,
            rules,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
        )
        if due is None:
            return None
        if due.count == len(self._segments.segments):
            self._roll(self.log_end_offset)
        for segment in self._segments.remove_before(self._segments.segments[due.count].base_offset):
            self._files.remove_segment(segment.base_offset)
        self._next_read = UNKNOWN_READ
        return due

    def restart_at(self, offset: int) -> int:
        """Drop everything, begin anew with an empty log at `offset`, and return how many bytes went."""
        removed = self._segments.remove_from(self.log_start_offset)
        cut_bytes = sum(self._files.remove_segment(segment.base_offset) for segment in removed)
        self._begin_segment(offset)
        self.flushed_offset = self._begun_at = offset
        self.epochs.truncate_to(0)
        return cut_bytes

    def replay(self, on_batch: Callable[[RecordBatch], object], *, first_offset: int = 0, end_offset: int | None = None) -> None:
        """Hand every batch that ends at first_offset or later and begins before end_offset to `on_batch`, in order."""
        end_offset = self.log_end_offset if end_offset is None else end_offset
        if first_offset >= end_offset:
            return
        for segment in self._segments.segments:
            following = self._segments.after(segment)
            if segment.base_offset >= end_offset or (following is not None and following.base_offset <= first_offset):
                continue
            for batch in SegmentScan(self._files.log_file(segment.base_offset), segment.position_before(first_offset)):
                if batch.base_offset >= end_offset:
                    break
                if batch.next_offset > first_offset:
                    on_batch(batch)

    # Reading -------------------------------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool = True) -> memoryview:
        """Return whole batches from the one that holds `offset`, all below `end_offset` and no more than max_bytes together.

        With `at_least_one` the first batch is returned whatever its size. Empty: there is nothing, or the first batch is too large.
        """
        found = self._place_of(offset)
        return NOTHING if found is None else self._read_at(*found, max_bytes, end_offset, at_least_one)

    def slice(self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool = True) -> Chunk | FileSlice:
        """Return the same batches in the form in which they are best sent: much is not read at all."""
        found = self._place_of(offset)
        if found is None:
            return NOTHING
        segment, position = found
        if min(max_bytes, segment.size_bytes - position) < SLICE_BYTES_MIN:
            return self._read_at(segment, position, max_bytes, end_offset, at_least_one)
        size_bytes, next_offset = self._measure(segment, position, max_bytes, end_offset, at_least_one)
        if not size_bytes:
            return NOTHING
        self._next_read = (next_offset, segment.base_offset, position + size_bytes)
        return self._files.log_file(segment.base_offset).slice(position, size_bytes)

    def read_cut(self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool) -> memoryview:
        """Return the bytes of those batches cut off at max_bytes, be it inside a batch; `at_least_one` exempts the first from that."""
        found = self._place_of(offset)
        if found is None:
            return NOTHING
        segment, position = found
        there_bytes, _ = self._measure(segment, position, segment.size_bytes, end_offset, True)
        file = self._files.log_file(segment.base_offset)
        if at_least_one:
            max_bytes = max(max_bytes, _BATCH_START(file.read(position, HEADER_SIZE_BYTES))[1] + LENGTH_OVERHEAD_BYTES)
        return memoryview(file.read(position, min(there_bytes, max_bytes)))

    def ends_before(self, timestamp: int, now_ms: int) -> list[int]:
        """Return the base offsets of the segments that were last written by `timestamp`, the newest first, and before them the end of the log.

        That is all there was to ask for before messages had timestamps. `now_ms` is the wall clock, with which the end of the log goes.
        """
        segments = self._segments.segments
        times = [(max(segment.base_offset, self.log_start_offset), segment.last_written_ms) for segment in segments]
        if segments[-1].size_bytes:
            times.append((self.log_end_offset, now_ms))
        last = next((index for index in reversed(range(len(times))) if times[index][1] <= timestamp), -1)
        return [offset for offset, _ in reversed(times[: last + 1])]

    def find_timestamp(self, timestamp: int, end_offset: int) -> FoundRecord | None:
        """Return the first record below end_offset with this timestamp or a greater one. Raises MalformedBatch for records that cannot be read."""
        segment = self._segments.holding_timestamp(timestamp)
        if segment is None:
            return None
        for batch in SegmentScan(self._files.log_file(segment.base_offset), segment.position_before_timestamp(timestamp)):
            if batch.max_timestamp >= timestamp:
                found = first_record(batch, timestamp)
                if found is not None:
                    return found if found.offset < end_offset else None
        return None

    def find_max_timestamp(self, end_offset: int) -> FoundRecord | None:
        """Return the first record with the greatest timestamp of the log, if it is below end_offset. Raises MalformedBatch."""
        segment = self._segments.holding_max_timestamp()
        position = None if segment is None else self._position_of(segment, segment.offset_of_max_timestamp)
        if segment is None or position is None:
            return None
        batch = next(iter(SegmentScan(self._files.log_file(segment.base_offset), position)))
        found = first_record(batch, segment.max_timestamp)
        return found if found is not None and found.offset < end_offset else None

    def _place_of(self, offset: int) -> tuple[Segment, int] | None:
        """Return the segment and the position of the first batch that ends at `offset` or later."""
        segment = self._segments.holding(offset)
        while segment is not None:
            position = self._position_of(segment, offset)
            if position is not None:
                return segment, position
            segment = self._segments.after(segment)
        return None

    def _measure(self, segment: Segment, position: int, max_bytes: int, end_offset: int, at_least_one: bool) -> tuple[int, int]:
        """Return how many bytes from `position` are whole batches that begin below end_offset, at most max_bytes, and the offset behind them.

        The sparse index says where the last batches of the stretch begin; only their headers are read.
        """
        following = self._segments.after(segment)
        segment_end_offset = self.log_end_offset if following is None else following.base_offset
        left_bytes = segment.size_bytes - position
        if left_bytes <= max_bytes and segment_end_offset <= end_offset:
            return left_bytes, segment_end_offset
        file = self._files.log_file(segment.base_offset)
        at, next_offset = max(position, segment.boundary_before(position + max_bytes, end_offset)), -1
        while at < segment.size_bytes:
            header = file.read(at, HEADER_SIZE_BYTES)
            base_offset, length = _BATCH_START(header)
            batch_end = at + length + LENGTH_OVERHEAD_BYTES
            may_be_first = at == position and at_least_one
            if base_offset >= end_offset or (batch_end > position + max_bytes and not may_be_first):
                return at - position, base_offset
            at, next_offset = batch_end, base_offset + _LAST_OFFSET_DELTA(header, _LAST_OFFSET_DELTA_POSITION)[0] + 1
        return at - position, next_offset

    def _position_of(self, segment: Segment, offset: int) -> int | None:
        """Return where the first batch stands that ends at `offset` or later; None if the segment has none."""
        for known_offset, base_offset, position in (self._next_read, self._last_read):
            if known_offset == offset and base_offset == segment.base_offset and position < segment.size_bytes:
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

    def _read_at(self, segment: Segment, position: int, max_bytes: int, end_offset: int, at_least_one: bool) -> memoryview:
        file = self._files.log_file(segment.base_offset)
        data = file.read(position, min(max(max_bytes, HEADER_SIZE_BYTES), segment.size_bytes - position))
        base_offset, length = _BATCH_START(data)
        first_size_bytes = length + LENGTH_OVERHEAD_BYTES
        if base_offset >= end_offset or (first_size_bytes > max_bytes and not at_least_one):
            return NOTHING
        if first_size_bytes > len(data):
            data = file.read(position, first_size_bytes)
        size_bytes, next_offset = whole_batches(data, end_offset)
        self._next_read = (next_offset, segment.base_offset, position + size_bytes)
        return memoryview(data)[:size_bytes]

    # Segments ------------------------------------------------------------------------------------------------------------------------------

    def _roll(self, base_offset: int) -> None:
        """Complete the active segment and begin the next one."""
        self._finish_indexes()
        self._begin_segment(base_offset)
        if self._on_rolled is not None:
            self._on_rolled()

    def _begin_segment(self, base_offset: int) -> None:
        self._segments.add_segment(base_offset, self._world.clock.wall_ms())
        self._transactions.forget(base_offset)
        self._active_file = self._files.log_file(base_offset)
        self._pending_index = PendingIndex()
        self._next_read = self._last_read = UNKNOWN_READ

    def _finish_indexes(self) -> None:
        """Write the index files of the active segment as it stands."""
        active = self._segments.active
        last_time = active.close()
        if last_time is not None:
            self._pending_index.times.append(last_time)
        self._files.write_indexes(active.base_offset, self._pending_index)

    def _fill_active(
        self, on_batch: Callable[[RecordBatch], object], verify_from_offset: int | None, *, end_offset: int | None = None, sure_until: int = 0
    ) -> int:
        """Count the batches of the active segment's file, as far as they are good and end before end_offset; cut off the rest, return its bytes."""
        assert self._active_file is not None, "a segment was begun"
        file, active = self._active_file, self._segments.active
        for batch in SegmentScan(file, active.size_bytes, verify_from_offset=verify_from_offset, next_offset=self.log_end_offset):
            if end_offset is not None and batch.next_offset > end_offset:
                break
            self._pending_index.add(
                self._segments.add_batch(
                    first_offset=batch.base_offset,
                    last_offset=batch.last_offset,
                    size_bytes=batch.size_bytes,
                    max_timestamp=batch.max_timestamp,
                )
            )
            self._note_epoch(batch.partition_leader_epoch, batch.base_offset)
            on_batch(batch)
        cut_bytes = file.size_bytes - active.size_bytes
        if cut_bytes and self.log_end_offset < sure_until:
            raise FlushedRecordsMissing(self.log_end_offset)
        if cut_bytes:
            file.truncate(active.size_bytes)
            self._files.remove_indexes(active.base_offset)
        return cut_bytes

    def _note_epoch(self, leader_epoch: int, first_offset: int) -> None:
        latest = self.epochs.latest_epoch
        if leader_epoch > (NO_EPOCH if latest is None else latest):
            self.epochs.assign(leader_epoch, first_offset)
