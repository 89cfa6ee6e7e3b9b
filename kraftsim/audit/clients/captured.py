"""Reads what clients were notified of from a packet capture: responses of Produce, EndTxn, Fetch,
OffsetCommit and TxnOffsetCommit, each with its request.

A batch in a Fetch response that a read_committed consumer skips counts as not read, by the rule of
CompletedFetch: from the first offset of an aborted transaction of its producer to the ABORT marker.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraftsim.audit.clients.staging import ABORTED, COMMITTED, ClientTables, Row, group_hash
from kraftsim.inspect.capture import CaptureReader, CaptureSettings
from kraftsim.inspect.conversation import Exchange
from kraftsim.inspect.frames import FrameKind
from kraftsim.inspect.packets import NoCapture, opened
from kraftsim.inspect.parts import Part
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.records.batches import CONTROL_BIT, TRANSACTIONAL_BIT, RecordBatch
from protocol.records.control_records import ControlType, control_type
from protocol.records.malformed_batches import TornBatch
from protocol.uuids import uuid_text

READ_COMMITTED: Final = 1
PENDING_MAX: Final = 1 << 16
"""Requests without a response that are kept: a capture may have one direction only."""
TOPIC_MEANS: Final = "topic "
"""Before the name of a topic id that Metadata responses in the capture resolve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """A batch in a Produce request."""

    producer_id: int
    producer_epoch: int
    sequence: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a response needs of its request, by topic and partition."""

    fields: Row = field(default_factory=dict)
    sent: Mapping[tuple[str, int], Sequence[_Sent]] = field(default_factory=dict)
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)


def read_capture(
    file: Path,
    tables: ClientTables,
    topics: Mapping[str, str],
    advance: Callable[[int], None],
) -> None:
    """Read a capture into the tables. `topics` has the names of topic ids on the disks; `advance`
    gets the number of bytes read since its last call.

    Raises ValueError for a file that is no capture, or has no frame of Kafka, and OSError.
    """
    reader = CaptureReader(CaptureSettings(with_records=False))
    exchanges = _Exchanges(file, tables, topics)
    with open(file, "rb") as plain:
        try:
            for found in reader.read(opened(plain), advance):
                if isinstance(found, Exchange):
                    exchanges.take(found)
        except (NoCapture, EOFError) as trouble:
            raise ValueError(f"{file}: {trouble}") from trouble
    if not exchanges.taken:
        raise ValueError(f"{file}: no frame of Kafka in {reader.tally.packets} packets")


class _Exchanges:
    """Adds rows for the responses of one capture."""

    def __init__(self, file: Path, tables: ClientTables, topics: Mapping[str, str]) -> None:
        self._file = file
        self._tables = tables
        self._topics = topics
        self._asked: OrderedDict[int, _Asked] = OrderedDict()
        self.taken = 0

    def take(self, found: Exchange) -> None:
        self.taken += 1
        frame, body = found.frame, found.frame.body
        if body is None or found.said:
            return
        if frame.kind is FrameKind.REQUEST:
            asked = self._request(frame.api_key, body, frame.content)
            if asked is not None:
                self._asked[found.number] = asked
                if len(self._asked) > PENDING_MAX:
                    self._asked.popitem(last=False)
            return
        answered = self._asked.pop(found.answers, None) if found.answers is not None else None
        if answered is None:
            return
        place: Row = {
            "source": str(self._file),
            "line": found.number,
            "client": str(found.client),
            "time_ms": found.time_ns // 1_000_000,
        }
        match frame.api_key:
            case ApiKey.PRODUCE:
                self._produced(place, answered, body)
            case ApiKey.END_TXN:
                if body.integer("error_code") == ErrorCode.NONE:
                    self._tables.end({**place, **answered.fields})
            case ApiKey.FETCH:
                self._fetched(place, answered, body, frame.content)
            case ApiKey.OFFSET_COMMIT | ApiKey.TXN_OFFSET_COMMIT:
                self._committed(place, answered, body)

    def _request(self, api_key: int, body: Part, content: bytes) -> _Asked | None:
        """Return what the response will need; None for another API, or a follower's Fetch."""
        match api_key:
            case ApiKey.PRODUCE:
                fields: Row = {
                    "transactional_id": body.text("transactional_id"),
                    "acks": body.integer("acks"),
                }
                sent = {
                    (self._topic(topic), part.integer("index")): [
                        _sent(batch) for batch in _batches(part)
                    ]
                    for topic in _elements(body, "topic_data")
                    for part in _elements(topic, "partition_data")
                }
                return _Asked(fields=fields, sent=sent)
            case ApiKey.END_TXN:
                return _Asked(
                    fields={
                        "transactional_id": body.text("transactional_id"),
                        "producer_id": body.integer("producer_id"),
                        "producer_epoch": body.integer("producer_epoch"),
                        "outcome": COMMITTED if body.integer("committed") else ABORTED,
                    }
                )
            case ApiKey.FETCH:
                state = body.part("replica_state")
                replica_id = (state or body).integer("replica_id")
                if replica_id >= 0:
                    return None
                is_committed = body.integer("isolation_level", 0) == READ_COMMITTED
                isolation = "read_committed" if is_committed else "read_uncommitted"
                return _Asked(fields={"isolation": isolation})
            case ApiKey.OFFSET_COMMIT | ApiKey.TXN_OFFSET_COMMIT:
                group = body.text("group_id") or ""
                return _Asked(
                    fields={
                        "group_id": group,
                        "group_hash": group_hash(group),
                        "transactional_id": body.text("transactional_id"),
                    },
                    offsets={
                        (self._topic(topic), part.integer("partition_index")): part.integer(
                            "committed_offset"
                        )
                        for topic in _elements(body, "topics")
                        for part in _elements(topic, "partitions")
                    },
                )
        return None

    def _produced(self, place: Row, asked: _Asked, body: Part) -> None:
        """Add the batches that were acknowledged with an offset; a duplicate that the broker has
        forgotten has none.
        """
        for topic in _elements(body, "responses"):
            name = self._topic(topic)
            for part in _elements(topic, "partition_responses"):
                partition, offset = part.integer("index"), part.integer("base_offset")
                if part.integer("error_code") != ErrorCode.NONE or offset < 0:
                    continue
                for sent in asked.sent.get((name, partition), ()):
                    row: Row = {
                        **place,
                        **asked.fields,
                        "topic": name,
                        "partition": partition,
                        "acknowledged_offset": offset,
                        "records": sent.records,
                        "producer_id": sent.producer_id,
                        "producer_epoch": sent.producer_epoch,
                        "sequence": sent.sequence,
                        "is_unique": False,
                    }
                    self._tables.add("client_acknowledged", row)
                    offset += sent.records

    def _fetched(self, place: Row, asked: _Asked, body: Part, content: bytes) -> None:
        for topic in _elements(body, "responses"):
            name = self._topic(topic)
            for part in _elements(topic, "partitions"):
                is_committed = asked.fields["isolation"] == "read_committed"
                for batch in _returned(part, content, skips_aborted=is_committed):
                    row: Row = {
                        **place,
                        **asked.fields,
                        "topic": name,
                        "partition": part.integer("partition_index"),
                        "read_offset": batch.integer("base_offset"),
                        "records": batch.integer("last_offset_delta", 0) + 1,
                        "producer_id": batch.integer("producer_id"),
                        "producer_epoch": batch.integer("producer_epoch"),
                        "sequence": batch.integer("base_sequence"),
                    }
                    self._tables.add("client_reads", row)

    def _committed(self, place: Row, asked: _Asked, body: Part) -> None:
        for topic in _elements(body, "topics"):
            name = self._topic(topic)
            for part in _elements(topic, "partitions"):
                partition = part.integer("partition_index")
                offset = asked.offsets.get((name, partition))
                if part.integer("error_code") != ErrorCode.NONE or offset is None:
                    continue
                row: Row = {
                    **place,
                    **asked.fields,
                    "topic": name,
                    "partition": partition,
                    "committed_offset": offset,
                }
                self._tables.add("client_commits", row)

    def _topic(self, part: Part) -> str:
        """Return the topic's name: of the message, of the capture, of the disks, else its id."""
        name = part.text("name") or part.text("topic")
        if name:
            return name
        topic_id = part.part("topic_id")
        if topic_id is None or not isinstance(topic_id.value, bytes):
            return ""
        if topic_id.emit.startswith(TOPIC_MEANS):
            return topic_id.emit.removeprefix(TOPIC_MEANS)
        text = uuid_text(topic_id.value)
        return self._topics.get(text, text)


