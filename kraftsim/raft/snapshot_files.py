"""Metadata log snapshots on disk: `.checkpoint` files, written under another name until they are
complete.

A snapshot contains the state of the log up to an offset: batches as in the log, offsets from 0 on,
between a header and a footer.
Source: KIP-630, org.apache.kafka.snapshot.{Snapshots, FileRawSnapshotWriter,
RecordsSnapshotWriter}.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kraftsim.raft.rules_log import FORMAT_SNAPSHOT, SnapshotId
from kraftsim.raft.rules_voters import DYNAMIC_VOTERS, VoterSet
from kraftsim.world.interface import Disk, File
from protocol.malformed import MalformedMessage
from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.control_records import (
    ControlType,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    build_control_batch,
    control_type,
    parse_control_record,
)
from protocol.records.record import MalformedBatch, Record
from protocol.schema import Message
from protocol.storage.file_names import (
    DELETED_SNAPSHOT,
    METADATA_TOPIC,
    UNFINISHED_SNAPSHOT,
    metadata_snapshot_name,
    parse_metadata_snapshot_name,
    partition_directory_name,
    unfinished_snapshot_name,
)

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
