"""Reads what an application recorded of its own: one JSON object per line.

docs/after-an-incident.md describes the lines. Unknown fields and values of the wrong type are
refused with the number of the line, because a misspelt field would weaken the check in silence.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from kraftsim.audit.clients.staging import ClientTables, group_hash

Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
PartitionNumber = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Long = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
Int = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
Name = Annotated[str, msgspec.Meta(min_length=1)]
Md5 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
ACKS_ALL: Final = -1
REPORT_LINES: Final = 4096


class RecordedSend(
    msgspec.Struct, frozen=True, kw_only=True, tag="acknowledged", forbid_unknown_fields=True
):
    """The producer's callback returned without an error: the record is at this offset."""

    topic: Name
    partition: PartitionNumber
    offset: Offset
    time_ms: Long | None = None
    client: str | None = None
    acks: Literal[-1, 1] = ACKS_ALL
    transactional_id: str | None = None
    outcome: Literal["committed", "aborted"] | None = None
    producer_id: Long | None = None
    producer_epoch: Int | None = None
    sequence: Int | None = None
    sender: str | None = None
    number: Long | None = None
    key_md5: Md5 | None = None
    value_md5: Md5 | None = None
    unique: bool = False


class RecordedTransaction(
    msgspec.Struct, frozen=True, kw_only=True, tag="transaction", forbid_unknown_fields=True
):
    """commitTransaction or abortTransaction returned: the lines of this transactional id since the
    last such line belong to it.
    """

    transactional_id: Name
    outcome: Literal["committed", "aborted"]
    time_ms: Long | None = None
    client: str | None = None
    producer_id: Long | None = None
    producer_epoch: Int | None = None


class RecordedRead(
    msgspec.Struct, frozen=True, kw_only=True, tag="read", forbid_unknown_fields=True
):
    """A consumer returned this record to the application."""

    topic: Name
    partition: PartitionNumber
    offset: Offset
    isolation: Literal["read_committed", "read_uncommitted"] = "read_uncommitted"
    group: str | None = None
    time_ms: Long | None = None
    client: str | None = None
    value_md5: Md5 | None = None


class RecordedCommit(
    msgspec.Struct, frozen=True, kw_only=True, tag="offset_committed", forbid_unknown_fields=True
):
    """commitSync returned, or the transaction with sendOffsetsToTransaction ended."""

    group: Name
    topic: Name
    partition: PartitionNumber
    offset: Offset
    time_ms: Long | None = None
    client: str | None = None
    transactional_id: str | None = None
    outcome: Literal["committed", "aborted"] | None = None


RecordedLine = RecordedSend | RecordedTransaction | RecordedRead | RecordedCommit
_DECODER: Final = msgspec.json.Decoder(RecordedLine)


def read_recorded(file: Path, tables: ClientTables, advance: Callable[[int], None]) -> None:
    """Read a file into the tables; `advance` gets the number of bytes read since its last call.

    Raises ValueError that names the line, and OSError.
    """
    read_bytes = 0
    with open(file, "rb") as lines:
        for number, text in enumerate(lines, 1):
            read_bytes += len(text)
            if number % REPORT_LINES == 0:
                advance(read_bytes)
                read_bytes = 0
            if not text.strip():
                continue
            try:
                _add(_DECODER.decode(text), {"source": str(file), "line": number}, tables)
            except (msgspec.MsgspecError, UnicodeDecodeError) as trouble:
                raise ValueError(f"{file}, line {number}: {trouble}") from trouble
    advance(read_bytes)


def _add(line: RecordedLine, place: dict[str, str | int], tables: ClientTables) -> None:
    here = {**place, "client": line.client, "time_ms": line.time_ms}
    match line:
        case RecordedSend():
            row = {
                **here,
                "topic": line.topic,
                "partition": line.partition,
                "acknowledged_offset": line.offset,
                "records": 1,
                "acks": line.acks,
                "producer_id": line.producer_id,
                "producer_epoch": line.producer_epoch,
                "sequence": line.sequence,
                "transactional_id": line.transactional_id,
                "outcome": line.outcome,
                "sender": line.sender,
                "number": line.number,
                "key_md5": line.key_md5,
                "value_md5": line.value_md5,
                "is_unique": line.unique,
            }
            tables.add("client_acknowledged", row)
        case RecordedTransaction():
            tables.end(
                {
                    **here,
                    "transactional_id": line.transactional_id,
                    "producer_id": line.producer_id,
                    "producer_epoch": line.producer_epoch,
                    "outcome": line.outcome,
                }
            )
        case RecordedRead():
            row = {
                **here,
                "group_id": line.group,
                "topic": line.topic,
                "partition": line.partition,
                "read_offset": line.offset,
                "records": 1,
                "isolation": line.isolation,
                "value_md5": line.value_md5,
            }
            tables.add("client_reads", row)
        case RecordedCommit():
            row = {
                **here,
                "group_id": line.group,
                "group_hash": group_hash(line.group),
                "topic": line.topic,
                "partition": line.partition,
                "committed_offset": line.offset,
                "transactional_id": line.transactional_id,
                "outcome": line.outcome,
            }
            tables.add("client_commits", row)
