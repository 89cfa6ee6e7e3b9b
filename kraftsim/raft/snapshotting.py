"""Writes snapshots of the metadata log by size and age, and advances the log start offset to an
older snapshot when the log is too large.

The committed state is computed from disk, starting at the latest snapshot: that costs nothing while
nothing is due, and needs no second copy of all metadata in memory. A snapshot ends at a batch
boundary, never inside a metadata transaction.
Source: org.apache.kafka.image.publisher.{SnapshotGenerator, SnapshotEmitter},
kafka.raft.KafkaMetadataLog (maybeClean), KIP-630, KIP-876.
"""

import asyncio
import errno
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from kraftsim.metadata.rules_image import MetadataImage, snapshot_records
from kraftsim.raft.events import SnapshotWritten
from kraftsim.raft.metadata_store import DIRECTORY, DamagedSnapshot
from kraftsim.raft.raft_node import RaftNode
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import YieldPoint
from protocol.metadata.registry import build_record, parse_record
from protocol.records.batches import RecordBatch, split_batches
from protocol.records.record import Record

READ_BYTES: Final = 256 * 1024
"""The bytes read at a time; other tasks of the node run in between."""
RECORDS_PER_BATCH: Final = 1000
DELETE_DELAY_MS: Final = 60_000
"""How long a renamed snapshot may still be read: file.delete.delay.ms."""
CLEAN_INTERVAL_MS: Final = 60_000
"""The interval of the size and age checks."""


