"""Events as a stream: in order of time, from all logs, and without a gap after an interruption."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from kraftsim.control import event_stream
from kraftsim.control.client import EventLines, StreamedEvent
from kraftsim.control.event_stream import (
    BadCursor,
    EventCursor,
    EventFilter,
    EventTail,
    StreamPosition,
    since_of,
)
from tests.control.fake_cluster import Api

KINDS = ("NodeStarted", "LeaderElected", "BatchAppended")


class Log:
    """The event log of one incarnation of a node."""

    def __init__(self, directory: Path, node: str, incarnation: int = 1) -> None:
        self.path = directory / f"{node}.{incarnation}.jsonl"
        self.path.touch()
        self._node, self._incarnation, self._n = node, incarnation, 0

    def add(self, t_ns: int, kind: str = KINDS[0], **fields: object) -> None:
        line = {
            "run": "r",
            "node": self._node,
            "incarnation": self._incarnation,
            "n": self._n,
            "t_ns": t_ns,
            "wall_ms": 1,
            "kind": kind,
            **fields,
        }
        self._n += 1
        self.write(json.dumps(line).encode() + b"\n")

    def write(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)


def read_all(tail: EventTail) -> list[tuple[str, int]]:
    """Read until there is nothing left; return node and time of each line."""
    found = []
    while lines := tail.read():
        for line in lines:
            tail.cursor.move(line.node, line.place)
            found.append((line.node, line.t_ns))
    return found


def test_lines_of_all_nodes_come_in_order_of_time(tmp_path: Path) -> None:
    one, two = Log(tmp_path, "broker-1"), Log(tmp_path, "controller-101")
    for t_ns in (10, 30, 50):
        one.add(t_ns)
        two.add(t_ns + 5)
    tail = EventTail(tmp_path)
    assert [t_ns for _, t_ns in read_all(tail)] == [10, 15, 30, 35, 50, 55]
    assert tail.read() == []
    two.add(60)
    assert read_all(tail) == [("controller-101", 60)]


def test_long_logs_are_merged_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of one log may be younger than what another has not given yet."""
    monkeypatch.setattr(event_stream, "CHUNK_BYTES", 300)
    one, two = Log(tmp_path, "broker-1"), Log(tmp_path, "broker-2")
    for t_ns in range(0, 400, 2):
        one.add(t_ns)
    for t_ns in range(1, 400, 20):
        two.add(t_ns)
    times = [t_ns for _, t_ns in read_all(EventTail(tmp_path))]
    assert len(times) == 220 and times == sorted(times)


def test_a_half_line_waits_for_its_end(tmp_path: Path) -> None:
    log = Log(tmp_path, "broker-1")
    log.add(1)
    line = log.path.read_bytes()
    log.write(line[:20])
    tail = EventTail(tmp_path)
    assert read_all(tail) == [("broker-1", 1)]
    log.write(line[20:])
    assert read_all(tail) == [("broker-1", 1)]


def test_a_new_incarnation_follows_the_torn_line_of_a_killed_one(tmp_path: Path) -> None:
    log = Log(tmp_path, "broker-1")
    log.add(1)
    log.write(b'{"run":"r","no')
    tail = EventTail(tmp_path)
    read_all(tail)
    Log(tmp_path, "broker-1", 2).add(7)
    Log(tmp_path, "broker-1", 10).add(9)
    assert read_all(tail) == [("broker-1", 7), ("broker-1", 9)]