def _elements(part: Part, name: str) -> Sequence[Part]:
    found = part.part(name)
    return (found.parts or ()) if found is not None else ()


def _batches(part: Part) -> Iterator[Part]:
    """Yield the batches of format 2; older messages have no producer."""
    for batch in _elements(part, "records"):
        if batch.part("producer_id") is not None:
            yield batch


def _sent(batch: Part) -> _Sent:
    return _Sent(
        producer_id=batch.integer("producer_id"),
        producer_epoch=batch.integer("producer_epoch"),
        sequence=batch.integer("base_sequence"),
        records=batch.integer("record_count", 0),
    )


def _returned(part: Part, content: bytes, *, skips_aborted: bool) -> Iterator[Part]:
    """Yield the batches of a partition that the consumer returns to its application."""
    ahead = sorted(
        (each.integer("first_offset"), each.integer("producer_id"))
        for each in _elements(part, "aborted_transactions")
    )
    aborted: set[int] = set()
    for batch in _batches(part):
        attributes = batch.integer("attributes", 0)
        last_offset = batch.integer("base_offset") + batch.integer("last_offset_delta", 0)
        producer_id = batch.integer("producer_id")
        while ahead and ahead[0][0] <= last_offset:
            aborted.add(ahead.pop(0)[1])
        if attributes & CONTROL_BIT:
            if _is_abort(content, batch.start):
                aborted.discard(producer_id)
            continue
        if skips_aborted and attributes & TRANSACTIONAL_BIT and producer_id in aborted:
            continue
        yield batch


def _is_abort(content: bytes, position: int) -> bool:
    try:
        record = next(RecordBatch(content, position).records(), None)
        return record is not None and control_type(record.key) is ControlType.ABORT
    except (MalformedMessage, TornBatch):
        return False