class Snapshotting:
    """The snapshot writer of one replica.

    `run` is a task of the node; call `on_grown` after each advance of the high watermark.
    """

    def __init__(
        self, shell: NodeShell, raft: RaftNode, new_image: Callable[[], MetadataImage]
    ) -> None:
        self._shell = shell
        self._config = shell.config
        self._raft = raft
        self._new_image = new_image
        self._is_due = asyncio.Event()

    async def run(self) -> None:
        """Write and clean until cancelled; a failed disk or a damaged snapshot stops the node."""
        try:
            await self._run()
        except OSError as refused:
            self._shell.fail_disk(DIRECTORY, "snapshot", refused)
        except DamagedSnapshot as damaged:
            self._shell.fail_disk(
                DIRECTORY,
                "snapshot",
                OSError(errno.EIO, f"the oldest snapshot is damaged: {damaged}"),
            )

    async def _run(self) -> None:
        interval_ms = self._config.metadata_log_max_snapshot_interval_ms
        last_written_ms = self._raft.now_ms()
        while True:
            due_ms = last_written_ms + interval_ms if interval_ms else None
            await self._wait(due_ms)
            is_aged = due_ms is not None and self._raft.now_ms() >= due_ms
            if is_aged or self._has_grown():
                await self.write()
                last_written_ms = self._raft.now_ms()
            await self.clean()

    def on_grown(self) -> None:
        """Check whether enough was written for another snapshot."""
        if self._has_grown():
            self._is_due.set()

    async def write(self) -> SnapshotId | None:
        """Write a snapshot of the committed state; None if there is nothing new, or if a snapshot
        of the leader was installed meanwhile.
        """
        raft = self._raft
        installed_count = raft.installed_count
        raft.store.begin_counting()
        image, last = await self._fold(raft.high_watermark or 0)
        await self._shell.world.yield_point(YieldPoint.SNAPSHOT_BUILT)
        if last is None or image.is_in_transaction or installed_count != raft.installed_count:
            return None
        snapshot = self._id_behind(last)
        voters = raft.quorum.voters
        size_bytes = await raft.store.snapshots.write(
            snapshot,
            self._batches(image),
            timestamp=last.max_timestamp,
            kraft_version=voters.kraft_version_at(last.last_offset),
            voters=voters.voters_at(last.last_offset),
        )
        if installed_count != raft.installed_count:
            raft.superseded.append(snapshot)
            return None
        raft.quorum.log.add_snapshot(snapshot)
        self._shell.world.emit(
            SnapshotWritten(
                end_offset=snapshot.end_offset, epoch=snapshot.epoch, size_bytes=size_bytes
            )
        )
        return snapshot

    async def clean(self) -> None:
        """Advance the log start offset to the next snapshot while the log is too large or its
        oldest snapshot too old; the newest snapshot is always kept.
        """
        raft = self._raft
        log, store = raft.quorum.log, raft.store
        superseded, raft.superseded = raft.superseded, []
        for snapshot in superseded:
            await store.snapshots.set_aside(snapshot)
        self._delete_later(superseded)
        while len(log.snapshots) > 1 and self._must_delete(log.snapshots):
            following = log.snapshots[1]
            gone = log.delete_before(following)
            await store.delete_before(following, gone)
            self._delete_later(gone)

    def _has_grown(self) -> bool:
        return (
            self._raft.store.bytes_since_snapshot
            >= self._config.metadata_log_max_record_bytes_between_snapshots
        )

    async def _wait(self, due_ms: int | None) -> None:
        """Wait until something may be due: enough is written, a snapshot is old enough, or the next
        size check is due.
        """
        pauses_ms = [] if due_ms is None else [due_ms - self._raft.now_ms()]
        if len(self._raft.quorum.log.snapshots) > 1 or self._raft.superseded:
            pauses_ms.append(CLEAN_INTERVAL_MS)
        timeout = max(0, min(pauses_ms)) / 1000 if pauses_ms else None
        try:
            async with asyncio.timeout(timeout):
                await self._is_due.wait()
        except TimeoutError:
            pass
        self._is_due.clear()

    async def _fold(self, committed: int) -> tuple[MetadataImage, RecordBatch | None]:
        """Return the image of the committed state, and its last batch; None if the latest snapshot
        covers everything.
        """
        raft, image = self._raft, self._new_image()
        offset, last, last_whole = 0, None, None
        latest = raft.quorum.log.latest_snapshot
        if latest is not None:
            offset = latest.end_offset
            for batch in raft.store.snapshots.read(latest):
                _load(image, batch)
                await asyncio.sleep(0)
            image.skip(offset - 1)
        while offset < committed and (data := raft.store.read(offset, READ_BYTES, committed)):
            for last in split_batches(data):
                _replay(image, last)
                last_whole = last_whole if image.is_in_transaction else last
                offset = last.next_offset
            await asyncio.sleep(0)
        if image.is_in_transaction and last_whole is not None:
            return await self._fold(last_whole.next_offset)
        return image, last_whole

    def _id_behind(self, last: RecordBatch) -> SnapshotId:
        """Return the id of the snapshot that ends with a batch: the first offset that it does not
        contain (KAFKA-14618).
        """
        return SnapshotId(last.next_offset, last.partition_leader_epoch)

    def _batches(self, image: MetadataImage) -> Iterator[list[Record]]:
        timestamp, level = self._raft.wall_ms(), image.metadata_level
        records = (
            Record(timestamp=timestamp, value=build_record(record, level.record_version(record)))
            for record in snapshot_records(image)
        )
        while batch := list(islice(records, RECORDS_PER_BATCH)):
            yield batch

    def _must_delete(self, snapshots: list[SnapshotId]) -> bool:
        """Return whether the oldest snapshot, and the log before the next one, must be deleted."""
        store, config = self._raft.store, self._config
        if (
            0
            <= config.metadata_max_retention_bytes
            < store.log_bytes + sum(store.snapshots.size_bytes(each) for each in snapshots)
        ):
            return True
        if config.metadata_max_retention_ms < 0:
            return False
        return (
            self._raft.wall_ms() - store.snapshots.timestamp_of(snapshots[0])
            > config.metadata_max_retention_ms
        )

    def _delete_later(self, gone: list[SnapshotId]) -> None:
        for snapshot in gone:
            asyncio.get_running_loop().call_later(DELETE_DELAY_MS / 1000, self._delete, snapshot)

    def _delete(self, snapshot: SnapshotId) -> None:
        if not self._shell.is_dead:
            self._raft.store.snapshots.delete(snapshot)


def _load(image: MetadataImage, batch: RecordBatch) -> None:
    """Apply a batch of a snapshot."""
    if not batch.is_control:
        for record in batch.records():
            assert record.value is not None, "a metadata record has a value"
            image.load(parse_record(record.value))


def _replay(image: MetadataImage, batch: RecordBatch) -> None:
    """Apply a batch of the log."""
    if batch.is_control:
        image.skip(batch.last_offset)
        return
    for record in batch.records():
        assert record.value is not None, "a metadata record has a value"
        image.replay(parse_record(record.value), record.offset)
