"""Segments of a log and snapshots of the metadata log: batches, and optionally their records.

Source: kafka.tools.DumpLogSegments (dumpLog, printBatchLevel), FileLogInputStream.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftsim.inspect.dump.payloads import DECODERS, Decoder, json_of_bytes
from kraftsim.inspect.dump.rows import DumpRow, Severity, java_text, json_text, words_of, wrong
from kraftsim.inspect.json_lines import Json
from protocol.malformed import MalformedMessage
from protocol.message_json import message_to_json
from protocol.records.batches import (
    LENGTH_OVERHEAD_BYTES,
    NO_SEQUENCE,
    SEQUENCES,
    RecordBatch,
    TimestampType,
)
from protocol.records.control_records import ControlType, control_type, parse_control_record
from protocol.records.message_sets import AnyBatch, OldMessage, open_batch
from protocol.records.record import Bytes, Record, TornBatch
from protocol.storage.file_names import (
    BOOTSTRAP_CHECKPOINT,
    parse_metadata_snapshot_name,
    parse_segment_file_name,
)

TIMESTAMP_TYPES: Final = {
    None: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
SHOWN_CONTROLS: Final = {
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedSegments:
    """What of a segment is printed; `max_bytes` of it are read."""

    with_records: bool = False
    with_payload: bool = False
    with_record_metadata: bool = True
    decoder: Decoder = Decoder.TEXT
    max_bytes: int | None = None


def segment_rows(path: Path, content: Bytes, settings: DumpedSegments) -> Iterator[DumpRow]:
    """Yield the content of a segment or snapshot, and its errors."""
    yield from _heading(path.name)
    end = len(content) if settings.max_bytes is None else min(len(content), settings.max_bytes)
    visible = memoryview(content)[:end]
    try:
        yield from _batch_rows(path, visible, settings)
    finally:
        visible.release()


def _heading(name: str) -> Iterator[DumpRow]:
    segment = parse_segment_file_name(name)
    snapshot = parse_metadata_snapshot_name(name)
    if segment is not None:
        yield DumpRow(
            "segment", f"Log starting offset: {segment.offset}", {"startingOffset": segment.offset}
        )
    elif name == BOOTSTRAP_CHECKPOINT:
        yield DumpRow("snapshot", "KRaft bootstrap snapshot", {"bootstrap": True})
    elif snapshot is not None:
        fields: dict[str, Json] = {"endOffset": snapshot.end_offset, "epoch": snapshot.leader_epoch}
        yield DumpRow(
            "snapshot",
            f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.leader_epoch}",
            fields,
        )


def _batch_rows(path: Path, content: memoryview, settings: DumpedSegments) -> Iterator[DumpRow]:
    name = path.name
    position = 0
    last_offset: int | None = None
    jumps: list[tuple[int, int]] = []
    while position < len(content):
        try:
            batch = open_batch(content, position)
        except TornBatch:
            left = len(content) - position
            if settings.max_bytes is None:
                yield DumpRow(
                    "tail",
                    f"Found {left} invalid bytes at the end of {name}",
                    {"invalidBytes": left, "position": position},
                    Severity.ENDS_EARLY,
                )
            break
        except MalformedMessage as malformed:
            yield wrong(
                f"Corrupt batch at position {position} of {name}: {malformed.reason}",
                position=position,
            )
            following = _behind(content, position)
            if following is None:
                left = len(content) - position
                yield DumpRow(
                    "tail",
                    f"Found {left} invalid bytes at the end of {name}",
                    {"invalidBytes": left, "position": position},
                    Severity.ENDS_EARLY,
                )
                break
            position = following
            continue
        yield from _batch_row(batch, name)
        if settings.with_records:
            for row, offset in _record_rows(batch, name, settings):
                yield row
                if offset is not None:
                    if last_offset is not None and offset != last_offset + 1:
                        jumps.append((last_offset, offset))
                    last_offset = offset
        position += batch.size_bytes
    if jumps:
        yield DumpRow(
            "heading", f"Non-consecutive offsets in {path.absolute()}", {}, Severity.NOTICE
        )
    for before, after in jumps:
        yield DumpRow(
            "jump",
            f"  {before} is followed by {after}",
            {"offset": before, "followedBy": after},
            Severity.NOTICE,
        )


def _batch_row(batch: AnyBatch, name: str) -> Iterator[DumpRow]:
    fields: dict[str, Json] = (
        _fields_of(batch) if isinstance(batch, RecordBatch) else {"offset": batch.last_offset}
    )
    is_valid = batch.crc_is_valid()
    tail: dict[str, Json] = {
        "position": batch.position,
        TIMESTAMP_TYPES[batch.timestamp_type]: batch.max_timestamp,
        "size": batch.size_bytes,
        "magic": batch.magic,
        "compresscodec": _codec_name(batch),
        "crc": batch.crc,
        "isvalid": is_valid,
    }
    horizon = batch.delete_horizon_ms if isinstance(batch, RecordBatch) else None
    shown = (
        {**fields, "deleteHorizonMs": optional_long(horizon)}
        if isinstance(batch, RecordBatch)
        else fields
    )
    as_json = {**fields, "deleteHorizonMs": horizon} if isinstance(batch, RecordBatch) else fields
    yield DumpRow("batch", words_of({**shown, **tail}), {**as_json, **tail})
    if not is_valid:
        yield wrong(
            f"The checksum of the batch at position {batch.position} of {name} does not fit its "
            "bytes",
            position=batch.position,
        )


def _fields_of(batch: RecordBatch) -> dict[str, Json]:
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.record_count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
    }


def optional_long(value: int | None) -> str:
    """Return an optional number as Java prints it."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _codec_name(batch: AnyBatch) -> str:
    try:
        return batch.compression.name.lower()
    except MalformedMessage:
        return f"unknown({batch.attributes & 7})"


