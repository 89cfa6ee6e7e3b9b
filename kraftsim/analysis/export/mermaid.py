"""A sequence diagram of one window in mermaid: a participant per node, arrows from causes to
effects, and the other events as notes.

Mermaid draws a few hundred rows at most. Of a longer window the events that show the violation are
kept, then faults, then those of the same nodes and those that are near; a note counts the others.
Source: mermaid.js.org, Sequence diagrams.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import IO, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from kraftsim.analysis import document
from kraftsim.analysis.analysis import WORST_FIRST
from kraftsim.analysis.columns import POSITION
from kraftsim.analysis.export.scope import Integers, LoggedEvent, Scope, api_name, texts
from kraftsim.analysis.looks import family_of
from kraftsim.analysis.places import Where, place_of
from kraftsim.analysis.sentences import Value, printable
from kraftsim.analysis.witnesses import Witness

ROWS_MAX: Final = 60
FRAMES: Final = ("FrameSent", "FrameReceived")
BEFORE, AFTER = 12, 3
"""Events around those that show a violation that are in its window, too."""
FIRST: Final = 0
"""Rank of faults and phases, on whatever node they are logged."""
TEXT_MAX: Final = 160
_PLAIN: Final = frozenset(" .,_=@/()+-'*!?|~$&")
_NOT_SHOWN: Final = ("connection", "link", "crc", "api_version", "client_id")


class Shown(NamedTuple):
    """A violation and the events that show it."""

    invariant: str
    message: str
    witnesses: tuple[Witness, ...]

    @property
    def positions(self) -> list[int]:
        """The positions of the events, sorted."""
        return sorted(event.position for event in self.witnesses)


def violation_of(analysis_file: Where, number: int) -> Shown:
    """Return a violation of a stored analysis, counted from 1 in the order of `kraftsim analyze`,
    which prints only the first ones of each invariant.

    Raises ValueError that says what to do if there is no analysis or no such violation.
    """
    place = place_of(analysis_file)
    try:
        analysis = document.decode(place.read())
    except FileNotFoundError:
        raise ValueError(
            f"{place} does not exist: run `kraftsim analyze {place.parent}` first"
        ) from None
    except msgspec.DecodeError as trouble:
        raise ValueError(
            f"{place} is no analysis of this release ({trouble}): run `kraftsim analyze "
            f"{place.parent}` again"
        ) from trouble
    verdicts = sorted(analysis.verdicts, key=lambda each: WORST_FIRST.index(each.outcome))
    found = [
        Shown(verdict.invariant, violation.message, analysis.evidence[violation])
        for verdict in verdicts
        for violation in verdict.violations
        if analysis.evidence[violation]
    ]
    if not 1 <= number <= len(found):
        raise ValueError(f"--violation {number}: {_listed(found)}")
    return found[number - 1]


def _listed(found: Sequence[Shown]) -> str:
    if not found:
        return "the stored analysis has no violation; give --from and --until instead"
    names: dict[str, list[int]] = {}
    for number, each in enumerate(found, 1):
        names.setdefault(each.invariant, []).append(number)
    listed = [
        f"{numbers[0]} to {numbers[-1]} {name}" if len(numbers) > 1 else f"{numbers[0]} {name}"
        for name, numbers in names.items()
    ]
    return f"the stored analysis has {len(found)} violations with events: {', '.join(listed)}"


class SequenceDiagram:
    """Writes the diagram of a window."""

    def __init__(self, shown: Shown | None = None, rows_max: int = ROWS_MAX) -> None:
        self.shown = shown
        self.rows_max = rows_max
        self._witnesses = set(shown.positions) if shown else set()

    def __call__(self, scope: Scope, out: IO[bytes]) -> list[str]:
        """Write the diagram and return how many events it leaves out."""
        chosen = self._choose(scope)
        events = list(scope.at_positions(chosen))
        left_out = len(scope) - len(chosen)
        for line in self._lines(events, left_out):
            out.write(line.encode() + b"\n")
        if not left_out:
            return []
        return [
            f"{left_out:,} of {len(scope):,} events of this window are not shown: raise --limit, "
            "or narrow --from and --until"
        ]

    def _choose(self, scope: Scope) -> list[int]:
        """Return the positions to show: the most important ones, in the order of time."""
        if len(scope) <= self.rows_max:
            return list(range(scope.first, scope.end))
        table = scope.table(None, [POSITION, "kind", "node"])
        position = np.asarray(table.column(POSITION).combine_chunks(), np.int64)
        rank = self._ranks(table.column("kind"), table.column("node"), position)
        distance = _distances(position, self._witnesses)
        order = np.lexsort((position, distance, rank))
        rows = max(self.rows_max, len(self._witnesses))
        return sorted(position[order[:rows]].tolist())

    def _ranks(self, kind: pa.ChunkedArray, node: pa.ChunkedArray, position: Integers) -> Integers:
        kinds = texts(kind).combine_chunks().dictionary_encode()
        nodes = texts(node).combine_chunks().dictionary_encode()
        names = kinds.dictionary.to_pylist()
        own = {event.node for event in self.shown.witnesses} if self.shown else set()
        of_kind = np.array([_rank(name) for name in names], np.int64)
        of_node = np.array([2 * (name not in own) for name in nodes.dictionary.to_pylist()])
        rank = of_kind[np.asarray(kinds.indices)]
        rank = np.where(rank == FIRST, FIRST, rank + of_node[np.asarray(nodes.indices)])
        rank[np.isin(position, list(self._witnesses))] = -1
        return np.asarray(rank, np.int64)

    def _lines(self, events: Sequence[LoggedEvent], left_out: int) -> Iterator[str]:
        yield "sequenceDiagram"
        names = list(dict.fromkeys(event.node for event in events))
        places = {name: f"n{number}" for number, name in enumerate(names)}
        for name, place in places.items():
            yield f"    participant {place} as {_escaped(name)}"
        everywhere = ",".join(dict.fromkeys((places[names[0]], places[names[-1]])))
        if self.shown is not None:
            title = _escaped(f"{self.shown.invariant}: {self.shown.message}")
            yield f"    Note over {everywhere}: {title}"
        node_of = {event.position: event.node for event in events}
        answered = {event.cause for event in events if _is_arrow(event, node_of)}
        for event in events:
            is_witness = event.position in self._witnesses
            if event.kind == "FrameSent" and event.position in answered and not is_witness:
                continue  # its arrow is drawn where it arrives
            lines = [self._row(event, places, node_of)]
            if is_witness:
                lines = ["rect rgb(255, 225, 225)", *(f"    {line}" for line in lines), "end"]
            yield from (f"    {line}" for line in lines)
        if left_out:
            yield f"    Note over {everywhere}: {left_out} events are not shown"

    def _row(self, event: LoggedEvent, places: dict[str, str], node_of: dict[int, str]) -> str:
        text = _escaped(f"{event.t_ns / 1e9:.6f} s {_described(event)}")
        place = places[event.node]
        if not _is_arrow(event, node_of):
            return f"Note over {place}: {text}"
        is_request = event.kind in FRAMES and event.fields.get("is_response") is False
        arrow = "->>" if is_request else "-->>"
        return f"{places[node_of[event.cause]]}{arrow}{place}: {text}"


def _is_arrow(event: LoggedEvent, node_of: dict[int, str]) -> bool:
    return node_of.get(event.cause, event.node) != event.node


def _rank(kind: str) -> int:
    """Return how important a kind is on a node of the violation; a frame is the least."""
    if family_of(kind) in ("faults", "run"):
        return FIRST
    return 3 if kind in FRAMES else 1


def _distances(position: Integers, witnesses: Collection[int]) -> Integers:
    """Return how many events lie between each event and the nearest one that shows the violation;
    without any, all are equally near.
    """
    if not witnesses:
        return np.zeros(len(position), np.int64)
    marks = np.array(sorted(witnesses), np.int64)
    after = np.minimum(np.searchsorted(marks, position), len(marks) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.minimum(abs(marks[after] - position), abs(marks[before] - position))
    return np.asarray(nearest, np.int64)


def _described(event: LoggedEvent) -> str:
    """Return an event as a short text."""
    if event.kind in FRAMES:
        name = api_name(event.number("api_key"))
        what = "response" if event.fields.get("is_response") else "request"
        verb = "" if event.kind == "FrameReceived" else f"sends to {event.text('peer')} "
        return f"{verb}{name} {what} {event.number('correlation_id')}"
    fields = " ".join(
        f"{name}={_short(value)}" for name, value in event.fields.items() if name not in _NOT_SHOWN
    )
    return f"{event.kind} {fields}".rstrip()


def _short(value: Value) -> str:
    text = printable(value)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def _escaped(text: str) -> str:
    """Return a text that cannot end a statement or become an element: letters other than plain ones
    are written by their number.
    """
    return "".join(
        letter if letter.isalnum() or letter in _PLAIN else f"#{ord(letter)};"
        for letter in printable(text)
    )
