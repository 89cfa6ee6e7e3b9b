"""The files of one log: a `.log` per segment, the indexes that Apache Kafka expects beside it,
transaction indexes, and the small files of the partition's directory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from kraftsim.partitions.rules_log import NO_TIMESTAMP, IndexEntries, LeaderEpochs
from kraftsim.world.interface import Disk, File, World
from kraftsim.zookeeper.rules_control_requests import is_derived
from protocol.malformed import MalformedFile, MalformedMessage
from protocol.records.batches import (
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    RecordBatch,
    split_batches,
)
from protocol.records.record import MalformedBatch
from protocol.storage.file_names import (
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_segment_file_name,
    partition_directory_name,
    segment_file_name,
)
from protocol.storage.indexes import (
    AbortedTransaction,
    OffsetEntry,
    TimeEntry,
    build_offset_index,
    build_time_index,
    build_transaction_index,
    parse_offset_index,
    parse_time_index,
    parse_transaction_index,
)
from protocol.storage.text_files import (
    EpochStart,
    build_leader_epoch_checkpoint,
    build_partition_metadata,
    parse_leader_epoch_checkpoint,
    parse_partition_metadata,
)

# --------------------------------------------------------------------------------------------------
# The files of one log: a `.log` per segment, and the two sparse indexes that Apache Kafka expects
# beside it
#
# The indexes are written when a segment is rolled or closed; after a crash the last segment has
# none, and they are rebuilt from the log.
#
# Source: org.apache.kafka.storage.internals.log.LogSegment, OffsetIndex, TimeIndex.


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


# --------------------------------------------------------------------------------------------------
# The extent of a segment according to its index files, if they are valid: a segment known to be
# complete need not be read
#
# Source: org.apache.kafka.storage.internals.log.{LogSegment.sanityCheck, OffsetIndex.sanityCheck,
# TimeIndex.sanityCheck}.


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """A segment by its indexes.

    The batch at `position`, the last index entry, has a base offset of at least `next_offset`.
    """

    size_bytes: int
    position: int
    next_offset: int
    first_timestamp: int
    offsets: tuple[OffsetEntry, ...]
    times: tuple[TimeEntry, ...]


def segment_extent(
    files: SegmentFiles, base_offset: int, end_offset: int | None
) -> SegmentExtent | None:
    """Return the extent by the indexes, None if they are missing or invalid. `end_offset`: the base
    offset of the next segment, if there is one.
    """
    file = files.log_file(base_offset)
    if not file.size_bytes or not files.has_indexes(base_offset):
        return None
    try:
        offsets, times = files.read_indexes(base_offset)
    except MalformedFile:
        return None
    if not times or times[-1].timestamp <= NO_TIMESTAMP:
        return None
    last_offset = max(times[-1].offset, offsets[-1].offset if offsets else base_offset)
    first_offset = min(times[0].offset, offsets[0].offset if offsets else base_offset)
    if (
        first_offset < base_offset
        or (end_offset is not None and last_offset >= end_offset)
        or (offsets and not offsets[0].position)
    ):
        return None
    position = offsets[-1].position if offsets else 0
    next_offset = offsets[-2].offset + 1 if len(offsets) > 1 else base_offset
    first, last = _header(file, 0), _header(file, position)
    if (
        first is None
        or last is None
        or not next_offset <= last.base_offset <= (offsets[-1].offset if offsets else last_offset)
    ):
        return None
    start = next(
        (entry.position for entry in reversed(offsets) if entry.offset <= times[-1].offset), 0
    )
    if _timestamp_at(file, start, times[-1].offset) != times[-1].timestamp:
        return None
    return SegmentExtent(
        file.size_bytes, position, next_offset, first.max_timestamp, tuple(offsets), tuple(times)
    )


class _Header(NamedTuple):
    base_offset: int
    last_offset: int
    max_timestamp: int
    end_position: int


def _header(file: File, position: int) -> _Header | None:
    """Return the header of the batch at a position; None if there is none."""
    data = file.read(position, HEADER_SIZE_BYTES)
    if len(data) < HEADER_SIZE_BYTES:
        return None
    offset, length, _, magic, _, _, last_offset_delta, _, max_timestamp, *_ = HEADER.unpack(data)
    end_position = position + length + LENGTH_OVERHEAD_BYTES
    is_one = (
        magic == MAGIC
        and last_offset_delta >= 0
        and position + HEADER_SIZE_BYTES <= end_position <= file.size_bytes
    )
    return (
        _Header(offset, offset + last_offset_delta, max_timestamp, end_position) if is_one else None
    )


def _timestamp_at(file: File, position: int, offset: int) -> int | None:
    """Return the greatest timestamp of the batch that contains an offset, which starts at or after
    a position.
    """
    header = _header(file, position)
    while header is not None and header.last_offset < offset:
        header = _header(file, header.end_position)
    return None if header is None else header.max_timestamp


# --------------------------------------------------------------------------------------------------
# Iterates over the batches of a segment file from a position on, in windows, without loading the
# whole file
#
# The iteration ends at invalid data: a tail torn by a crash, or corrupted bytes.
#
# Source: org.apache.kafka.storage.internals.log.LogSegment.recover, FileLogInputStream.

WINDOW_BYTES = 1 << 20
_LENGTH = Struct(">i").unpack_from
_LENGTH_POSITION = 8
_BATCH_START = Struct(">qi").unpack_from
_LAST_OFFSET_DELTA = Struct(">i").unpack_from
_LAST_OFFSET_DELTA_POSITION = 23


class SegmentScan:
    """Iterate to get the batches in order. Afterwards `end_position` is the end of the last valid
    batch, `why_invalid` the reason why the rest is invalid.
    """

    def __init__(
        self,
        file: File,
        position: int = 0,
        *,
        verify_from_offset: int | None = None,
        next_offset: int = 0,
    ) -> None:
        """Checksums are verified from `verify_from_offset` on (None: never); offsets must not be
        below `next_offset`.
        """
        self._file = file
        self._verify_from_offset = verify_from_offset
        self._next_offset = next_offset
        self.end_position = position
        self.why_invalid: str | None = None

    def __iter__(self) -> Iterator[RecordBatch]:
        window_bytes = WINDOW_BYTES
        while data := self._file.read(self.end_position, window_bytes):
            start = self.end_position
            yield from self._good_batches(data)
            if self.why_invalid is not None:
                return
            if self.end_position > start:
                window_bytes = WINDOW_BYTES
                continue
            needed = self._announced_bytes(data)
            if needed <= len(data) or len(data) < window_bytes:
                self.why_invalid = f"{len(data)} bytes of a batch that has {needed}"
                return
            window_bytes = needed

    def _good_batches(self, data: bytes) -> Iterator[RecordBatch]:
        try:
            for batch in split_batches(data):
                self.why_invalid = self._wrong_with(batch)
                if self.why_invalid is not None:
                    return
                self.end_position += batch.size_bytes
                self._next_offset = batch.next_offset
                yield batch
        except MalformedBatch as malformed:
            self.why_invalid = malformed.reason

    def _wrong_with(self, batch: RecordBatch) -> str | None:
        if batch.base_offset < self._next_offset or batch.last_offset_delta < 0:
            return f"a batch at offset {batch.base_offset} where {self._next_offset} was due"
        if (
            self._verify_from_offset is not None
            and batch.next_offset > self._verify_from_offset
            and not batch.crc_is_valid()
        ):
            return f"the checksum of the batch at offset {batch.base_offset} is wrong"
        return None

    @staticmethod
    def _announced_bytes(data: bytes) -> int:
        """Return the size field of the batch at the start of the data."""
        if len(data) < _LENGTH_POSITION + 4:
            return LENGTH_OVERHEAD_BYTES
        length: int = _LENGTH(data, _LENGTH_POSITION)[0]
        return max(length, 0) + LENGTH_OVERHEAD_BYTES


def whole_batches(data: bytes, end_offset: int) -> tuple[int, int]:
    """Return the size of the complete batches in data that start below end_offset, and the offset
    after them.
    """
    position, next_offset, size_bytes = 0, -1, len(data)
    while position + HEADER_SIZE_BYTES <= size_bytes:
        base_offset, length = _BATCH_START(data, position)
        following = position + length + LENGTH_OVERHEAD_BYTES
        if following > size_bytes or base_offset >= end_offset:
            break
        next_offset = (
            base_offset + _LAST_OFFSET_DELTA(data, position + _LAST_OFFSET_DELTA_POSITION)[0] + 1
        )
        position = following
    return position, next_offset


# --------------------------------------------------------------------------------------------------
# The directory of one partition: its topic id, and the small files beside its segments
#
# Source: PartitionMetadataFile (KIP-516), LeaderEpochCheckpointFile (KIP-101).


class PartitionDirectory:
    """`epochs` are those of the log in it. OSErrors of the disk are passed on."""

    def __init__(
        self, world: World, topic: str, partition: int, directory: str | None = None
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = (
            partition_directory_name(topic, partition) if directory is None else directory
        )
        self.epochs = LeaderEpochs()
        self._world = world
        self._stored_starts: tuple[EpochStart, ...] = ()

    async def store_epochs(self) -> None:
        """Write leader-epoch-checkpoint: after every change of `epochs`."""
        starts = self.epochs.starts
        await self._world.disk.replace(
            f"{self.directory}/{LEADER_EPOCHS}", build_leader_epoch_checkpoint(starts)
        )
        self._stored_starts = starts

    @property
    def owes_epochs(self) -> bool:
        """Whether leader-epoch-checkpoint must be written before more may count as durable."""
        return self.epochs.starts != self._stored_starts

    def _load_epochs(self) -> bool:
        """Load the epochs of leader-epoch-checkpoint, and return whether the file is valid."""
        try:
            starts = parse_leader_epoch_checkpoint(
                self._world.disk.read(f"{self.directory}/{LEADER_EPOCHS}")
            )
        except (FileNotFoundError, MalformedMessage):
            return False
        grows = all(
            former.leader_epoch < latter.leader_epoch and former.start_offset <= latter.start_offset
            for former, latter in pairwise(starts)
        )
        if not starts or not grows:
            return False
        self.epochs, self._stored_starts = LeaderEpochs(starts), tuple(starts)
        return True

    async def store_topic_id(self, topic_id: bytes) -> None:
        """Write partition.metadata: once, when the replica is created.

        A topic without an id has none.
        """
        if is_derived(topic_id):
            return
        await self._world.disk.replace(
            f"{self.directory}/{PARTITION_METADATA}", build_partition_metadata(topic_id)
        )

    def stored_topic_id(self) -> bytes | None:
        """Return the topic id of this directory; None if it has none."""
        try:
            return parse_partition_metadata(
                self._world.disk.read(f"{self.directory}/{PARTITION_METADATA}")
            )
        except (FileNotFoundError, MalformedMessage):
            return None


# --------------------------------------------------------------------------------------------------
# The transaction indexes of one log: the aborted transactions, in a file beside the segment that
# contains the marker
#
# Fetches of read_committed consumers return those that overlap the fetched range. A segment without
# aborted transactions has no such file.
#
# Source: org.apache.kafka.storage.internals.log.TransactionIndex, LogSegment.collectAbortedTxns,
# UnifiedLog.collectAbortedTransactions.


class TransactionIndexes:
    """Entries by segment, in the order of their markers; read from disk on first use."""

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self._entries: dict[int, list[AbortedTransaction]] = {}

    def add(self, base_offset: int, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction with its marker in this segment. Raises OSError."""
        entries = self._of(base_offset)
        assert not entries or entries[-1].last_offset < aborted.last_offset, "markers come in order"
        entries.append(aborted)
        self._files.append_transactions(base_offset, build_transaction_index([aborted]))

    def truncate(self, base_offset: int, end_offset: int) -> None:
        """Remove the transactions of a segment whose markers are at end_offset or later.

        Raises OSError.
        """
        entries = self._of(base_offset)
        kept = [each for each in entries if each.last_offset < end_offset]
        if len(kept) < len(entries):
            self._entries[base_offset] = kept
            self._files.replace_transactions(base_offset, build_transaction_index(kept))

    def forget(self, base_offset: int) -> None:
        """A segment starts here, possibly in place of an earlier one: its file is read again."""
        self._entries.pop(base_offset, None)

    def replace(self, base_offsets: Sequence[int], aborted: Sequence[AbortedTransaction]) -> None:
        """One segment replaces several, and has the base offset of the first; its file contains
        these entries.
        """
        for base_offset in base_offsets:
            self.forget(base_offset)
        self._entries[base_offsets[0]] = list(aborted)

    def remove_damaged(self, base_offsets: Sequence[int]) -> int | None:
        """Delete damaged indexes, and return the base offset of the first of their segments: they
        must be rebuilt from there.
        """
        damaged = [base_offset for base_offset in base_offsets if not self._is_sound(base_offset)]
        for base_offset in damaged:
            self._files.replace_transactions(base_offset, b"")
        return min(damaged, default=None)

    def _is_sound(self, base_offset: int) -> bool:
        try:
            entries = parse_transaction_index(self._files.read_transactions(base_offset))
        except MalformedFile:
            return False
        return all(
            base_offset <= entry.last_offset and entry.first_offset <= entry.last_offset
            for entry in entries
        )

    def between(
        self, base_offsets: Sequence[int], first_offset: int, end_offset: int
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from first_offset on and below end_offset.

        `base_offsets`: the segments from the one that contains first_offset on. An entry contains
        the last stable offset at its marker: transactions of later entries started at or after
        that.
        """
        found: list[AbortedTransaction] = []
        for base_offset in base_offsets:
            for entry in self._of(base_offset):
                if entry.last_offset >= first_offset and entry.first_offset < end_offset:
                    found.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return found
        return found

    def _of(self, base_offset: int) -> list[AbortedTransaction]:
        entries = self._entries.get(base_offset)
        if entries is None:
            entries = self._entries[base_offset] = self._read(base_offset)
        return entries

    def _read(self, base_offset: int) -> list[AbortedTransaction]:
        try:
            return parse_transaction_index(self._files.read_transactions(base_offset))
        except MalformedFile:
            return []
