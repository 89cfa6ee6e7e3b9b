"""A snapshot of the metadata log, and bootstrap.checkpoint, which is one of an empty cluster:
batches between a header and a footer.

Offsets in the file count from 0 and have no meaning; its name contains what it covers. A file
without the footer is incomplete.
Source: KIP-630, KIP-778 (bootstrap.checkpoint), RecordsSnapshotWriter, BatchFileWriter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocol.malformed import MalformedFile, MalformedMessage
from protocol.metadata.registry import parse_record
from protocol.records.batches import NO_PRODUCER_ID, RecordBatch, build_batch, split_batches
from protocol.records.control_records import (
    ControlType,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    build_control_batch,
    control_type,
    parse_control_record,
)
from protocol.records.record import Record
from protocol.schema import Message

FILE: Final = "metadata snapshot"
BOOTSTRAP_EPOCH: Final = 0
RECORDS_PER_BATCH: Final = 1024
_BEFORE_RECORDS: Final = (
    ControlType.SNAPSHOT_HEADER,
    ControlType.KRAFT_VERSION,
    ControlType.KRAFT_VOTERS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSnapshot:
    """The contents; kraft_version and voters are None in a cluster with static voters."""

    last_contained_log_timestamp: int
    records: tuple[Message, ...]
    kraft_version: int | None = None
    voters: VotersRecord | None = None


def build_metadata_snapshot(
    values: Sequence[bytes],
    *,
    timestamp: int,
    leader_epoch: int = BOOTSTRAP_EPOCH,
    last_contained_log_timestamp: int = 0,
) -> bytes:
    """Return the file.

    `values` are metadata records as built by `metadata.registry.build_record`.
    """
    header = SnapshotHeaderRecord(
        version=0, last_contained_log_timestamp=last_contained_log_timestamp
    )
    batches = [
        build_control_batch(
            [(ControlType.SNAPSHOT_HEADER, header)],
            base_offset=0,
            timestamp=timestamp,
            leader_epoch=leader_epoch,
        )
    ]
    offset = 1
    for first in range(0, len(values), RECORDS_PER_BATCH):
        records = [
            Record(timestamp=timestamp, value=value)
            for value in values[first : first + RECORDS_PER_BATCH]
        ]
        batches.append(build_batch(records, base_offset=offset, leader_epoch=leader_epoch))
        offset += len(records)
    footer = SnapshotFooterRecord(version=0)
    batches.append(
        build_control_batch(
            [(ControlType.SNAPSHOT_FOOTER, footer)],
            base_offset=offset,
            timestamp=timestamp,
            leader_epoch=leader_epoch,
        )
    )
    return b"".join(batches)


def parse_metadata_snapshot(data: bytes) -> MetadataSnapshot:
    """Return the contents.

    Raises MalformedFile, also for a file without header or footer and for a wrong checksum.
    """
    try:
        control, records, ends_with_footer = _read(data)
    except MalformedMessage as failure:
        raise MalformedFile(FILE, str(failure)) from failure
    header = control.get(ControlType.SNAPSHOT_HEADER)
    if header is None or not ends_with_footer:
        raise MalformedFile(
            FILE, "it has no header" if header is None else "it does not end with a footer"
        )
    kraft_version = control.get(ControlType.KRAFT_VERSION)
    voters = control.get(ControlType.KRAFT_VOTERS)
    return MetadataSnapshot(
        last_contained_log_timestamp=header.last_contained_log_timestamp,
        records=tuple(records),
        kraft_version=None if kraft_version is None else kraft_version.k_raft_version,
        voters=voters,
    )


def _read(data: bytes) -> tuple[dict[ControlType, Message], list[Message], bool]:
    """Return the control records by type, the metadata records, and whether the footer is the last
    record.
    """
    control: dict[ControlType, Message] = {}
    records: list[Message] = []
    batches = split_batches(data)
    for batch in batches:
        _check(batch)
        for record in batch.records():
            if ControlType.SNAPSHOT_FOOTER in control:
                raise MalformedFile(FILE, "something stands behind the footer")
            if not batch.is_control:
                records.append(parse_record(record.value or b""))
                continue
            kind, body = control_type(record.key), parse_control_record(record.key, record.value)
            if kind is not None and kind in (*_BEFORE_RECORDS, ControlType.SNAPSHOT_FOOTER):
                control[kind] = body
    return control, records, ControlType.SNAPSHOT_FOOTER in control and not batches.is_torn


def _check(batch: RecordBatch) -> None:
    if not batch.crc_is_valid():
        raise MalformedFile(
            FILE, f"the checksum of the batch at byte {batch.position} does not fit"
        )
    if batch.producer_id != NO_PRODUCER_ID:
        raise MalformedFile(FILE, f"the batch at byte {batch.position} has a producer")
