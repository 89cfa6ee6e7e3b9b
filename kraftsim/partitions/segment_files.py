"""The files of one log: a `.log` per segment, and the two sparse indexes that Apache Kafka expects
beside it.

The indexes are written when a segment is rolled or closed; after a crash the last segment has none,
and they are rebuilt from the log.

Source: org.apache.kafka.storage.internals.log.LogSegment, OffsetIndex, TimeIndex.
"""

from kraftsim.partitions.rules_log import IndexEntries
from kraftsim.world.interface import Disk, File
from protocol.storage.file_names import (
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_segment_file_name,
    segment_file_name,
)
from protocol.storage.indexes import (
    OffsetEntry,
    TimeEntry,
    build_offset_index,
    build_time_index,
    parse_offset_index,
    parse_time_index,
)


class PendingIndex:
    """The index entries of a segment that are not written yet."""

    __slots__ = ("offsets", "times")

    def __init__(self) -> None:
        self.offsets: list[OffsetEntry] = []
        self.times: list[TimeEntry] = []

    def add(self, entries: IndexEntries | None) -> None:
        """Add the index entries of a batch, if any."""
        if entries is not None:
            self.offsets.append(entries.offset)
            if entries.time is not None:
                self.times.append(entries.time)


class SegmentFiles:
    """The directory of one log. Files are opened on first use."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = self._disk = disk
        self.directory = self._directory = directory
        self._open: dict[int, File] = {}
        self._unflushed_indexes: list[int] = []
        self.has_new_names = False
        """Whether files were created or removed since the directory was last flushed."""

    def found_base_offsets(self) -> list[int]:
        """Return the base offsets of the segments on disk, ascending."""
        parsed = [parse_segment_file_name(name) for name in self._disk.list(self._directory)]
        return sorted(each.offset for each in parsed if each is not None and each.suffix == LOG)

    def log_file(self, base_offset: int) -> File:
        """Return the open `.log` file of a segment, creating it if it is absent."""
        file = self._open.get(base_offset)
        if file is None:
            path = self.path(base_offset, LOG)
            self.has_new_names = self.has_new_names or not self._disk.exists(path)
            file = self._open[base_offset] = self._disk.open(path)
        return file

    def hold(self, base_offset: int, file: File | None) -> None:
        """Set the open `.log` file of a segment, whatever its name; None: reopen it by its regular
        name.
        """
        former = self._open.pop(base_offset, None)
        if former is not None:
            former.close()
        if file is not None:
            self._open[base_offset] = file

    def write_indexes(self, base_offset: int, pending: PendingIndex) -> None:
        """Write the index files of a segment that does not grow (for now)."""
        for suffix, data in (
            (OFFSET_INDEX, build_offset_index(base_offset, pending.offsets)),
            (TIME_INDEX, build_time_index(base_offset, pending.times)),
        ):
            self._remove(base_offset, suffix)
            file = self._disk.open(self.path(base_offset, suffix))
            try:
                if data:
                    file.append([data])
            finally:
                file.close()
        self.has_new_names = True
        self._unflushed_indexes.append(base_offset)

    def has_indexes(self, base_offset: int) -> bool:
        """Return whether a segment has both of its index files."""
        return all(
            self._disk.exists(self.path(base_offset, suffix))
            for suffix in (OFFSET_INDEX, TIME_INDEX)
        )

    def read_indexes(self, base_offset: int) -> tuple[list[OffsetEntry], list[TimeEntry]]:
        """Return the content of a segment's index files. Raises MalformedFile."""
        offsets = parse_offset_index(
            base_offset, self._disk.read(self.path(base_offset, OFFSET_INDEX))
        )
        return offsets, parse_time_index(
            base_offset, self._disk.read(self.path(base_offset, TIME_INDEX))
        )

    def read_transactions(self, base_offset: int) -> bytes:
        """Return the content of a segment's transaction index: empty if there is none."""
        path = self.path(base_offset, TRANSACTION_INDEX)
        return self._disk.read(path) if self._disk.exists(path) else b""

    def append_transactions(self, base_offset: int, data: bytes) -> None:
        """Append to the transaction index of a segment."""
        file = self._disk.open(self.path(base_offset, TRANSACTION_INDEX))
        try:
            file.append([data])
        finally:
            file.close()
        self.has_new_names = True
        self._unflushed_indexes.append(base_offset)

    def replace_transactions(self, base_offset: int, data: bytes) -> None:
        """Replace the transaction index of a segment."""
        self._remove(base_offset, TRANSACTION_INDEX)
        if data:
            self.append_transactions(base_offset, data)

    def remove_indexes(self, base_offset: int) -> None:
        """Delete outdated index files."""
        for suffix in (OFFSET_INDEX, TIME_INDEX):
            self._remove(base_offset, suffix)

    def remove_segment(self, base_offset: int) -> int:
        """Delete a segment, and return the size of its log."""
        size_bytes = self.log_file(base_offset).size_bytes
        self._open.pop(base_offset).close()
        self.remove_indexes(base_offset)
        self._remove(base_offset, TRANSACTION_INDEX)
        self._remove(base_offset, LOG)
        return size_bytes

    async def flush_names(self) -> None:
        """Flush creations and removals of files, and written indexes."""
        while self._unflushed_indexes:
            base_offset = self._unflushed_indexes.pop(0)
            for suffix in (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX):
                await self._flush_file(self.path(base_offset, suffix))
        if self.has_new_names:
            self.has_new_names = False
            await self._disk.flush_directory(self._directory)

    def close(self) -> None:
        """Close every open file; nothing is flushed."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def path(self, base_offset: int, suffix: str) -> str:
        """Return the path of a file of a segment."""
        return f"{self._directory}/{segment_file_name(base_offset, suffix)}"

    async def _flush_file(self, path: str) -> None:
        if not self._disk.exists(path):
            return  # deleted meanwhile
        file = self._disk.open(path)
        try:
            await file.flush()
        finally:
            file.close()

    def _remove(self, base_offset: int, suffix: str) -> None:
        path = self.path(base_offset, suffix)
        if self._disk.exists(path):
            self._disk.remove(path)
            self.has_new_names = True
