"""Persistent state of a metadata log replica: log segments, quorum-state, snapshots; and their
recovery after any shutdown.

Everything uses Kafka's own format and layout, in `__cluster_metadata-0/`. Data that `flush` has
covered survives a power failure, and so does a quorum-state once `store_quorum_state` returns.
Source: kafka.raft.KafkaMetadataLog, org.apache.kafka.raft.FileQuorumStateStore, KIP-595, KIP-630.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraftsim.partitions.log import FlushedRecordsMissing, PartitionLog
from kraftsim.partitions.rules_log import LeaderEpochs, SegmentSettings
from kraftsim.raft.events import MetadataWritten, QuorumStateStored, SnapshotFetched
from kraftsim.raft.rules_log import FORMAT_SNAPSHOT, RaftLog, SnapshotId
from kraftsim.raft.rules_voters import DYNAMIC_VOTERS, VoterHistory, VoterSet, voter_set_of
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.events import DiskFailed
from kraftsim.server.identity import metadata_world
from kraftsim.world.interface import Disk, File, World
from protocol.malformed import MalformedMessage
from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.control_records import (
    ControlType,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    build_control_batch,
    control_type,
    parse_control_record,
)
from protocol.records.record import MalformedBatch, Record
from protocol.schema import Message
from protocol.storage.file_names import (
    DELETED_SNAPSHOT,
    METADATA_TOPIC,
    QUORUM_STATE,
    RECOVERY_POINTS,
    UNFINISHED_SNAPSHOT,
    metadata_snapshot_name,
    parse_metadata_snapshot_name,
    partition_directory_name,
    unfinished_snapshot_name,
)
from protocol.storage.quorum_state import QuorumState, build_quorum_state, parse_quorum_state
from protocol.storage.text_files import build_offset_checkpoint, parse_offset_checkpoint
from protocol.uuids import METADATA_TOPIC_ID

# --------------------------------------------------------------------------------------------------
# Metadata log snapshots on disk: `.checkpoint` files, written under another name until they are
# complete
#
# A snapshot contains the state of the log up to an offset: batches as in the log, offsets from 0
# on, between a header and a footer.
# Source: KIP-630, org.apache.kafka.snapshot.{Snapshots, FileRawSnapshotWriter,
# RecordsSnapshotWriter}.

DIRECTORY: Final = partition_directory_name(METADATA_TOPIC, 0)


class DamagedSnapshot(ValueError):
    """A snapshot file that cannot be read to its end, and the reason."""


class SnapshotFiles:
    """The snapshots of one replica. Chunks of a fetched snapshot are written at their position;
    `finish_fetched` renames the complete file."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._fetched: tuple[SnapshotId, File] | None = None
        self._attempts = 0
        self._open: dict[SnapshotId, File] = {}

    def found(self) -> list[SnapshotId]:
        """Return the snapshots on disk, oldest first, after removing unfinished and deleted
        ones.
        """
        found = []
        for name in self._disk.list(DIRECTORY):
            if name.endswith((UNFINISHED_SNAPSHOT, DELETED_SNAPSHOT)):
                self._disk.remove(f"{DIRECTORY}/{name}")
            elif (parsed := parse_metadata_snapshot_name(name)) is not None:
                found.append(SnapshotId(parsed.end_offset, parsed.leader_epoch))
        return sorted(found)

    def without_older(self, snapshots: list[SnapshotId], log_start_offset: int) -> list[SnapshotId]:
        """Delete the snapshots that end before the log start offset, and return the others."""
        for older in (each for each in snapshots if each.end_offset < log_start_offset):
            self._disk.remove(path_of(older))
        return [each for each in snapshots if each.end_offset >= log_start_offset]

    def read(self, snapshot: SnapshotId) -> Iterator[RecordBatch]:
        """Yield the batches of a snapshot, including control batches.

        Raises DamagedSnapshot at the first damaged one.
        """
        return read_batches(self._disk.read(path_of(snapshot)))

    def check(self, snapshot: SnapshotId) -> None:
        """Read a snapshot to its end. Raises DamagedSnapshot."""
        for _ in self.read(snapshot):
            pass

    def timestamp_of(self, snapshot: SnapshotId) -> int:
        """Return the timestamp of the last record that a snapshot covers.

        Raises DamagedSnapshot.
        """
        return _timestamp(next(self.read(snapshot)))

    def size_bytes(self, snapshot: SnapshotId) -> int:
        """Return the size of the file."""
        return self._file(snapshot).size_bytes

    def read_piece(self, snapshot: SnapshotId, position: int, max_bytes: int) -> bytes:
        """Return a chunk of the file."""
        return self._file(snapshot).read(position, max_bytes)

    def write_piece(self, snapshot: SnapshotId, position: int, piece: bytes | memoryview) -> None:
        """Write a chunk of a snapshot that is being fetched; position 0 starts over."""
        if position == 0:
            if self._fetched is not None:
                self._discard(self._fetched[1])
            self._fetched = (snapshot, self._begin(snapshot))
        assert self._fetched is not None and self._fetched[0] == snapshot, (
            "a snapshot is fetched from its beginning"
        )
        written_to = self._fetched[1].append([piece])
        assert written_to == position, f"a piece for {position} was written to {written_to}"

    async def finish_fetched(self, snapshot: SnapshotId) -> None:
        """Flush the fetched snapshot and give it its final name.

        Raises DamagedSnapshot; then the file is deleted.
        """
        assert self._fetched is not None and self._fetched[0] == snapshot, (
            "a snapshot is finished that was fetched"
        )
        (_, file), self._fetched = self._fetched, None
        try:
            for _ in read_batches(file.read(0, file.size_bytes)):
                pass
        except DamagedSnapshot:
            self._discard(file)
            raise
        await self._name(file, snapshot)

    async def write(
        self,
        snapshot: SnapshotId,
        batches: Iterable[Sequence[Record]],
        *,
        timestamp: int,
        kraft_version: int = 0,
        voters: VoterSet | None = None,
    ) -> int:
        """Write a complete snapshot durably, and return its size in bytes.

        `timestamp` is that of the last record that it covers.
        """
        file = self._begin(snapshot)
        for batch in snapshot_batches(
            snapshot.epoch, batches, timestamp=timestamp, kraft_version=kraft_version, voters=voters
        ):
            file.append([batch])
            await asyncio.sleep(0)
        size_bytes = file.size_bytes
        await self._name(file, snapshot)
        return size_bytes

    async def set_aside(self, snapshot: SnapshotId) -> None:
        """Rename a snapshot that is about to be deleted."""
        self._forget(snapshot)
        await self._disk.rename(path_of(snapshot), _deleted_path_of(snapshot))

    def delete(self, snapshot: SnapshotId) -> None:
        """Delete a renamed snapshot."""
        if self._disk.exists(_deleted_path_of(snapshot)):
            self._disk.remove(_deleted_path_of(snapshot))

    def close(self) -> None:
        """Close the files."""
        for file in self._open.values():
            file.close()
        self._open.clear()
        if self._fetched is not None:
            self._fetched[1].close()
            self._fetched = None

    def _begin(self, snapshot: SnapshotId) -> File:
        self._attempts += 1
        return self._disk.open(f"{DIRECTORY}/{unfinished_snapshot_name(*snapshot, self._attempts)}")

    def _discard(self, file: File) -> None:
        file.close()
        self._disk.remove(file.path)

    async def _name(self, file: File, snapshot: SnapshotId) -> None:
        """Give a complete file its final name, durably."""
        await file.flush()
        file.close()
        self._forget(snapshot)
        await self._disk.rename(file.path, path_of(snapshot))

    def _file(self, snapshot: SnapshotId) -> File:
        file = self._open.get(snapshot)
        if file is None:
            file = self._open[snapshot] = self._disk.open(path_of(snapshot))
        return file

    def _forget(self, snapshot: SnapshotId) -> None:
        file = self._open.pop(snapshot, None)
        if file is not None:
            file.close()


