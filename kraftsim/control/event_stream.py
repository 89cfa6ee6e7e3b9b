"""The events of a running cluster in the order of time, read from its event logs while nodes append
to them.

A client may stop and go on later without a gap or a repetition: the id of an event is a cursor,
`NODE.INCARNATION:BYTE` for each node, where BYTE is the position after the last line that was sent.
Older incarnations of a node are complete by then. The reader keeps no line in memory that it has
not sent, so a slow client costs nothing.
"""

import heapq
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from kraftsim.events.event import LINE_SUFFIX

CHUNK_BYTES: Final = 256 * 1024
"""So much of each log is read before the oldest lines of all are sent."""
FILE_NAME: Final = re.compile(r"(?P<node>.+)\.(?P<incarnation>[0-9]{1,9})\.jsonl")
CURSOR_PART: Final = re.compile(
    r"(?P<node>[A-Za-z0-9_.-]{1,100})\.(?P<incarnation>[0-9]{1,9}):(?P<position>[0-9]{1,15})"
)
CURSOR_LENGTH_MAX: Final = 8 * 1024
NANOSECONDS_PER_MS: Final = 1_000_000
FROM_START, FROM_NOW = "start", "now"
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class BadCursor(ValueError):
    """An id of an event that is none of these event logs; one line."""


class StreamedEnvelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The part of a line that filters need."""

    t_ns: Int64
    kind: str


class StreamPosition(NamedTuple):
    """A position in the event log of one incarnation of a node: that of a line, or the end."""

    incarnation: int
    position: int


class EventCursor:
    """How far the event logs have been read, by node."""

    def __init__(self, places: Mapping[str, StreamPosition] | None = None) -> None:
        self._places = dict(places or {})
        self._texts = {node: _text(node, place) for node, place in self._places.items()}

    @classmethod
    def parse(cls, text: str) -> "EventCursor":
        """Return the cursor that an id is. Raises BadCursor."""
        if len(text) > CURSOR_LENGTH_MAX:
            raise BadCursor("the id of an event is not that long")
        places = {}
        for part in text.split(",") if text else ():
            found = CURSOR_PART.fullmatch(part)
            if found is None:
                raise BadCursor(f"{part[:60]!r} is no part of the id of an event")
            places[found["node"]] = StreamPosition(
                int(found["incarnation"]), int(found["position"])
            )
        return cls(places)

    def __str__(self) -> str:
        return ",".join(self._texts.values())

    def place(self, node: str) -> StreamPosition | None:
        """Return how far a node was read; None: not at all."""
        return self._places.get(node)

    def move(self, node: str, place: StreamPosition) -> None:
        """A node was read up to a place."""
        self._places[node] = place
        self._texts[node] = _text(node, place)

    def __iter__(self) -> Iterator[tuple[str, StreamPosition]]:
        return iter(self._places.items())


def _text(node: str, place: StreamPosition) -> str:
    return f"{node}.{place.incarnation}:{place.position}"


class EventLine(NamedTuple):
    """A line of an event log, without its line feed, and the place after it."""

    t_ns: int
    node: str
    kind: str
    place: StreamPosition
    data: bytes


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a client wants: those of nodes that match one of the patterns, of some kinds,
    since a time in the run. Empty means any.
    """

    nodes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    since_ns: int = 0

    def takes(self, line: EventLine) -> bool:
        """Return whether a client gets a line."""
        return (
            line.t_ns >= self.since_ns
            and (not self.kinds or line.kind in self.kinds)
            and (not self.nodes or any(fnmatchcase(line.node, each) for each in self.nodes))
        )


_decode = msgspec.json.Decoder(StreamedEnvelope).decode


