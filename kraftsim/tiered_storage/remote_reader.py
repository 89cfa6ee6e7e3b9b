"""Reads remote segments: for consumers, for timestamp searches, and for followers that rebuild
their producer state.

The segment of an offset is found by the leader epochs of this replica's own log, so that only
segments of its lineage are read.
Source: RemoteLogManager (read, findOffsetByTimestamp, collectAbortedTransactions),
RemoteIndexCache.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from kraftsim.core.decision import Refusal
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_reading import FoundRecord, first_record_aside
from kraftsim.tiered_storage.remote_store import RemoteFile, RemoteStore
from kraftsim.tiered_storage.rules_reading import (
    offset_of_timestamp,
    position_of_offset,
    stretch_of,
)
from kraftsim.tiered_storage.rules_segments import RemoteSegment, SegmentCatalogue, SegmentState
from kraftsim.world.interface import World
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch, split_batches
from protocol.storage.indexes import (
    AbortedTransaction,
    OffsetEntry,
    TimeEntry,
    parse_offset_index,
    parse_time_index,
    parse_transaction_index,
)

INDEXES_MAX = 256
"""The number of segments whose indexes are cached."""
PIECE_BYTES_MIN = 64 * 1024
SCANNED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RemoteRecords:
    """Whole batches, and the aborted transactions that overlap them."""

    records: memoryview
    aborted: tuple[AbortedTransaction, ...]


@dataclass(frozen=True, slots=True)
class _Indexes:
    offsets: list[OffsetEntry]
    times: list[TimeEntry]
    aborted: list[AbortedTransaction]


class RemoteReader:
    """`catalogue_of` returns the known remote segments of a partition; None while they are not
    loaded.
    """

    def __init__(
        self,
        world: World,
        store: RemoteStore,
        catalogue_of: Callable[[HostedPartition], SegmentCatalogue | None],
    ) -> None:
        self._world = world
        self._store = store
        self._catalogue_of = catalogue_of
        self._indexes: dict[bytes, _Indexes] = {}

    async def read(
        self,
        hosted: HostedPartition,
        offset: int,
        bytes_max: int,
        *,
        at_least_one: bool,
        reads_committed: bool,
    ) -> RemoteRecords | Refusal:
        """Return batches of one segment, from the batch with the offset on.

        OFFSET_OUT_OF_RANGE if no segment has it. Raises OSError.
        """
        segment = self._holding(hosted, offset)
        if segment is None:
            return Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in any remote segment"
            )
        indexes = await self._indexes_of(segment)
        position = position_of_offset(indexes.offsets, offset)
        size_bytes = max(bytes_max, PIECE_BYTES_MIN)
        while True:
            piece = await self._store.read(segment, position, size_bytes)
            found = stretch_of(
                piece, offset, bytes_max, segment.end_offset + 1, at_least_one=at_least_one
            )
            if not isinstance(found, int):
                break
            if len(piece) < size_bytes:
                return RemoteRecords(memoryview(b""), ())
            size_bytes = max(found, 2 * size_bytes)
        if found is None:
            return RemoteRecords(memoryview(b""), ())
        records = memoryview(piece)[found.position : found.position + found.size_bytes]
        aborted = (
            await self._aborted(hosted, segment, offset, found.next_offset)
            if reads_committed
            else ()
        )
        return RemoteRecords(records, aborted)

    async def find_timestamp(self, hosted: HostedPartition, timestamp: int) -> FoundRecord | None:
        """Return the first remote record at or after a timestamp; None if there is none before the
        local log.

        Raises OSError.
        """
        catalogue = self._catalogue_of(hosted)
        if catalogue is None:
            raise OSError("the remote log metadata is not loaded yet")
        segment = self._holding(hosted, hosted.replica.log_start_offset)
        while segment is not None and segment.start_offset < hosted.replica.local_start_offset:
            if segment.max_timestamp_ms >= timestamp:
                indexes = await self._indexes_of(segment)
                first_offset = offset_of_timestamp(indexes.times, timestamp)
                async for batch in self.batches(
                    segment,
                    hosted.replica.log_start_offset if first_offset is None else first_offset,
                ):
                    found = (
                        await first_record_aside(self._world, batch, timestamp)
                        if batch.max_timestamp >= timestamp
                        else None
                    )
                    if found is not None and found.offset >= hosted.replica.log_start_offset:
                        return found
            segment = self._holding(hosted, segment.end_offset + 1)
        return None

    async def batches(
        self, segment: RemoteSegment, first_offset: int = 0
    ) -> AsyncIterator[RecordBatch]:
        """Yield the batches of a segment from the one with an offset on. Raises OSError."""
        position = position_of_offset((await self._indexes_of(segment)).offsets, first_offset)
        size_bytes = SCANNED_BYTES
        while piece := await self._store.read(segment, position, size_bytes):
            taken = 0
            for batch in split_batches(piece):
                taken += batch.size_bytes
                if batch.last_offset >= first_offset:
                    yield batch
            if not taken and len(piece) < size_bytes:
                return  # the segment ends in the middle of a batch
            size_bytes = SCANNED_BYTES if taken else 2 * size_bytes
            position += taken

    async def file(self, segment: RemoteSegment, kind: RemoteFile) -> bytes | None:
        """Return a file of a segment; None if it does not exist. Raises OSError."""
        try:
            return await self._store.file(segment, kind)
        except FileNotFoundError:
            return None

    def _holding(self, hosted: HostedPartition, offset: int) -> RemoteSegment | None:
        catalogue = self._catalogue_of(hosted)
        epoch = hosted.log.epochs.epoch_at(offset)
        found = None if catalogue is None or epoch is None else catalogue.holding(epoch, offset)
        return (
            found
            if found is not None and found.state is SegmentState.COPY_SEGMENT_FINISHED
            else None
        )

    async def _aborted(
        self, hosted: HostedPartition, segment: RemoteSegment, first_offset: int, end_offset: int
    ) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that overlap the records: from this segment, from the
        following ones, and from the local log.
        """
        found: list[AbortedTransaction] = []
        following: RemoteSegment | None = segment
        reached = segment.start_offset
        while following is not None:
            for each in (await self._indexes_of(following)).aborted:
                if each.last_offset >= first_offset and each.first_offset < end_offset:
                    found.append(each)
                if each.last_stable_offset >= end_offset:
                    return tuple(found)
            reached = following.end_offset + 1
            following = self._holding(hosted, reached)
        if hosted.log.is_open:
            found += [
                each
                for each in hosted.log.aborted_between(reached, hosted.log.log_end_offset)
                if each.first_offset < end_offset
            ]
        return tuple(found)

    async def _indexes_of(self, segment: RemoteSegment) -> _Indexes:
        known = self._indexes.pop(segment.segment_id, None)
        if known is None:
            aborted = (
                None
                if segment.is_transaction_index_empty
                else await self.file(segment, RemoteFile.TRANSACTIONS)
            )
            known = _Indexes(
                parse_offset_index(
                    segment.start_offset, await self._store.file(segment, RemoteFile.OFFSETS)
                ),
                parse_time_index(
                    segment.start_offset, await self._store.file(segment, RemoteFile.TIMES)
                ),
                parse_transaction_index(aborted or b""),
            )
            while len(self._indexes) >= INDEXES_MAX:
                del self._indexes[next(iter(self._indexes))]
        self._indexes[segment.segment_id] = known
        return known