def path_of(snapshot: SnapshotId) -> str:
    """Return the path of a complete snapshot."""
    return f"{DIRECTORY}/{metadata_snapshot_name(*snapshot)}"


def read_batches(data: bytes) -> Iterator[RecordBatch]:
    """Yield the batches of a snapshot.

    Raises DamagedSnapshot for a wrong checksum or a missing header or footer.
    """
    kind = None
    position = 0
    try:
        for number, batch in enumerate(split_batches(data)):
            if not batch.crc_is_valid():
                raise DamagedSnapshot(
                    f"the checksum of the batch at position {batch.position} is wrong"
                )
            if not number and (
                not batch.is_control or _first_kind(batch) is not ControlType.SNAPSHOT_HEADER
            ):
                raise DamagedSnapshot("it does not begin with a header")
            kind = _last_kind(batch)
            position = batch.position + batch.size_bytes
            yield batch
    except (MalformedBatch, MalformedMessage) as malformed:
        raise DamagedSnapshot(f"position {position}: {malformed.reason}") from malformed
    if kind is not ControlType.SNAPSHOT_FOOTER or position != len(data):
        raise DamagedSnapshot(f"it ends at position {len(data)}, before its footer")


def snapshot_batches(
    epoch: int,
    batches: Iterable[Sequence[Record]],
    *,
    timestamp: int,
    kraft_version: int,
    voters: VoterSet | None,
) -> Iterator[bytes]:
    """Yield a snapshot, batch by batch: header, records, footer."""
    header: list[tuple[ControlType, Message]] = [
        (ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord(last_contained_log_timestamp=timestamp))
    ]
    if kraft_version >= DYNAMIC_VOTERS and voters is not None:
        header.append((ControlType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=kraft_version)))
        header.append((ControlType.KRAFT_VOTERS, voters.record()))
    yield build_control_batch(header, base_offset=0, timestamp=timestamp, leader_epoch=epoch)
    offset = len(header)
    for records in batches:
        yield build_batch(records, base_offset=offset, leader_epoch=epoch)
        offset += len(records)
    footer: list[tuple[ControlType, Message]] = [
        (ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord())
    ]
    yield build_control_batch(footer, base_offset=offset, timestamp=timestamp, leader_epoch=epoch)