@dataclass(slots=True)
class EventTail:
    """Reads the event logs of one directory for one client, from its cursor on."""

    directory: Path
    cursor: EventCursor = field(default_factory=EventCursor)

    @classmethod
    def at(cls, directory: Path, cursor: EventCursor) -> "EventTail":
        """Return a reader that goes on at a cursor. Raises BadCursor if it is not one of these
        event logs.
        """
        logs = _logs(directory)
        for node, place in cursor:
            path = logs.get(node, {}).get(place.incarnation)
            if path is None:
                raise BadCursor(f"there is no event log of {node}, incarnation {place.incarnation}")
            if not _is_line_start(path, place.position):
                raise BadCursor(f"no line of {path.name} begins at byte {place.position}")
        return cls(directory, cursor)

    @classmethod
    def at_end(cls, directory: Path) -> "EventTail":
        """Return a reader of what comes from now on."""
        ends = {}
        for node, paths in _logs(directory).items():
            newest = max(paths)
            ends[node] = StreamPosition(newest, _last_line_end(paths[newest]))
        return cls(directory, EventCursor(ends))

    def read(self) -> list[EventLine]:
        """Return the oldest lines that were not read yet, in order of time; [] if there are none.

        The caller moves `cursor` over each of them.
        """
        waiting: list[list[EventLine]] = []
        bound: int | None = None
        for node, paths in sorted(_logs(self.directory).items()):
            lines, has_more = self._lines_of(node, paths)
            if lines:
                waiting.append(lines)
            if has_more and lines:
                # what follows in this log may be older than what other logs have
                bound = lines[-1].t_ns if bound is None else min(bound, lines[-1].t_ns)
        merged = heapq.merge(*waiting, key=lambda line: line.t_ns)
        return [line for line in merged if bound is None or line.t_ns <= bound]

    def _lines_of(self, node: str, paths: Mapping[int, Path]) -> tuple[list[EventLine], bool]:
        """Return the next lines of a node, and whether there are more."""
        place = self.cursor.place(node) or StreamPosition(min(paths), 0)
        newest = max(paths)
        for incarnation in sorted(each for each in paths if each >= place.incarnation):
            position = place.position if incarnation == place.incarnation else 0
            lines, is_end = _lines_from(
                node, paths[incarnation], StreamPosition(incarnation, position)
            )
            if lines:
                return lines, not is_end or incarnation < newest
        return [], False


def _lines_from(node: str, path: Path, place: StreamPosition) -> tuple[list[EventLine], bool]:
    """Return the next lines from a place on, and whether the log ends after them; lines that are no
    event are skipped.
    """
    while True:
        chunk = _chunk(path, place.position)
        is_end = len(chunk) < CHUNK_BYTES
        whole, feed, _ = chunk.rpartition(b"\n")
        lines = []
        position = place.position
        for data in whole.split(b"\n") if feed else ():
            position += len(data) + 1
            try:
                envelope = _decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            after = StreamPosition(place.incarnation, position)
            lines.append(EventLine(envelope.t_ns, node, envelope.kind, after, data))
        if lines or is_end or not feed:
            return lines, is_end or not feed
        place = StreamPosition(place.incarnation, position)


def _chunk(path: Path, position: int) -> bytes:
    """Return what follows a position, and the rest of the line where a line is longer."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            chunk = file.read(CHUNK_BYTES)
            if len(chunk) == CHUNK_BYTES and b"\n" not in chunk:
                chunk += file.readline()
            return chunk
    except FileNotFoundError:
        return b""


def _logs(directory: Path) -> dict[str, dict[int, Path]]:
    """Return the event logs by node and incarnation."""
    found: dict[str, dict[int, Path]] = {}
    for path in directory.glob(f"*{LINE_SUFFIX}"):
        name = FILE_NAME.fullmatch(path.name)
        if name is not None:
            found.setdefault(name["node"], {})[int(name["incarnation"])] = path
    return found


def _is_line_start(path: Path, position: int) -> bool:
    if position == 0:
        return True
    with path.open("rb") as file:
        file.seek(position - 1)
        return file.read(1) == b"\n"


def _last_line_end(path: Path) -> int:
    """Return the position after the last whole line."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        while end > 0:
            begin = max(0, end - CHUNK_BYTES)
            file.seek(begin)
            feed = file.read(end - begin).rfind(b"\n")
            if feed >= 0:
                return begin + feed + 1
            end = begin
    return 0


def since_of(text: str) -> int | None:
    """Return the time in the run, in ns, that `from` means: `start`, or ms since the run began.
    None: `now`. Raises ValueError.
    """
    if text == FROM_NOW:
        return None
    if text == FROM_START:
        return 0
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise ValueError(f"from is `start`, `now`, or ms since the run began, not {text[:60]!r}")
    return int(text) * NANOSECONDS_PER_MS
