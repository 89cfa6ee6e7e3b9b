"""Replaces segments by their cleaned segment, atomically with respect to crashes.

The cleaned segment is written to files with suffix `.cleaned`, which recovery ignores. Once all of
it is flushed it is renamed to `.swap`, its log last: from then on it is valid, and recovery
completes the swap after a crash. The originals are deleted oldest first: a crash leaves their
newest part. Names and states are Apache Kafka's: either implementation can complete a swap that the
other began.

Source: LocalLog.replaceSegments, LogLoader.{removeTempFilesAndCollectSwapFiles, load}, KAFKA-6264.
"""

from collections.abc import Iterable

from kraftsim.partitions.rules_log import Segment
from kraftsim.partitions.segment_files import PendingIndex, SegmentScan
from kraftsim.world.interface import Chunk, Disk
from protocol.storage.file_names import (
    CLEANED,
    DELETED,
    LOG,
    OFFSET_INDEX,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    SegmentFile,
    parse_segment_file_name,
    segment_file_name,
)
from protocol.storage.indexes import (
    AbortedTransaction,
    build_offset_index,
    build_time_index,
    build_transaction_index,
)

INDEXES = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
SEGMENT_SUFFIXES = (*INDEXES, LOG)
"""The log is renamed last when a cleaned segment becomes valid, and removed last when one is
deleted.
"""


class CleanedSegment:
    """A segment being written beside those that it will replace; `segment` tracks its content.

    OSErrors are passed on.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._index_interval_bytes = index_interval_bytes
        self.segment = Segment(base_offset, now_ms)
        self.aborted: list[AbortedTransaction] = []
        """The future content of its transaction index."""
        self._pending = PendingIndex()
        self._unwritten: list[Chunk] = []
        self.discard()
        self._file = disk.open(self._path(LOG))

    def add(self, batch: Chunk, last_offset: int, max_timestamp: int) -> None:
        """Add the next batch in offset order. `write` writes it to the file."""
        self._pending.add(
            self.segment.add_batch(
                last_offset, len(batch), max_timestamp, self._index_interval_bytes
            )
        )
        self._unwritten.append(batch)

    def write(self) -> int:
        """Write the batches added since the last call, and return their size."""
        chunks, self._unwritten = self._unwritten, []
        if chunks:
            self._file.append(chunks)
        return sum(map(len, chunks))

    async def finish(self) -> None:
        """Write its indexes, and flush all files."""
        self.write()
        last_time = self.segment.close()
        if last_time is not None:
            self._pending.times.append(last_time)
        base_offset = self.segment.base_offset
        await self._file.flush()
        self._file.close()
        for suffix, data in (
            (OFFSET_INDEX, build_offset_index(base_offset, self._pending.offsets)),
            (TIME_INDEX, build_time_index(base_offset, self._pending.times)),
            (TRANSACTION_INDEX, build_transaction_index(self.aborted)),
        ):
            if data or suffix is not TRANSACTION_INDEX:
                await self._write_whole(suffix, data)
        await self._disk.flush_directory(self._directory)

    def discard(self) -> None:
        """Delete all its files."""
        for suffix in SEGMENT_SUFFIXES:
            if self._disk.exists(self._path(suffix)):
                self._disk.remove(self._path(suffix))

    async def _write_whole(self, suffix: str, data: bytes) -> None:
        file = self._disk.open(self._path(suffix))
        try:
            if data:
                file.append([data])
            await file.flush()
        finally:
            file.close()

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{segment_file_name(self.segment.base_offset, suffix)}{CLEANED}"


async def rename_segment(
    disk: Disk, directory: str, base_offset: int, former: str, new: str, *, log_last: bool
) -> None:
    """Rename the files of a segment to another suffix, durably, one by one."""
    for suffix in (*INDEXES, LOG) if log_last else (LOG, *INDEXES):
        path = f"{directory}/{segment_file_name(base_offset, suffix)}"
        if disk.exists(path + former):
            await disk.rename(path + former, path + new)


async def finish_swaps(disk: Disk, directory: str) -> bool:
    """Complete or discard interrupted swaps before a log is opened.

    Return whether there were any.
    """
    marked = [
        (name, ending)
        for name in disk.list(directory)
        for ending in (CLEANED, SWAP, DELETED)
        if name.endswith(ending)
    ]
    if not marked:
        return False
    for name in [name for name, ending in marked if ending == DELETED]:
        disk.remove(f"{directory}/{name}")
    cleaned = {name: _offset(name, CLEANED) for name, ending in marked if ending == CLEANED}
    swaps = {name: _offset(name, SWAP) for name, ending in marked if ending == SWAP}
    unfinished_from = min(
        (offset for offset in cleaned.values() if offset is not None), default=None
    )
    for name, offset in list(swaps.items()):
        if offset is None or (unfinished_from is not None and offset >= unfinished_from):
            disk.remove(f"{directory}/{name}")
            del swaps[name]
    for name in cleaned:
        disk.remove(f"{directory}/{name}")
    for name in [name for name in swaps if name.endswith(LOG + SWAP)]:
        base_offset = swaps[name]
        assert base_offset is not None, "others are gone"
        _remove_originals(
            disk, directory, base_offset, _end_of(disk, f"{directory}/{name}", base_offset)
        )
    for base_offset in sorted({offset for offset in swaps.values() if offset is not None}):
        await rename_segment(disk, directory, base_offset, SWAP, "", log_last=False)
    await disk.flush_directory(directory)
    return True


def remove_originals(disk: Disk, directory: str, base_offsets: Iterable[int]) -> None:
    """Remove the segments that a cleaned one replaces, ascending; of the first one only its
    indexes, because the new log takes its name.
    """
    for number, base_offset in enumerate(base_offsets):
        for suffix in SEGMENT_SUFFIXES if number else INDEXES:
            path = f"{directory}/{segment_file_name(base_offset, suffix)}"
            if disk.exists(path):
                disk.remove(path)


def _remove_originals(disk: Disk, directory: str, base_offset: int, end_offset: int) -> None:
    found = [parse_segment_file_name(name) for name in disk.list(directory)]
    later = {
        each.offset
        for each in found
        if each is not None
        and each.suffix in SEGMENT_SUFFIXES
        and base_offset < each.offset < end_offset
    }
    remove_originals(disk, directory, [base_offset, *sorted(later)])


def _end_of(disk: Disk, path: str, base_offset: int) -> int:
    """Return the offset after the last batch of a segment file."""
    end_offset = base_offset
    file = disk.open(path)
    try:
        for batch in SegmentScan(file):
            end_offset = batch.next_offset
    finally:
        file.close()
    return end_offset


def _offset(name: str, ending: str) -> int | None:
    parsed: SegmentFile | None = parse_segment_file_name(name.removesuffix(ending))
    return None if parsed is None else parsed.offset