async def write_format_snapshot(disk: Disk, voters: VoterSet, timestamp: int) -> None:
    """Write the snapshot that formatting with initial controllers creates: it contains only the
    initial voters (KIP-853).
    """
    await SnapshotFiles(disk).write(
        FORMAT_SNAPSHOT, [], timestamp=timestamp, kraft_version=DYNAMIC_VOTERS, voters=voters
    )


def _deleted_path_of(snapshot: SnapshotId) -> str:
    return path_of(snapshot).removesuffix(".checkpoint") + DELETED_SNAPSHOT


def _timestamp(batch: RecordBatch) -> int:
    record = next(iter(batch.records()))
    header = parse_control_record(record.key, record.value)
    assert isinstance(header, SnapshotHeaderRecord), "a snapshot begins with its header"
    return header.last_contained_log_timestamp


def _first_kind(batch: RecordBatch) -> ControlType | None:
    return control_type(next(iter(batch.records())).key)


def _last_kind(batch: RecordBatch) -> ControlType | None:
    return control_type(list(batch.records())[-1].key) if batch.is_control else None


# --------------------------------------------------------------------------------------------------
# The recovery point of a controller's metadata log: the flushed offset, to distinguish damage from
# a tail that was never flushed.
#
# A torn tail is truncated without loss. Flushed records may have been acknowledged: a voter that
# lost them must not vote, or the quorum loses committed records. Kafka keeps this file for
# partitions of brokers, and truncates a damaged metadata log silently: an intentional deviation.
# Source: the format is that of org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile.

KEY = (METADATA_TOPIC, 0)


