"""The metadata log of the active controller: records go in as batches, are flushed in groups, and come out committed.

`append` writes at once and returns; one task flushes. While a flush is under way further batches are written, and the next flush covers them all.
Nothing is answered before the high watermark says so, and the leader's own log counts for it only once it is flushed (docs/deviations.md).
Source: org.apache.kafka.raft.{KafkaRaftClient, internals.BatchAccumulator}, org.apache.kafka.server.common.serialization.MetadataRecordSerde.
"""

import asyncio
from collections.abc import Callable, Sequence

from kraftsim.core.metadata.controller_state import kinds_of
from kraftsim.core.raft.leader_log import AppendedOffsets, LeaderLog
from kraftsim.events.nodes import DiskFailed
from kraftsim.node.log import PartitionLog
from kraftsim.world.interface import World
from protocol.batches import RecordBatch, build_batch
from protocol.control_records import build_leader_change
from protocol.metadata.registry import build_record, parse_record
from protocol.records import Record
from protocol.schema import Message
from protocol.uuids import METADATA_TOPIC_ID

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""MAX_BATCH_SIZE_BYTES of the raft client."""
READ_BYTES_MAX = 8 * 1024 * 1024
"""MAX_FETCH_SIZE_BYTES: what one Fetch is answered at most, whatever it asks for."""
LEADER_CHANGE_KIND = "LeaderChange"


class BatchTooLarge(ValueError):
    """The records of one decision are more than a follower could fetch at once.   Source: RecordBatchTooLargeException."""


class MetadataLog:
    """The log of one leader epoch. `on_committed(high_watermark)` hears each time the high watermark moved."""

    def __init__(self, world: World, log: PartitionLog, leader: LeaderLog, on_committed: Callable[[int], None]) -> None:
        self._world = world
        self._log = log
        self._leader = leader
        self._on_committed = on_committed
        self._has_unflushed = asyncio.Event()
        self._last_read: tuple[tuple[int, int], memoryview] = ((-1, -1), memoryview(b""))

    @property
    def leader_epoch(self) -> int:
        """The epoch that this node leads."""
        return self._leader.leader_epoch

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._leader.log_end_offset

    @property
    def high_watermark(self) -> int | None:
        """The first offset that is not committed; None until the LeaderChange record of this epoch is."""
        return self._leader.known_high_watermark

    @property
    def is_settled(self) -> bool:
        """Whether everything appended is committed."""
        return self._leader.knows_high_watermark and self._leader.high_watermark == self._leader.log_end_offset

    def append_leader_change(self, node_id: int) -> None:
        """Write the record that opens the epoch."""
        offsets = self._leader.append(1, LEADER_CHANGE_KIND)
        timestamp = self._world.clock.wall_ms()
        self._write(
            build_leader_change(
                leader_id=node_id,
                voters=[node_id],
                granting_voters=[node_id],
                base_offset=offsets.first_offset,
                leader_epoch=self.leader_epoch,
                timestamp=timestamp,
            ),
            offsets,
            timestamp,
        )

    def append(self, records: Sequence[Message], record_version: Callable[[Message], int]) -> AppendedOffsets:
        """Write records as one batch and return their offsets. Call `advance` once they are replayed.

        Raises BatchTooLarge before anything happened, or OSError: then the log is lost.
        """
        timestamp = self._world.clock.wall_ms()
        batch = build_batch(
            [Record(timestamp=timestamp, value=build_record(record, record_version(record))) for record in records],
            base_offset=self.log_end_offset,
            leader_epoch=self.leader_epoch,
        )
        if len(batch) > BATCH_BYTES_MAX:
            raise BatchTooLarge(f"a batch of {len(batch)} bytes exceeds the maximum of {BATCH_BYTES_MAX}")
        offsets = self._leader.append(len(records), kinds_of(records))
        self._write(batch, offsets, timestamp)
        return offsets

    def advance(self) -> None:
        """Take note that what was appended is also replayed: from here on it may be found committed."""
        self._commit(self._leader.on_written())
        self._has_unflushed.set()

    async def flush_forever(self) -> None:
        """Flush whenever something was appended. Raises OSError when the disk refuses: what was not durable may be lost, so the node must go down."""
        while True:
            await self._has_unflushed.wait()
            await self.flush()

    async def flush(self) -> None:
        """Flush everything appended so far, in one go, and commit it."""
        self._has_unflushed.clear()
        try:
            flushed_offset = await self._log.flush()
        except OSError as refused:
            self._world.note(DiskFailed(path=self._log.directory, operation="flush", reason=str(refused)))
            raise
        self._commit(self._leader.on_flushed(flushed_offset))

    def read(self, offset: int) -> memoryview:
        """Return whole batches from an offset on, committed or not. Followers mostly ask for the same: the last answer is kept."""
        wanted = (offset, self.log_end_offset)
        if wanted != self._last_read[0]:
            self._last_read = (wanted, self._log.read(offset, READ_BYTES_MAX, self.log_end_offset))
        return self._last_read[1]

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) up to which a follower's log may agree with this one; None if it agrees as far as it says."""
        if last_fetched_epoch == self._leader.leader_epoch and fetch_offset <= self._leader.log_end_offset:
            return None  # the usual case: a follower that reads along in this epoch
        if fetch_offset == 0 and self.log_start_offset == 0:
            return None
        epoch, end_offset = self._log.epochs.end_offset_for(last_fetched_epoch, self.log_end_offset)
        return None if epoch == last_fetched_epoch and end_offset >= fetch_offset else (epoch, end_offset)

    def _write(self, batch: bytes, offsets: AppendedOffsets, timestamp: int) -> None:
        try:
            self._log.append(
                [batch],
                first_offset=offsets.first_offset,
                last_offset=offsets.last_offset,
                size_bytes=len(batch),
                max_timestamp=timestamp,
                leader_epoch=self.leader_epoch,
            )
        except OSError as refused:
            self._world.note(DiskFailed(path=self._log.directory, operation="write", reason=str(refused)))
            raise

    def _commit(self, high_watermark: int | None) -> None:
        if high_watermark is not None:
            self._on_committed(high_watermark)


async def recover_metadata_log(log: PartitionLog, on_record: Callable[[Message, int], None]) -> int:
    """Read a log back, hand on each metadata record with its offset, and return the epoch of the last batch (0 for an empty log).

    Control records take an offset and are for nobody here. What was read back may still be in memory only: flush before it counts.
    """
    last_epoch = 0

    def take(batch: RecordBatch) -> None:
        nonlocal last_epoch
        last_epoch = batch.partition_leader_epoch
        if not batch.is_control:
            for record in batch.records():
                assert record.value is not None, "a metadata record has a value"
                on_record(parse_record(record.value), record.offset)

    log.recover(take)
    if log.stored_topic_id() != METADATA_TOPIC_ID:
        await log.store_topic_id(METADATA_TOPIC_ID)
    return last_epoch
