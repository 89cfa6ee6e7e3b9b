"""A partition's log on disk, in Kafka's format: segments of record batches, appended at the end,
read from any offset.

The core (`SegmentList`) decides the layout; this class does the I/O. Partition logs rely on the
page cache and are flushed when a segment is rolled or the log is closed; callers that need more
(the metadata log, log.flush.interval.messages) call `flush` before they answer.

Source: org.apache.kafka.storage.internals.log.UnifiedLog, LocalLog, LogLoader.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from kraftsim.partitions.log_reading import UNKNOWN_READ, LogReader
from kraftsim.partitions.rules_log import (
    RELATIVE_OFFSET_MAX,
    Expired,
    RetentionRules,
    Segment,
    SegmentSettings,
    expired,
)
from kraftsim.partitions.segment_files import PendingIndex, SegmentScan, segment_extent
from kraftsim.partitions.segment_swap import CleanedSegment, remove_originals, rename_segment
from kraftsim.server.events import LogRecovered
from kraftsim.world.interface import Chunk, File, World
from protocol.records.batches import RecordBatch
from protocol.storage.file_names import CLEANED, LOG, SWAP
from protocol.storage.indexes import AbortedTransaction
from protocol.storage.text_files import EpochStart

NO_EPOCH = -1


class FlushedRecordsMissing(ValueError):
    """A log that is unreadable below its flushed offset.

    Its files are left unchanged, in case the disk can read them later.
    """

    def __init__(self, offset: int) -> None:
        super().__init__(f"the log ends at offset {offset}")
        self.offset = offset


class PartitionLog(LogReader):
    """One log.

    Call `recover` first; afterwards every appended batch can be read until `truncate_to` removes
    it.

    `on_rolled` is called when a segment is complete: the owner should flush it soon. OSErrors of
    the disk are passed on.
    """

    def __init__(
        self,
        world: World,
        topic: str,
        partition: int,
        settings: SegmentSettings | None = None,
        *,
        on_rolled: Callable[[], None] | None = None,
        directory: str | None = None,
    ) -> None:
        super().__init__(world, topic, partition, settings or SegmentSettings(), directory)
        self.truncation_count = 0
        """How often the log was truncated."""
        self.flushed_offset = 0
        """Every offset below it survives a power failure."""
        self._shortened: set[int] = set()
        """Base offsets of truncated segments that are not flushed since: a power failure would
        restore the old end, which later batches would not match.
        """
        self._on_rolled = on_rolled
        self._pending_index = PendingIndex()
        self._active_file: File | None = None
        self._found_as: tuple[int, int, int] | None = None
        """The last segment and its size as recovered after a clean shutdown, and the truncation
        count at that time.
        """

    @property
    def is_open(self) -> bool:
        """Whether its files are open."""
        return self._active_file is not None

    def found_base_offsets(self) -> list[int]:
        """Return the base offsets of the segments on disk, ascending, before `recover` has checked
        them.
        """
        return self._files.found_base_offsets()

    # Opening and closing
    # ----------------------------------------------------------------------------------------------

    def remove_damaged_indexes(self) -> int | None:
        """Before `recover`: delete damaged transaction indexes, and return the offset from which
        the log must be replayed to rebuild them.
        """
        return self._transactions.remove_damaged(self._files.found_base_offsets())

    def recover(
        self,
        on_batch: Callable[[RecordBatch], object],
        *,
        verify_from_offset: int | None = 0,
        sure_until: int = 0,
        on_unclean: Callable[[int], None] | None = None,
        chained_from: int | None = None,
    ) -> LogRecovered:
        """Read the log, pass its batches to `on_batch`, and truncate a torn or corrupt end.

        The returned event has already been emitted.

        Checksums are verified from `verify_from_offset` on: the recovery point after a crash, None
        after a clean shutdown. Everything before it counts as flushed. Raises FlushedRecordsMissing
        if it would have to truncate below `sure_until`.

        With `on_unclean` the segments before the recovery point are not read if their indexes and
        the epochs on disk are valid, and only the batches of the other segments are passed on:
        `on_unclean` is called with the base offset of each of those, before its batches.

        From `chained_from` on nothing was compacted, so each segment starts where the previous one
        ends. If one does not, a power failure has removed the data between them, and everything
        behind the gap is removed as well.
        """
        assert self._active_file is None, "a log is recovered once"
        truncated_bytes = 0
        found = self._files.found_base_offsets() or [0]
        unclean_from = (
            self._first_unclean(found, verify_from_offset) if on_unclean is not None else 0
        )
        for index, base_offset in enumerate(found):
            following = found[index + 1 :]
            self._begin_segment(base_offset)
            if index >= unclean_from and on_unclean is not None:
                self.epochs.truncate_to(base_offset)
                self._transactions.truncate(base_offset, base_offset)
                on_unclean(base_offset)
            if index >= unclean_from:
                truncated_bytes += self._fill_active(
                    on_batch, verify_from_offset, sure_until=sure_until
                )
            else:
                truncated_bytes += self._fill_from_indexes(following[0] if following else None)
            has_gap = (
                chained_from is not None
                and bool(following)
                and following[0] > max(chained_from, self.log_end_offset)
            )
            if following and (truncated_bytes or has_gap or following[0] < self.log_end_offset):
                truncated_bytes += sum(self._files.remove_segment(later) for later in following)
                break
            if following and (
                (index >= unclean_from and verify_from_offset is not None)
                or not self._files.has_indexes(base_offset)
            ):
                self._finish_indexes()
        self.epochs.truncate_to(self.log_end_offset)
        self.flushed_offset = (
            self.log_end_offset
            if verify_from_offset is None
            else min(verify_from_offset, self.log_end_offset)
        )
        recovered = LogRecovered(
            topic=self.topic,
            partition=self.partition,
            next_offset=self.log_end_offset,
            truncated_bytes=truncated_bytes,
            clean=verify_from_offset is None and not truncated_bytes,
        )
        if recovered.clean:
            active = self._segments.active
            self._found_as = (active.base_offset, active.size_bytes, self.truncation_count)
        self._world.emit(recovered)
        return recovered

    def _first_unclean(self, found: Sequence[int], recovery_point: int | None) -> int:
        """Return the index of the first segment that may contain unflushed data.

        Load the epochs of the earlier ones from disk.
        """
        if not self._load_epochs():
            return 0
        return (
            len(found)
            if recovery_point is None
            else max(bisect_right(found, recovery_point) - 1, 0)
        )

    def _fill_from_indexes(self, end_offset: int | None) -> int:
        """Restore the state of the active segment from its indexes; the last one is read from its
        last entry on. Return the number of truncated bytes.
        """
        base_offset = self._segments.active.base_offset
        extent = segment_extent(self._files, base_offset, end_offset)
        if extent is None:
            self._files.remove_indexes(base_offset)
            return self._fill_active(lambda batch: None, None)
        if end_offset is not None:
            self._segments.restore_active(
                extent.size_bytes,
                extent.next_offset,
                extent.offsets,
                extent.times,
                extent.first_timestamp,
            )
            return 0
        self._segments.restore_active(
            extent.position,
            extent.next_offset,
            extent.offsets,
            extent.times,
            extent.first_timestamp,
        )
        self._pending_index.offsets, self._pending_index.times = (
            list(extent.offsets),
            list(extent.times),
        )
        return self._fill_active(lambda batch: None, None)

    def close(self) -> None:
        """Write the indexes of the last segment and close the files.

        Flush before, for a clean shutdown.
        """
        self.seal()
        self.abort()

    def seal(self) -> None:
        """Write the indexes of the last segment as well: nothing is appended any more."""
        if self._active_file is not None and not self._is_as_it_was_closed():
            self._finish_indexes()

    def _is_as_it_was_closed(self) -> bool:
        """Whether nothing changed since the recovery of a cleanly closed log, so that its last
        indexes are still valid.
        """
        active = self._segments.active
        return self._found_as == (
            active.base_offset,
            active.size_bytes,
            self.truncation_count,
        ) and self._files.has_indexes(active.base_offset)

    def abort(self) -> None:
        """Close the files as they are, as a killed process would."""
        self._files.close()
        self._active_file = None

    # Writing
    # ----------------------------------------------------------------------------------------------

    def append(
        self,
        chunks: Sequence[Chunk],
        *,
        first_offset: int,
        last_offset: int,
        size_bytes: int,
        max_timestamp: int,
        leader_epoch: int,
    ) -> None:
        """Append one batch; it is visible immediately and durable after `flush`. Both offsets are
        inclusive. After an OSError the log is unusable.
        """
        segments = self._segments
        now_ms = self._world.clock.wall_ms()
        if segments.must_roll(
            last_offset=last_offset,
            size_bytes=size_bytes,
            max_timestamp=max_timestamp,
            now_ms=now_ms,
        ):
            self._roll(
                first_offset
                if last_offset - self.log_end_offset > RELATIVE_OFFSET_MAX
                else self.log_end_offset
            )
        assert self._active_file is not None, "a log is recovered before it is written"
        position = self._active_file.append(chunks)
        active = segments.active
        active.written_ms = now_ms
        assert position == active.size_bytes, (
            f"{self._active_file.path} had {position} bytes, {active.size_bytes} were known"
        )
        earned = segments.add_batch(
            first_offset=first_offset,
            last_offset=last_offset,
            size_bytes=size_bytes,
            max_timestamp=max_timestamp,
        )
        if earned is not None:
            self._pending_index.add(earned)
        if leader_epoch != self.epochs.latest_epoch:
            self._record_epoch(leader_epoch, first_offset)

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """The last appended (or read) batch is the marker of an aborted transaction.

        After an OSError the log is unusable.
        """
        self._transactions.add(self._segments.active.base_offset, aborted)

    async def flush(self) -> int:
        """Flush everything appended before this call, and return `flushed_offset`.

        After an OSError unflushed data may be lost.
        """
        end_offset = self.log_end_offset
        if (
            end_offset == self.flushed_offset
            and not self._files.has_new_names
            and not self._shortened
        ):
            return end_offset
        await self.complete_truncation()
        active = self._segments.active
        for segment in (
            self._segments.segments if self.flushed_offset < active.base_offset else (active,)
        ):
            if not self._segments.has(segment):
                continue  # it was deleted during the flush of others
            following = self._segments.after(segment) if segment is not active else None
            if following is None or following.base_offset > self.flushed_offset:
                await self._files.log_file(segment.base_offset).flush()
        self.flushed_offset = max(self.flushed_offset, min(end_offset, self.log_end_offset))
        return self.flushed_offset

    async def complete_truncation(self) -> None:
        """Flush truncations. A power failure that restored removed segments would leave a hole
        before them, and one that restored the end of a file would put it in front of the next
        segment, or behind its replacement.
        """
        if self._files.has_new_names:
            await self._files.flush_names()
        truncations = self.truncation_count
        for segment in [
            each for each in self._segments.segments if each.base_offset in self._shortened
        ]:
            if self._segments.has(segment):
                await self._files.log_file(segment.base_offset).flush()
        if self.truncation_count == truncations:
            self._shortened.clear()

    def truncate_to(self, offset: int) -> int:
        """Truncate every batch that contains `offset` or a later one, and return the number of
        removed bytes.

        If there is none, an epoch may still be removed: one that started at the log end offset,
        without records. The next leader may not know that epoch, and would always find the log
        diverging (UnifiedLog.truncateTo). A log that is truncated below its start is restarted
        (`restart_at`).
        """
        assert offset >= self.local_start_offset, (
            f"{offset} is before the log, which begins at {self.local_start_offset}"
        )
        if offset >= self.log_end_offset:
            self.epochs.truncate_to(offset)
            return 0
        self.truncation_count += 1
        kept = max(
            segment.base_offset
            for segment in self._segments.segments
            if segment.base_offset <= offset
        )
        removed = self._segments.remove_from(kept)
        truncated_bytes = sum(
            self._files.remove_segment(segment.base_offset)
            for segment in removed
            if segment.base_offset != kept
        )
        self._begin_segment(kept)
        self._files.remove_indexes(kept)
        truncated_bytes += self._fill_active(lambda batch: None, None, end_offset=offset)
        self._transactions.truncate(kept, self.log_end_offset)
        self.flushed_offset = min(self.flushed_offset, self.log_end_offset)
        self.epochs.truncate_to(self.log_end_offset)
        return truncated_bytes

    @property
    def roll_settings(self) -> SegmentSettings:
        """The present roll settings."""
        return self._segments.settings

    def roll_by(self, settings: SegmentSettings) -> None:
        """Apply changed roll settings, from the next batch on."""
        self._segments.settings = settings

    def begin_cleaned(self, base_offset: int, now_ms: int) -> CleanedSegment:
        """Start writing the replacement of the segment with this base offset, and of some after it.

        `now_ms` is the wall clock.
        """
        interval_bytes = self._segments.settings.index_interval_bytes
        return CleanedSegment(
            self._files.disk,
            self.directory,
            base_offset,
            index_interval_bytes=interval_bytes,
            now_ms=now_ms,
        )

    async def replace_segments(
        self, former: Sequence[Segment], cleaned: CleanedSegment
    ) -> list[int]:
        """Replace segments by the finished cleaned segment, and return the base offsets at which no
        segment starts any more.

        Readers see either the old or the new segments. Truncation and deletion must wait meanwhile.
        After an OSError the log is unusable.
        """
        disk, base_offset = self._files.disk, cleaned.segment.base_offset
        await rename_segment(disk, self.directory, base_offset, CLEANED, SWAP, log_last=True)
        assert all(self._segments.has(each) for each in former), (
            "a log is not truncated while its segments are replaced"
        )
        self._segments.replace(former, cleaned.segment)
        cleaned.segment.written_ms = former[-1].written_ms
        base_offsets = [each.base_offset for each in former]
        for each in base_offsets:
            self._files.hold(each, None)
        self._files.hold(base_offset, disk.open(self._files.path(base_offset, LOG + SWAP)))
        self._transactions.replace(base_offsets, cleaned.aborted)
        self._next_read = self._last_read = UNKNOWN_READ
        remove_originals(disk, self.directory, base_offsets)
        await rename_segment(disk, self.directory, base_offset, SWAP, "", log_last=False)
        self._files.hold(base_offset, None)
        return base_offsets[1:]

    def advance_log_start(self, offset: int) -> None:
        """Advance the log start offset; whole segments before it are deleted at the next
        `delete_expired`.
        """
        self._begun_at = max(self._begun_at, offset)

    def tier(self, is_tiered: bool) -> None:
        """Start or stop tiering: without it the log starts at its local start offset."""
        self._begun_at = self.log_start_offset if is_tiered else self.local_start_offset
        self.is_tiered = is_tiered

    def delete_expired(
        self,
        rules: RetentionRules,
        *,
        now_ms: int,
        high_watermark: int,
        remote_end_offset: int | None = None,
    ) -> Expired | None:
        """Delete the expired segments, one reason at a time, and return how many were deleted and
        why; None if none. Call it until then.

        `remote_end_offset` of a tiered log: the end offset in remote storage.
        """
        due = expired(
            self._segments.segments,
            rules,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            remote_end_offset=remote_end_offset,
        )
        if due is None:
            return None
        if due.count == len(self._segments.segments):
            self._roll(self.log_end_offset)
        for segment in self._segments.remove_before(self._segments.segments[due.count].base_offset):
            self._files.remove_segment(segment.base_offset)
        self._next_read = UNKNOWN_READ
        return due

    def roll_expired(self, rules: RetentionRules, *, now_ms: int) -> None:
        """Roll the last segment if it is the only one and has expired: only then can it be copied
        and deleted.
        """
        active = self._segments.active
        is_alone = active.size_bytes > 0 and len(self._segments.segments) == 1
        if is_alone and (
            rules.retention_bytes == 0 or 0 <= rules.retention_ms < now_ms - active.age_timestamp
        ):
            self._roll(self.log_end_offset)

    def restart_at(self, offset: int) -> int:
        """Delete everything, restart with an empty log at `offset`, and return the number of
        removed bytes.
        """
        self.truncation_count += 1
        removed = self._segments.remove_from(self._segments.first_base_offset)
        truncated_bytes = sum(
            self._files.remove_segment(segment.base_offset) for segment in removed
        )
        self._begin_segment(offset)
        self.flushed_offset = self._begun_at = offset
        self.epochs.truncate_to(0)
        return truncated_bytes

    def restart_behind(
        self, offset: int, *, log_start_offset: int, epochs: Sequence[EpochStart]
    ) -> None:
        """Delete all local data, and continue behind the remote log: from `offset` on, with these
        epochs.
        """
        self.restart_at(offset)
        self._begun_at = log_start_offset
        for each in epochs:
            self.epochs.assign(each.leader_epoch, each.start_offset)

    # Segments
    # ----------------------------------------------------------------------------------------------

    def _roll(self, base_offset: int) -> None:
        """Complete the active segment and start the next one."""
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
        """Write the current index files of the active segment."""
        active = self._segments.active
        last_time = active.close()
        if last_time is not None:
            self._pending_index.times.append(last_time)
        self._files.write_indexes(active.base_offset, self._pending_index)

    def _fill_active(
        self,
        on_batch: Callable[[RecordBatch], object],
        verify_from_offset: int | None,
        *,
        end_offset: int | None = None,
        sure_until: int = 0,
    ) -> int:
        """Load the batches of the active segment's file, as far as they are valid and end before
        end_offset; truncate the rest and return its size.
        """
        assert self._active_file is not None, "a segment was begun"
        file, active = self._active_file, self._segments.active
        for batch in SegmentScan(
            file,
            active.size_bytes,
            verify_from_offset=verify_from_offset,
            next_offset=self.log_end_offset,
        ):
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
            self._record_epoch(batch.partition_leader_epoch, batch.base_offset)
            on_batch(batch)
        truncated_bytes = file.size_bytes - active.size_bytes
        if truncated_bytes and self.log_end_offset < sure_until:
            raise FlushedRecordsMissing(self.log_end_offset)
        if truncated_bytes:
            file.truncate(active.size_bytes)
            self._shortened.add(active.base_offset)
            self._files.remove_indexes(active.base_offset)
        return truncated_bytes

    def _record_epoch(self, leader_epoch: int, first_offset: int) -> None:
        latest = self.epochs.latest_epoch
        if leader_epoch > (NO_EPOCH if latest is None else latest):
            self.epochs.assign(leader_epoch, first_offset)