class RecoveryPoint:
    """The file of one controller. It may lag behind the flushed offset, and never exceeds it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.offset = 0
        """The offset in the file; 0 if there is none."""

    def load(self) -> None:
        """Read the file. An unreadable one counts as absent."""
        try:
            self.offset = parse_offset_checkpoint(
                self._disk.read(RECOVERY_POINTS), RECOVERY_POINTS
            ).get(KEY, 0)
        except (FileNotFoundError, MalformedMessage):
            self.offset = 0

    def require(self, end_offset: int, config: NodeConfig) -> None:
        """Refuse a log that lacks flushed records. Raises ConfigError."""
        if end_offset < self.offset:
            why = f"is damaged at offset {end_offset}, and was on disk up to {self.offset}"
            raise ConfigError(
                f"{config.metadata_key}: the metadata log in {config.metadata_directory} {why}: "
                "records that were committed may be gone"
            )

    async def store(self, offset: int) -> None:
        """Write the file; everything before the offset is flushed."""
        if offset != self.offset:
            self.offset = offset
            await self._disk.replace(RECOVERY_POINTS, build_offset_checkpoint({KEY: offset}))


NO_EPOCH = -1
QUORUM_STATE_PATH = f"{DIRECTORY}/{QUORUM_STATE}"
ControlEntry = tuple[int, KRaftVersionRecord | VotersRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredStore:
    """The recovered state, as input of the Raft rules."""

    log: RaftLog
    voters: VoterHistory
    quorum_state: QuorumState | None


class SegmentedLog(PartitionLog):
    """A gapless log, of which a snapshot can replace all or the beginning."""

    def recover_without_gaps(
        self, on_batch: Callable[[RecordBatch], None], *, sure_until: int
    ) -> None:
        """Read the whole log, and truncate it at the first gap: a power failure may preserve a
        segment without the end of the previous one.

        Raises FlushedRecordsMissing if the gap is below `sure_until`; then nothing has changed.
        """
        expected: int | None = None
        gap: int | None = None

        def look(batch: RecordBatch) -> None:
            nonlocal expected, gap
            if gap is None and batch.base_offset != (
                self.log_start_offset if expected is None else expected
            ):
                gap = self.log_start_offset if expected is None else expected
            expected = batch.next_offset
            if gap is None:
                on_batch(batch)

        self.recover(look, sure_until=sure_until)
        end_offset = self.log_start_offset if expected is None else expected
        if gap is not None and gap < sure_until:
            raise FlushedRecordsMissing(gap)
        self.truncate_to(end_offset if gap is None else gap)

    def advance_log_start(self, offset: int) -> None:
        """Drop everything and continue at an offset."""
        for segment in self._segments.remove_from(self.log_start_offset):
            self._files.remove_segment(segment.base_offset)
        self.epochs = LeaderEpochs()
        self._begin_segment(offset)
        self.flushed_offset = offset

    def delete_before(self, offset: int) -> int:
        """Delete the segments that lie entirely before an offset, and return the number of deleted
        bytes.
        """
        gone = self._segments.remove_before(offset)
        assert not gone or self._segments.segments[0].base_offset <= offset, (
            "the remaining segments cover the new log start offset"
        )
        return sum([self._files.remove_segment(segment.base_offset) for segment in gone])

    @property
    def size_bytes(self) -> int:
        """The size of all segments."""
        return sum(segment.size_bytes for segment in self._segments.segments)


class MetadataStore:
    """The files of one replica.

    Call `load` first; `on_rolled` is called when a segment is complete and must be flushed soon.

    OSErrors of the disk are passed on; after one, this object must not be used any more.
    """

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        *,
        on_rolled: Callable[[], None] | None = None,
        has_recovery_point: bool = False,
    ) -> None:
        self._world = world = metadata_world(world, config)
        self._config = config
        self._recovery_point = RecoveryPoint(world.disk) if has_recovery_point else None
        """For a voter: records below it must not be lost, because they were flushed."""
        self._recovery_point_ms = world.clock.monotonic_ms()
        self._log = SegmentedLog(
            world,
            METADATA_TOPIC,
            0,
            SegmentSettings(
                segment_bytes=config.metadata_log_segment_bytes,
                segment_ms=config.metadata_log_segment_ms,
            ),
            on_rolled=on_rolled,
        )
        self._has_new_epochs = False
        self._base_epoch = NO_EPOCH
        """The epoch of the last record before the log start, which a snapshot covers."""
        self._changing = asyncio.Lock()
        """Held while files are flushed, truncated or deleted: a flush must not hit a segment that
        is being deleted.
        """
        self.snapshots = SnapshotFiles(world.disk)
        self.bytes_since_snapshot = 0
        """The size of the log that no snapshot covers."""

    @property
    def log_end_offset(self) -> int:
        """The first offset that is not in the files."""
        return self._log.log_end_offset

    @property
    def log_bytes(self) -> int:
        """The size of the log in bytes."""
        return self._log.size_bytes

    async def load(self, static_voters: VoterSet) -> RecoveredStore:
        """Recover everything and flush it. Raises ConfigError for files that cannot be trusted."""
        quorum_state = self._read_quorum_state()
        snapshots = self.snapshots.found()
        controls: list[ControlEntry] = []

        def take(batch: RecordBatch) -> None:
            controls.extend(voter_records(batch))
            if not snapshots or batch.base_offset >= snapshots[-1].end_offset:
                self.bytes_since_snapshot += batch.size_bytes

        try:
            self._log.recover_without_gaps(take, sure_until=self._flushed_until(snapshots))
        except FlushedRecordsMissing as missing:
            assert self._recovery_point is not None, "the recovery point defines what is flushed"
            self._recovery_point.require(missing.offset, self._config)
        except MalformedMessage as malformed:
            raise ConfigError(
                f"{self._config.metadata_key}: the metadata log in "
                f"{self._config.metadata_directory} cannot be read: {malformed}"
            ) from malformed
        snapshots = self._usable(snapshots)
        latest = snapshots[-1] if snapshots else None
        if latest is not None and latest > FORMAT_SNAPSHOT and self._ends_before(latest):
            self._log.advance_log_start(latest.end_offset)
        if latest is not None and latest > FORMAT_SNAPSHOT:
            self._base_epoch = latest.epoch
        snapshots = self.snapshots.without_older(snapshots, self._log.log_start_offset)
        if self._recovery_point is not None:
            self._recovery_point.require(self._log.log_end_offset, self._config)
        voters = self._voters(static_voters, latest, controls)
        if self._log.stored_topic_id() != METADATA_TOPIC_ID:
            await self._log.store_topic_id(METADATA_TOPIC_ID)
        await self._log.store_epochs()
        await self._log.flush()
        log = RaftLog(
            start_offset=self._log.log_start_offset,
            end_offset=self._log.log_end_offset,
            epoch_starts=self._log.epochs.starts,
            snapshots=snapshots,
        )
        return RecoveredStore(log=log, voters=voters, quorum_state=quorum_state)

    def close(self) -> None:
        """Close the files; flush before."""
        self.snapshots.close()
        self._log.close()

    def abort(self) -> None:
        """Abandon the files as they are, as a killed process would."""
        self.snapshots.close()
        self._log.abort()

    # Log
    # ----------------------------------------------------------------------------------------------

    def append(self, batch: bytes | memoryview) -> None:
        """Append batches as they are; their offsets are set."""
        self.append_opened(split_batches(memoryview(batch)))

    def append_opened(self, batches: Iterable[RecordBatch]) -> None:
        """Append batches that the caller has already parsed."""
        log = self._log
        for one in batches:
            previous_epoch, epoch = log.epochs.latest_epoch, one.partition_leader_epoch
            last_offset, size_bytes = one.last_offset, one.size_bytes
            log.append(
                [memoryview(one.buffer)[one.position : one.position + size_bytes]],
                first_offset=one.base_offset,
                last_offset=last_offset,
                size_bytes=size_bytes,
                max_timestamp=one.max_timestamp,
                leader_epoch=epoch,
            )
            self.bytes_since_snapshot += size_bytes
            if epoch != previous_epoch:
                self._has_new_epochs = True
            self._world.emit(
                MetadataWritten(
                    epoch=epoch,
                    first_offset=one.base_offset,
                    last_offset=last_offset,
                    previous_epoch=self._base_epoch if previous_epoch is None else previous_epoch,
                    crc=one.crc,
                )
            )

    def read(self, offset: int, max_bytes: int, end_offset: int) -> memoryview:
        """Return complete batches from the one that contains `offset`, all below end_offset; the
        first one whatever its size.
        """
        return self._log.read(offset, max_bytes, end_offset)

    async def flush(self) -> int:
        """Flush everything written before this call, and return the flushed end offset."""
        async with self._changing:
            if self._has_new_epochs:
                self._has_new_epochs = False
                await self._log.store_epochs()
            flushed_offset = await self._log.flush()
        now_ms = self._world.clock.monotonic_ms()
        if now_ms - self._recovery_point_ms >= self._config.log_flush_offset_checkpoint_interval_ms:
            self._recovery_point_ms = now_ms
            await self.store_recovery_point(flushed_offset)
        return flushed_offset

    async def store_recovery_point(self, flushed_offset: int) -> None:
        """Write the recovery point: everything before an offset is flushed."""
        if self._recovery_point is not None:
            await self._recovery_point.store(flushed_offset)

    async def truncate_to(self, end_offset: int) -> None:
        """Truncate the log to an end offset."""
        async with self._changing:
            await self._lower_recovery_point(end_offset)
            self._log.truncate_to(end_offset)
            self._has_new_epochs = True
            await self._log.complete_truncation()
            assert self._log.log_end_offset == end_offset, (
                f"the log is truncated between batches, not at {end_offset}"
            )

    async def _lower_recovery_point(self, end_offset: int) -> None:
        """The log is about to be truncated: lower the recovery point first."""
        if self._recovery_point is not None and self._recovery_point.offset > end_offset:
            await self._recovery_point.store(end_offset)

    def begin_counting(self) -> None:
        """A snapshot is about to be written: count the bytes that it does not cover from here
        on.
        """
        self.bytes_since_snapshot = 0

    # Snapshots
    # ----------------------------------------------------------------------------------------------

    async def install(self, snapshot: SnapshotId) -> tuple[VoterSet | None, int]:
        """Replace the log by a fetched snapshot; return the voters that it contains (None: none)
        and its kraft.version.

        Raises DamagedSnapshot; then nothing has changed.
        """
        await self.snapshots.finish_fetched(snapshot)
        self._world.emit(SnapshotFetched(end_offset=snapshot.end_offset, epoch=snapshot.epoch))
        async with self._changing:
            await self._lower_recovery_point(snapshot.end_offset)
            self._log.advance_log_start(snapshot.end_offset)
            self._base_epoch = snapshot.epoch
            self._has_new_epochs = True
        self.bytes_since_snapshot = 0
        await self.flush()
        history = self._voters(VoterSet(), snapshot, [])
        return (
            history.latest if history.latest_offset is not None else None
        ), history.kraft_version

    async def delete_before(self, snapshot: SnapshotId, older: list[SnapshotId]) -> None:
        """Advance the log start offset to a snapshot, as far as whole segments lie before it; older
        snapshots are renamed for deletion.
        """
        async with self._changing:
            for gone in older:
                await self.snapshots.set_aside(gone)
            self._log.delete_before(snapshot.end_offset)
            self._has_new_epochs = True
        await self.flush()

    # Quorum state
    # ----------------------------------------------------------------------------------------------

    async def store_quorum_state(self, state: QuorumState, data_version: int) -> None:
        """Write quorum-state durably."""
        await self._world.disk.replace(QUORUM_STATE_PATH, build_quorum_state(state, data_version))
        self._world.emit(
            QuorumStateStored(
                leader_epoch=state.leader_epoch, leader_id=state.leader_id, voted_id=state.voted_id
            )
        )

    def _read_quorum_state(self) -> QuorumState | None:
        """Return the content of the file; None if there is none. An unreadable file is refused: a
        guessed epoch or vote could fork the log.
        """
        try:
            return parse_quorum_state(self._world.disk.read(QUORUM_STATE_PATH))
        except FileNotFoundError:
            return None
        except MalformedMessage as malformed:
            raise ConfigError(
                f"{self._config.metadata_key}: {QUORUM_STATE_PATH} cannot be read: "
                f"{malformed.reason}"
            ) from malformed

    # Loading
    # ----------------------------------------------------------------------------------------------

    def _flushed_until(self, snapshots: list[SnapshotId]) -> int:
        """Return the offset up to which the log is known to be flushed and not covered by a
        snapshot.
        """
        if self._recovery_point is None:
            return 0
        self._recovery_point.load()
        return (
            0
            if snapshots and snapshots[-1].end_offset >= self._recovery_point.offset
            else self._recovery_point.offset
        )

    def _ends_before(self, snapshot: SnapshotId) -> bool:
        """Return whether the log ends before a snapshot: the node stopped after fetching it, or the
        files are inconsistent.
        """
        last_epoch = self._log.epochs.latest_epoch or 0
        return last_epoch < snapshot.epoch or self._log.log_end_offset < snapshot.end_offset

    def _usable(self, snapshots: list[SnapshotId]) -> list[SnapshotId]:
        """Return the snapshots without a damaged newest one, if the log contains everything it
        covered.

        Raises ConfigError otherwise.
        """
        damaged: DamagedSnapshot | None = None
        while snapshots:
            try:
                self.snapshots.check(snapshots[-1])
                break
            except DamagedSnapshot as found:
                damaged = found
                path = path_of(snapshots[-1])
                self._world.emit(DiskFailed(path=path, operation="read", reason=str(found)))
                if snapshots[-1] == FORMAT_SNAPSHOT or self._ends_before(snapshots[-1]):
                    raise ConfigError(
                        f"{self._config.metadata_key}: {path} is damaged: {found}, and the log "
                        "lacks what it covers"
                    ) from found
                snapshots = snapshots[:-1]
        start_offset = self._log.log_start_offset
        if start_offset and (not snapshots or snapshots[-1].end_offset < start_offset):
            why = (
                f"the snapshot of the earlier records is damaged: {damaged}"
                if damaged is not None
                else "no snapshot covers the earlier records"
            )
            raise ConfigError(
                f"{self._config.metadata_key}: the metadata log in "
                f"{self._config.metadata_directory} begins at offset {start_offset}, and {why}"
            )
        return snapshots

    def _voters(
        self, static_voters: VoterSet, snapshot: SnapshotId | None, controls: list[ControlEntry]
    ) -> VoterHistory:
        history = VoterHistory(static_voters)
        first_offset = 0
        if snapshot is not None:
            first_offset = snapshot.end_offset
            for _, record in voter_records(next(self.snapshots.read(snapshot))):
                _add(history, first_offset - 1, record)
        for offset, record in controls:
            if first_offset <= offset < self._log.log_end_offset:
                _add(history, offset, record)
        return history


def voter_records(batch: RecordBatch) -> Iterator[ControlEntry]:
    """Yield the voter set records of a batch, with their offsets. Raises MalformedMessage."""
    if not batch.is_control:
        return
    for record in batch.records():
        if control_type(record.key) in (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS):
            message = parse_control_record(record.key, record.value)
            assert isinstance(message, KRaftVersionRecord | VotersRecord), (
                "the record type was checked"
            )
            yield record.offset, message


def _add(history: VoterHistory, offset: int, record: KRaftVersionRecord | VotersRecord) -> None:
    if isinstance(record, KRaftVersionRecord):
        history.add_version(offset, record.k_raft_version)
    else:
        history.add_voters(offset, voter_set_of(record))
