"""Reads the owner of each block of producer ids from the bytes of a metadata log and its snapshots:
the audit trail of KIP-730.

Works on the directory of any KRaft controller, of kraftsim or Apache Kafka. A snapshot contains
only the end of the last block and no owner: the records in the segments that it replaced are lost.
Source: KIP-730 (audit trail), KIP-630; ProducerIdsRecord.json,
org.apache.kafka.image.ProducerIdsImage.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from protocol.malformed import MalformedMessage
from protocol.metadata.controller import ProducerIdsRecord
from protocol.metadata.registry import parse_record
from protocol.records.batches import RecordBatch, split_batches
from protocol.storage.file_names import (
    LOG,
    METADATA_TOPIC,
    parse_metadata_snapshot_name,
    parse_segment_file_name,
    partition_directory_name,
)

METADATA_DIRECTORY: Final = partition_directory_name(METADATA_TOPIC, 0)


class TrailRow(msgspec.Struct, frozen=True, kw_only=True):
    """A record with the end of a block.

    In a snapshot `offset` is the end offset of the snapshot, in a log the record's own.

    `value_bytes`: the record; `file_bytes`: of the snapshot, 0 for a log.
    """

    node: str
    file: str
    is_snapshot: bool
    offset: int
    leader_epoch: int
    time_ms: int
    broker_id: int
    broker_epoch: int
    next_producer_id: int
    value_bytes: int
    file_bytes: int = 0


class TrailExtent(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the log that a node has: offsets first_offset .. next_offset - 1, and where
    reading failed, if it did.
    """

    node: str
    first_offset: int
    next_offset: int
    segments: int
    snapshots: int
    trouble: str = ""


class NoMetadataLog(ValueError):
    """A directory without a metadata log; the message is one line with the path."""


def metadata_directories(place: Path) -> dict[str, Path]:
    """Return the directories of metadata logs at or below a path, by the node's name: that of the
    parent directory.

    Raises NoMetadataLog.
    """
    found = [place] if place.name == METADATA_DIRECTORY else sorted(place.rglob(METADATA_DIRECTORY))
    logs = {each.resolve().parent.name: each for each in found if each.is_dir()}
    if not logs:
        raise NoMetadataLog(
            f"{place} holds no metadata log: there is no {METADATA_DIRECTORY} below it"
        )
    return logs


def read_trail(node: str, directory: Path) -> tuple[TrailExtent, list[TrailRow]]:
    """Read the data of one node: the extent of its log, and the rows of snapshots and log in the
    order of their offsets.
    """
    snapshots = sorted(
        path for path in directory.iterdir() if parse_metadata_snapshot_name(path.name) is not None
    )
    rows = [row for path in snapshots for row in _snapshot_rows(node, path)]
    segments = sorted(
        path
        for path in directory.iterdir()
        if path.suffix == LOG and parse_segment_file_name(path.name) is not None
    )
    next_offset = first_offset = _base_of(segments[0]) if segments else 0
    trouble = ""
    for path in segments:
        try:
            for batch in split_batches(path.read_bytes()):
                rows += _rows(node, path, batch)
                next_offset = batch.next_offset
        except MalformedMessage as malformed:
            trouble = f"{path.name}: {malformed.reason}"
            break
    extent = TrailExtent(
        node=node,
        first_offset=first_offset,
        next_offset=next_offset,
        segments=len(segments),
        snapshots=len(snapshots),
        trouble=trouble,
    )
    return extent, sorted(rows, key=lambda row: (row.offset, not row.is_snapshot))


def _base_of(path: Path) -> int:
    named = parse_segment_file_name(path.name)
    assert named is not None, "others were left out"
    return named.offset


def _rows(node: str, path: Path, batch: RecordBatch) -> Iterator[TrailRow]:
    if batch.is_control:
        return
    for record in batch.records():
        read = parse_record(record.value or b"")
        if isinstance(read, ProducerIdsRecord):
            yield TrailRow(
                node=node,
                file=path.name,
                is_snapshot=False,
                offset=record.offset,
                leader_epoch=batch.partition_leader_epoch,
                time_ms=record.timestamp,
                broker_id=read.broker_id,
                broker_epoch=read.broker_epoch,
                next_producer_id=read.next_producer_id,
                value_bytes=len(record.value or b""),
            )


def _snapshot_rows(node: str, path: Path) -> Iterator[TrailRow]:
    named = parse_metadata_snapshot_name(path.name)
    assert named is not None, "others were left out"
    content = path.read_bytes()
    for batch in split_batches(content):
        for row in _rows(node, path, batch):
            yield msgspec.structs.replace(
                row,
                is_snapshot=True,
                offset=named.end_offset,
                leader_epoch=named.leader_epoch,
                file_bytes=len(content),
            )
