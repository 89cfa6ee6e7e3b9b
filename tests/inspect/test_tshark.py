"""Wireshark's Kafka dissector reads every message in every version that it supports, and `kraftsim
decode` reads the same conversation.

Each message is sent once full, once with nulls and once empty. Where the dissector is wrong (the
bytes equal those of Kafka's own classes, tests/wire/test_java_oracle.py), the bug is listed in
MISTAKES with its reason.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from protocol.api_keys import ApiKey
from protocol.codec.declaration import Primitive
from protocol.codec.tree import ArrayLayout, StructureLayout, layout_of
from protocol.messages.registry import declared_api_keys, request_class, response_class, versions_of
from protocol.requests import request_chunks, response_chunks
from tests.inspect.conversations import read
from tests.inspect.packets import NODE_PORT, Conversation, pcap
from tests.inspect.plain_messages import FIRST_BATCHES, Shape, plain

pytestmark = pytest.mark.interop

FIRST_PORT = 20_000
FIELDS = (
    "tcp.srcport",
    "tcp.dstport",
    "kafka.api_key",
    "kafka.api_version",
    "kafka.response_key",
    "kafka.response.version",
    "kafka.correlation_id",
    "_ws.expert.message",
)
UNKNOWN = re.compile(r"Unsupported \w+ version\. Supports|Unknown \d+ API key")
MEASURED_RELEASE = "4.0."
"""The release of tshark, in Debian 12, with the bugs below.

A bug that is fixed in another release is no failure.
"""
REQUEST, RESPONSE = "request", "response"
EVERY_SHAPE = tuple(Shape)
WITH_ELEMENTS = (Shape.FULL, Shape.NULLS)


class Mistake(NamedTuple):
    """A bug of the dissector in some shapes of a message; `until` is the last version,
    inclusive.
    """

    api_key: ApiKey
    way: str
    until: int
    shapes: tuple[Shape, ...]
    reason: str
    since: int = 0


MISTAKES = (
    Mistake(
        ApiKey.PRODUCE,
        REQUEST,
        8,
        (Shape.NULLS,),
        "records that are null are read as -1 bytes of records",
    ),
    Mistake(
        ApiKey.FETCH,
        RESPONSE,
        11,
        (Shape.NULLS,),
        "records that are null are read as -1 bytes of records",
    ),
    Mistake(
        ApiKey.UPDATE_METADATA,
        REQUEST,
        3,
        WITH_ELEMENTS,
        "offline replicas are read from v0 on; they were added in v4",
    ),
    Mistake(
        ApiKey.CREATE_TOPICS,
        REQUEST,
        5,
        WITH_ELEMENTS,
        "the replicas of an assignment are read as one number, not as an array",
        0,
    ),
    Mistake(
        ApiKey.DELETE_TOPICS,
        RESPONSE,
        2,
        WITH_ELEMENTS,
        "the throttle time is read from v3 on; it was added in v1",
        1,
    ),
    Mistake(
        ApiKey.WRITE_TXN_MARKERS,
        RESPONSE,
        0,
        EVERY_SHAPE,
        "a throttle time is read, which this response never had",
    ),
    Mistake(
        ApiKey.DELETE_ACLS,
        RESPONSE,
        1,
        EVERY_SHAPE,
        "the results of the filters are not read at all before v2",
    ),
    Mistake(
        ApiKey.CREATE_PARTITIONS,
        REQUEST,
        2,
        (Shape.FULL,),
        "assignments are read as arrays of numbers; they are structures of arrays",
    ),
    Mistake(ApiKey.ELECT_LEADERS, REQUEST, 2, (Shape.FULL,), "the name of a topic is skipped"),
    Mistake(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        REQUEST,
        0,
        EVERY_SHAPE,
        "compact arrays are read as plain ones",
    ),
    Mistake(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        REQUEST,
        0,
        EVERY_SHAPE,
        "compact arrays are read as plain ones",
    ),
)
SHORT_BYTES = (
    "the length of bytes fields, and of keys and values of old messages, is read as two bytes "
    "instead of four before flexible versions"
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response on a separate connection."""

    api_key: ApiKey
    version: int
    shape: Shape
    client_port: int

    def layout(self, way: str) -> StructureLayout:
        return layout_of(
            (request_class if way == REQUEST else response_class)(self.api_key), self.version
        )

    def known_mistake(self, way: str) -> str:
        """Return the known bug of the dissector here, empty if there is none."""
        for mistake in MISTAKES:
            if (
                (mistake.api_key, mistake.way) == (self.api_key, way)
                and mistake.since <= self.version <= mistake.until
                and self.shape in mistake.shapes
            ):
                return mistake.reason
        return SHORT_BYTES if holds_short_bytes(self.layout(way), self.shape, self.api_key) else ""


def holds_short_bytes(layout: StructureLayout, shape: Shape, api_key: int) -> bool:
    """Return whether bytes with a plain length are in a message of this shape."""
    if layout.flexible:
        return False
    for field in layout.fields:
        if field.nullable and shape is Shape.NULLS:
            continue
        inner = field.type
        if isinstance(inner, ArrayLayout):
            if shape is Shape.EMPTY:
                continue
            inner = inner.element
        if inner is Primitive.BYTES or (
            inner is Primitive.RECORDS and layout.version < FIRST_BATCHES.get(api_key, 0)
        ):
            return True
        if isinstance(inner, StructureLayout) and holds_short_bytes(inner, shape, api_key):
            return True
    return False