def test_lines_that_are_no_events_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a whole part of them, and a line that is longer than a part."""
    monkeypatch.setattr(event_stream, "CHUNK_BYTES", 200)
    log = Log(tmp_path, "broker-1")
    log.add(1, note="x" * 1000)
    log.write(b"\n\xff\xfe\n[]\n" * 100)
    log.write(b'{"t_ns": 1e99, "kind": "A"}\n')
    log.add(2)
    assert [t_ns for _, t_ns in read_all(EventTail(tmp_path))] == [1, 2]


def test_a_cursor_goes_on_behind_each_event(tmp_path: Path) -> None:
    """From every event on, exactly the later ones come: no gap, no repetition."""
    for node, incarnation in (("broker-1", 1), ("broker-1", 2), ("controller-101", 1)):
        log = Log(tmp_path, node, incarnation)
        for number in range(5):
            log.add(number * 10 + incarnation)
    tail = EventTail(tmp_path)
    lines, cursors = [], []
    while part := tail.read():
        for line in part:
            tail.cursor.move(line.node, line.place)
            lines.append((line.node, line.place))
            cursors.append(str(tail.cursor))
    assert len(lines) == 15
    for number, cursor in enumerate(cursors, 1):
        resumed = EventTail.at(tmp_path, EventCursor.parse(cursor))
        left = []
        while part := resumed.read():
            for line in part:
                resumed.cursor.move(line.node, line.place)
                left.append((line.node, line.place))
        assert sorted(left) == sorted(lines[number:])


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "broker-1:5",
        "broker-1.1:",
        "broker-1.1:-5",
        "../../etc/passwd.1:0",
        "broker-1.1:1,",
        "broker-1.0x1:1",
        "broker-1.1:" + "9" * 16,
        "broker-1.1:1," * 1000,
        "broker-1.1:\u0661",
    ],
)
def test_a_cursor_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        EventCursor.parse(text)


@pytest.mark.parametrize("text", ["broker-1.1:3", "broker-1.2:0", "broker-9.1:0", "broker-1.1:999"])
def test_a_cursor_of_other_logs_is_refused(text: str, tmp_path: Path) -> None:
    """As after `rm -r` of the data directory: its position would be in the middle of a line."""
    Log(tmp_path, "broker-1").add(1)
    with pytest.raises(BadCursor):
        EventTail.at(tmp_path, EventCursor.parse(text))


def test_the_end_is_behind_the_last_whole_line(tmp_path: Path) -> None:
    log = Log(tmp_path, "broker-1")
    log.add(1)
    end = log.path.stat().st_size
    log.write(b"x" * 1_000_000)
    assert EventTail.at_end(tmp_path).cursor.place("broker-1") == StreamPosition(1, end)
    assert str(EventTail.at_end(tmp_path / "nothing").cursor) == ""


def test_a_filter_takes_nodes_kinds_and_times(tmp_path: Path) -> None:
    log = Log(tmp_path, "broker-1")
    log.add(5, "LeaderElected")
    (line,) = EventTail(tmp_path).read()
    assert EventFilter().takes(line)
    assert EventFilter(nodes=("controller-*", "broker-*"), kinds=("LeaderElected",)).takes(line)
    assert not EventFilter(nodes=("controller-*",)).takes(line)
    assert not EventFilter(kinds=("NodeStarted",)).takes(line)
    assert EventFilter(since_ns=5).takes(line) and not EventFilter(since_ns=6).takes(line)
    assert (since_of("start"), since_of("now"), since_of("7")) == (0, None, 7_000_000)


# Over HTTP
# --------------------------------------------------------------------------------------------------


async def events_of(api: Api, query: str, last_event_id: str | None = None) -> list[StreamedEvent]:
    """Return what a stream that does not follow has."""
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    answer = await api.ask("GET", f"/v1/events?follow=false&{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return parsed(answer.text)


def parsed(text: str) -> list[StreamedEvent]:
    lines = EventLines(None)
    found = [lines.take(line) for line in text.split("\n")]
    return [event for event in found if event is not None]


async def test_a_stream_has_what_was_asked_for(tmp_path: Path) -> None:
    api = Api(tmp_path)
    one, two = Log(tmp_path, "broker-1"), Log(tmp_path, "controller-101")
    for number, kind in enumerate(KINDS):
        one.add(number * 1_000_000, kind, topic="orders")
        two.add(number * 1_000_000 + 1, kind)
    everything = await events_of(api, "from=start")
    assert len(everything) == 6
    assert everything[0].fields == {"topic": "orders"} and everything[0].node == "broker-1"
    assert len(await events_of(api, "from=start&node=broker-*,x")) == 3
    assert len(await events_of(api, "from=start&kind=NodeStarted,LeaderElected")) == 4
    assert len(await events_of(api, "from=2")) == 2
    assert await events_of(api, "from=now") == []


async def test_a_client_goes_on_behind_its_last_event(tmp_path: Path) -> None:
    api = Api(tmp_path)
    log = Log(tmp_path, "broker-1")
    for number in range(4):
        log.add(number)
    seen = await events_of(api, "from=start")
    rest = await events_of(api, "", seen[1].event_id)
    assert [event.n for event in rest] == [2, 3]
    assert rest == seen[2:]


async def test_a_wrong_last_event_id_is_400(tmp_path: Path) -> None:
    api = Api(tmp_path)
    for text in ("nonsense", "broker-1.1:7"):
        answer = await api.ask("GET", "/v1/events", headers={"Last-Event-ID": text})
        assert answer.status_code == 400 and "Last-Event-ID" in answer.json()["hint"]


async def test_without_event_logs_the_reason_is_given() -> None:
    answer = await Api().ask("GET", "/v1/events")
    assert answer.status_code == 409 and "no event logs" in answer.json()["error"]


class Stream:
    """A stream that follows, read below httpx, whose test transport waits for the end."""

    def __init__(self, api: Api, query: str) -> None:
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._leaves = asyncio.Event()
        headers = [(b"host", b"127.0.0.1:8123"), (b"authorization", api_token())]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/v1/events",
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
        }
        # arg-type: Starlette's messages are mutable mappings of anything
        self.serving = asyncio.ensure_future(
            api.application.app(scope, self._receive, self._send)  # type: ignore[arg-type]
        )

    async def _receive(self) -> dict[str, object]:
        await self._leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, object]) -> None:
        if isinstance(body := message.get("body"), bytes):
            self.pieces.put_nowait(body)

    async def piece(self) -> str:
        async with asyncio.timeout(10):
            return (await self.pieces.get()).decode()

    async def leave(self) -> None:
        self._leaves.set()
        async with asyncio.timeout(10):
            await self.serving


def api_token() -> bytes:
    return b"Bearer correct-horse-battery-staple"


async def test_a_stream_follows_beats_and_frees_its_place(tmp_path: Path) -> None:
    api = Api(tmp_path, heartbeat_seconds=0.05)
    log = Log(tmp_path, "broker-1")
    log.add(1)
    stream = Stream(api, "from=now&kind=LeaderElected")
    assert await stream.piece() == "retry: 1000\n\n"
    assert api.application.streams == 1
    assert (await stream.piece()).startswith(": nothing happens\nid: broker-1.1:")
    log.add(2, KINDS[1], topic="orders")
    text = await stream.piece()
    while text.startswith(":"):
        text = await stream.piece()
    (event,) = parsed(text)
    assert (event.kind, event.fields) == (KINDS[1], {"topic": "orders"})
    log.add(3, KINDS[2])  # is not wanted: only the next heartbeat moves over it
    texts = [await stream.piece() for _ in range(3)]
    assert str(log.path.stat().st_size) in texts[-1]
    await stream.leave()
    assert api.application.streams == 0


async def test_streams_end_when_the_server_stops(tmp_path: Path) -> None:
    api = Api(tmp_path)
    stream = Stream(api, "")
    await stream.piece()
    api.application.end_streams()
    async with asyncio.timeout(10):
        await stream.serving
    assert api.application.streams == 0


async def test_a_seventeenth_stream_is_429(tmp_path: Path) -> None:
    """Each open stream polls the files; a page that is opened again and again must not add up."""
    api = Api(tmp_path)
    streams = [Stream(api, "") for _ in range(16)]
    for stream in streams:
        await stream.piece()
    refused: httpx.Response = await api.ask("GET", "/v1/events")
    assert refused.status_code == 429 and "close one" in refused.json()["hint"]
    for stream in streams:
        await stream.leave()
    assert (await api.ask("GET", "/v1/events?follow=false")).status_code == 200


async def test_a_client_that_leaves_in_a_long_backlog_ends_its_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sending never waits here, as to a socket with room: the loop must get a turn between."""
    monkeypatch.setattr(event_stream, "CHUNK_BYTES", 1 << 22)  # as with many logs
    api = Api(tmp_path)
    log = Log(tmp_path, "broker-1")
    line = b'{"node":"broker-1","incarnation":1,"n":0,"t_ns":1,"kind":"A","note":"%b"}\n' % (
        b"x" * 900
    )
    log.write(line * 2000)
    stream = Stream(api, "from=start")
    await stream.piece()
    await stream.leave()
    assert api.application.streams == 0
    received = sum(len(stream.pieces.get_nowait()) for _ in range(stream.pieces.qsize()))
    assert received < 500_000, "of two megabytes"