def _record_rows(
    batch: AnyBatch, name: str, settings: DumpedSegments
) -> Iterator[tuple[DumpRow, int | None]]:
    """Yield a row per record with its offset, and one without for an error."""
    try:
        checks = _inner_checks(batch) if isinstance(batch, OldMessage) else None
        for record in batch.records():
            check = next(checks) if checks is not None else ""
            yield _record_row(batch, record, check, settings), record.offset
    except MalformedMessage as malformed:
        yield (
            wrong(
                f"Corrupt records in the batch at position {batch.position} of {name}: "
                f"{malformed.reason}",
                position=batch.position,
            ),
            None,
        )


def _inner_checks(batch: OldMessage) -> Iterator[str]:
    """Yield validity and checksum of each message of an old format; the brace is Kafka's."""
    for message in batch.inner_messages() if batch.attributes & 7 else (batch,):
        yield f" isValid: {java_text(message.crc_is_valid())} crc: {message.crc}}}"


def _record_row(batch: AnyBatch, record: Record, check: str, settings: DumpedSegments) -> DumpRow:
    fields = _record_fields(batch, record)
    text = f"| {words_of(fields)}{check}" if settings.with_record_metadata else ""
    if record.headers:
        fields["headers"] = [
            {"key": key, "value": json_of_bytes(value)} for key, value in record.headers
        ]
    if isinstance(batch, RecordBatch) and batch.is_control:
        mark, content = _control(record)
        return DumpRow("record", text + mark if text else "", {**fields, **content})
    if not settings.with_payload:
        return DumpRow("record", text, fields)
    payload = DECODERS[settings.decoder](record.offset, record.key, record.value)
    if payload.key is not None:
        text += f"{' ' if text else '| '}key: {payload.key}"
    if payload.payload is not None:
        text += f" payload: {payload.payload}"
    if payload.is_wrong:
        return DumpRow(
            "record", text, {**fields, "reason": payload.key or payload.payload}, Severity.WRONG
        )
    return DumpRow(
        "record", text, {**fields, "key": payload.key_json, "payload": payload.payload_json}
    )


def _record_fields(batch: AnyBatch, record: Record) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "offset": record.offset,
        TIMESTAMP_TYPES[batch.timestamp_type]: record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if isinstance(batch, RecordBatch):
        has_sequence = batch.base_sequence != NO_SEQUENCE
        fields["sequence"] = (
            (batch.base_sequence + record.offset - batch.base_offset) % SEQUENCES
            if has_sequence
            else NO_SEQUENCE
        )
        fields["headerKeys"] = [key for key, _ in record.headers]
    return fields


def _control(record: Record) -> tuple[str, dict[str, Json]]:
    """Return what Kafka's tool prints for a control record, and its content."""
    try:
        kind = control_type(record.key)
        message = parse_control_record(record.key, record.value)
    except MalformedMessage as malformed:
        return f" {malformed}", {"reason": str(malformed)}
    number = int.from_bytes((record.key or b"")[2:4], signed=True)
    if kind is None or message is None:
        return f" controlType: UNKNOWN({number})", {"controlType": number}
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return f" endTxnMarker: {kind.name} coordinatorEpoch: {message.coordinator_epoch}", {
            "endTxnMarker": kind.name,
            "coordinatorEpoch": message.coordinator_epoch,
        }
    content = message_to_json(message, message.version)
    if kind in SHOWN_CONTROLS:
        return f" {SHOWN_CONTROLS[kind]} {json_text(content)}", {SHOWN_CONTROLS[kind]: content}
    return f" controlType: {kind.name}({number})", {"controlType": kind.name, "data": content}


def _behind(content: memoryview, position: int) -> int | None:
    """Return the start of the batch after a corrupt one, if its length is plausible."""
    length = int.from_bytes(content[position + 8 : position + LENGTH_OVERHEAD_BYTES], signed=True)
    following = position + LENGTH_OVERHEAD_BYTES + length
    return following if length > 0 and following < len(content) else None