def exchanges() -> Iterator[Exchange]:
    port = FIRST_PORT
    for api_key in declared_api_keys():
        first, last = versions_of(api_key)
        for version in range(first, last + 1):
            for shape in Shape:
                port += 1
                yield Exchange(api_key, version, shape, port)


def conversation_of(exchange: Exchange) -> Conversation:
    said = Conversation(client_port=exchange.client_port, segment_bytes=60_000).open()
    key, version = exchange.api_key, exchange.version
    request, response = (
        plain(exchange.layout(way), exchange.shape, key) for way in (REQUEST, RESPONSE)
    )
    said.send(
        b"".join(request_chunks(key, version, exchange.client_port, "me", request)),
        from_client=True,
    )
    return said.send(
        b"".join(response_chunks(key, version, exchange.client_port, response)), from_client=False
    )


class Row(NamedTuple):
    """The fields of a frame as decoded by tshark."""

    way: str
    client_port: int
    api_key: int | None
    version: int | None
    correlation_id: int
    complaints: str


def tshark(capture: Path) -> list[Row]:
    """Return the decoded frames of a capture from tshark."""
    words = [
        "tshark",
        "-r",
        str(capture),
        "-d",
        f"tcp.port=={NODE_PORT},kafka",
        "-Y",
        "kafka",
        "-T",
        "fields",
    ]
    done = subprocess.run(
        [*words, *(word for field in FIELDS for word in ("-e", field))],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    rows = []
    for line in done.stdout.splitlines():
        source, target, *keys, correlation_id, complaints = line.split("\t")
        is_request = target == str(NODE_PORT)
        key, version = keys[:2] if is_request else keys[2:]
        api_key, api_version = (int(word) if word else None for word in (key, version))
        port = int(source if is_request else target)
        rows.append(
            Row(
                REQUEST if is_request else RESPONSE,
                port,
                api_key,
                api_version,
                int(correlation_id.split(",")[0]),
                complaints,
            )
        )
    return rows


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Exchange], Path]:
    """A capture with every message."""
    if shutil.which("tshark") is None:
        pytest.skip("no tshark on the search path (make tools)")
    said = list(exchanges())
    capture = tmp_path_factory.mktemp("tshark") / "everything.pcap"
    capture.write_bytes(
        pcap(packet for exchange in said for packet in conversation_of(exchange).packets)
    )
    return said, capture


@pytest.fixture(scope="module")
def dissected(captured: tuple[list[Exchange], Path]) -> list[tuple[Exchange, Row]]:
    """The frames decoded by tshark; a response whose request it could not read is unreadable too,
    and is omitted.
    """
    said, capture = captured
    by_port = {exchange.client_port: exchange for exchange in said}
    rows = tshark(capture)
    assert len(rows) == 2 * len(said)
    return [(by_port[row.client_port], row) for row in rows if row.complaints != "Request missing"]


def test_tshark_finds_no_supported_message_malformed(dissected: list[tuple[Exchange, Row]]) -> None:
    known = [(exchange, row) for exchange, row in dissected if not UNKNOWN.search(row.complaints)]
    wrong = [
        (
            f"{exchange.api_key.name} v{exchange.version} {row.way}, {exchange.shape.value}: "
            f"{row.complaints}"
        )
        for exchange, row in known
        if row.complaints and not exchange.known_mistake(row.way)
    ]
    assert wrong == []
    fine = {
        (exchange.api_key, exchange.version, row.way)
        for exchange, row in known
        if not row.complaints
    }
    assert len(fine) > 250, "the dissector has read most of the messages that it supports"


def test_every_known_tshark_bug_still_occurs(dissected: list[tuple[Exchange, Row]]) -> None:
    release = subprocess.run(
        ["tshark", "--version"], capture_output=True, text=True, check=True
    ).stdout
    if f"(Wireshark) {MEASURED_RELEASE}" not in release:
        pytest.skip(f"the known bugs are those of {MEASURED_RELEASE}x")
    made = {
        (exchange.api_key, row.way)
        for exchange, row in dissected
        if row.complaints and exchange.known_mistake(row.way)
    }
    assert {(mistake.api_key, mistake.way) for mistake in MISTAKES} <= made


def test_decode_and_tshark_read_the_same_conversation(
    captured: tuple[list[Exchange], Path], dissected: list[tuple[Exchange, Row]]
) -> None:
    """API, version and correlation id of every frame, in the same order; kraftsim also reads those
    unknown to tshark, without errors.
    """
    ours, notices, _ = read(captured[1].read_bytes())
    assert not notices and not [
        each for each in ours if each.said or each.frame.tree.troubles or each.frame.is_unknown
    ]
    seen = {
        (each.frame.kind.value, each.client.port): (
            each.frame.api_key,
            each.frame.api_version,
            each.frame.correlation_id,
        )
        for each in ours
    }
    for _, row in dissected:
        if row.api_key is not None and row.version is not None:
            assert seen[row.way, row.client_port] == (row.api_key, row.version, row.correlation_id)
    order = [(each.frame.kind.value, each.client.port) for each in ours]
    assert [(row.way, row.client_port) for _, row in dissected] == [
        place for place in order if place in {(row.way, row.client_port) for _, row in dissected}
    ]
