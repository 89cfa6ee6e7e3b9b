"""The final state of the controllers' disks after a run: metadata logs and snapshots, decoded from
their bytes, as input of invariants.

Independent of the nodes' memory and code: records are applied to the unmodified image, whatever
bugs the nodes had.
Source: KIP-630, org.apache.kafka.image.MetadataImage.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.metadata.snapshot import snapshot_records
from kraftsim.events.raft import FinalMetadata, FinalMetadataLog
from protocol.batches import RecordBatch, split_batches
from protocol.control_records import SnapshotHeaderRecord, parse_control_record
from protocol.disk.file_names import parse_metadata_snapshot_name
from protocol.malformed import MalformedMessage
from protocol.metadata.registry import build_record, parse_record

METADATA_PATH: Final = re.compile(r"(?P<node>[^/]+)/(?:.*/)?__cluster_metadata-0/(?P<name>[^/]+)")
LOG_NAME: Final = re.compile(r"\d{20}\.log")
BEGINNING: Final = 0
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1


@dataclass(slots=True)
class _Disk:
    """The metadata log and the snapshots of one node."""

    segments: list[tuple[str, bytes]] = field(default_factory=list)
    snapshots: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """End offset -> epoch and bytes."""

    def batches(self) -> list[RecordBatch]:
        """Return the batches of the log up to the first torn or corrupt one."""
        found: list[RecordBatch] = []
        for _, data in sorted(self.segments):
            for batch in _intact(data):
                if found and batch.base_offset != found[-1].next_offset:
                    return found
                found.append(batch)
        return found


def final_metadata_events(files: Mapping[str, bytes]) -> Iterator[FinalMetadata | FinalMetadataLog]:
    """Yield the end of each log, and the image at its end and at each snapshot's end: from the log,
    and from each snapshot plus the log after it.

    `files` maps 'NODE/__cluster_metadata-0/FILE' to bytes; other paths are ignored.
    """
    disks = _disks(files)
    places = {
        end_offset for disk in disks.values() for end_offset in disk.snapshots
    }  # for membership only, never iterated
    for node, disk in disks.items():
        batches = disk.batches()
        if disk.segments:
            first_offset = (
                batches[0].base_offset
                if batches
                else int(min(disk.segments)[0].removesuffix(".log"))
            )
            end_offset = max(
                batches[-1].next_offset if batches else first_offset, *disk.snapshots, BEGINNING
            )
            yield FinalMetadataLog(
                controller=node, first_offset=first_offset, end_offset=end_offset
            )
        for from_offset in (BEGINNING, *sorted(disk.snapshots)):
            snapshot = disk.snapshots.get(from_offset)
            if snapshot is not None or (batches and batches[0].base_offset == BEGINNING):
                yield from _said(node, from_offset, snapshot, batches, places)


def _disks(files: Mapping[str, bytes]) -> dict[str, _Disk]:
    disks: dict[str, _Disk] = {}
    for path in sorted(files):
        found = METADATA_PATH.fullmatch(path)
        if found is None:
            continue
        disk = disks.setdefault(found["node"], _Disk())
        snapshot = parse_metadata_snapshot_name(found["name"])
        if LOG_NAME.fullmatch(found["name"]):
            disk.segments.append((found["name"], files[path]))
        elif snapshot is not None and snapshot.end_offset > BEGINNING:
            disk.snapshots[snapshot.end_offset] = (snapshot.leader_epoch, files[path])
    return disks


def _said(
    node: str,
    from_offset: int,
    snapshot: tuple[int, bytes] | None,
    batches: Sequence[RecordBatch],
    places: Collection[int],
) -> Iterator[FinalMetadata]:
    image, epoch, next_offset, timestamp = MetadataImage(), NO_EPOCH, from_offset, NO_TIMESTAMP
    if snapshot is not None:
        epoch, timestamp = snapshot[0], _header_timestamp(snapshot[1])
        for batch in _intact(snapshot[1]):
            for _, record in _entries(batch):
                if record is not None:
                    image.load(parse_record(record))
        image.skip(from_offset - 1)
        yield _event(node, from_offset, next_offset, epoch, _digest(image, timestamp))
    reported_offset = next_offset
    for batch in batches:
        if batch.base_offset > next_offset:
            return  # the log starts after the snapshot
        for offset, record in _entries(batch):
            if offset < next_offset:
                continue
            if record is None:
                image.skip(offset)
            else:
                image.replay(parse_record(record), offset)
            next_offset, epoch, timestamp = (
                offset + 1,
                batch.partition_leader_epoch,
                batch.max_timestamp,
            )
            if next_offset in places and not image.is_in_transaction:
                reported_offset = next_offset
                yield _event(node, from_offset, next_offset, epoch, _digest(image, timestamp))
    if reported_offset != next_offset and not image.is_in_transaction:
        yield _event(node, from_offset, next_offset, epoch, _digest(image, timestamp))


def _event(node: str, from_offset: int, end_offset: int, epoch: int, digest: str) -> FinalMetadata:
    return FinalMetadata(
        controller=node, from_offset=from_offset, end_offset=end_offset, epoch=epoch, digest=digest
    )


def _digest(image: MetadataImage, timestamp: int) -> str:
    """Digest the contents of a snapshot; `timestamp` is that of the last contained record, which is
    in its header.
    """
    level = image.metadata_level
    digest = hashlib.sha256(str(timestamp).encode())
    for record in snapshot_records(image):
        digest.update(build_record(record, level.record_version(record)))
    return digest.hexdigest()[:16]


def _header_timestamp(snapshot: bytes) -> int:
    for batch in _intact(snapshot):
        for record in batch.records():
            header = parse_control_record(record.key, record.value)
            return (
                header.last_contained_log_timestamp
                if isinstance(header, SnapshotHeaderRecord)
                else NO_TIMESTAMP
            )
    return NO_TIMESTAMP


def _entries(batch: RecordBatch) -> Iterator[tuple[int, bytes | None]]:
    """Yield the offsets of a batch with their records; None stands for control records and the
    like.
    """
    if batch.is_control:
        yield from ((offset, None) for offset in range(batch.base_offset, batch.next_offset))
        return
    for record in batch.records():
        assert record.value is not None, "a metadata record has a value"
        yield record.offset, bytes(record.value)


def _intact(data: bytes) -> Iterator[RecordBatch]:
    try:
        for batch in split_batches(data):
            if not batch.crc_is_valid():
                return
            yield batch
    except MalformedMessage:
        return
