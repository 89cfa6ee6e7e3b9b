"""The divergence of two runs: the first event, by node and virtual time, that one of them has and
the other has not.

A log is compared with the log of the same node and incarnation, line by line. Of all logs the
divergence that is first in virtual time is the one close to the cause; the others follow from it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kraftsim.events.event import ENVELOPE_FIELDS, event_file_name

CONTEXT: Final = 5
NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
TIMES: Final = ("t_ns", "wall_ms")
Fields = dict[str, int | str | bool | None]
Logs = Mapping[str, Sequence[bytes]]
"""File name of a log -> its complete lines."""


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a log, for output."""

    at_ns: int
    kind: str
    fields: Fields

    def __str__(self) -> str:
        fields = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return (
            f"{self.at_ns / NANOSECONDS_PER_MILLISECOND:11.3f} ms  "
            f"{self.kind}{' ' if fields else ''}{fields}"
        )


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The divergence of two logs of one node.

    `n` is the line in both; `a` or `b` is null if that log has ended. `before` are common events.
    """

    node: str
    incarnation: int
    n: int
    at_ns: int
    a: Happening | None
    b: Happening | None
    before: tuple[Happening, ...]

    def lines(self) -> list[str]:
        """Return it as text for people."""
        where = (
            f"{self.node}, incarnation {self.incarnation}, event {self.n}, at "
            f"{self.at_ns / NANOSECONDS_PER_MILLISECOND:.3f} ms"
        )
        text = [where, *(f"    {each}" for each in self.before)]
        return [
            *text,
            f"  A {self.a or '(the log ends here)'}",
            f"  B {self.b or '(the log ends here)'}",
        ]


class RunDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of two runs.

    `first` is the first event that differs, `first_time` the first equal event at another time.
    """

    a: str
    b: str
    events_a: int
    events_b: int
    logs_differing: tuple[str, ...]
    first: Divergence | None
    first_time: Divergence | None

    @property
    def is_empty(self) -> bool:
        """Return whether the runs are the same, to the nanosecond."""
        return self.first is None and self.first_time is None

    @property
    def is_of_times_only(self) -> bool:
        """Return whether every event is there in both, in the same order on its node, and only
        times differ.
        """
        return self.first is None and self.first_time is not None

    def lines(self) -> list[str]:
        """Return it as text for people."""
        text = [f"A {self.a}: {self.events_a} events", f"B {self.b}: {self.events_b} events"]
        if self.is_empty:
            return [*text, "the runs are the same"]
        text.append(f"logs that differ: {', '.join(self.logs_differing)}")
        if self.first is not None:
            text += ["first event that differs:", *(f"  {line}" for line in self.first.lines())]
        else:
            text.append("only times differ: every node emitted the same events in the same order")
        if self.first_time is not None and (
            self.first is None or self.first_time.at_ns < self.first.at_ns
        ):
            text += [
                "first event at another time:",
                *(f"  {line}" for line in self.first_time.lines()),
            ]
        return text


def compare(
    run_a: Path, run_b: Path, *, context: int = CONTEXT, nodes: Sequence[str] = ()
) -> RunDifference:
    """Compare the event logs of two runs' directories, of some nodes or of all.

    Raises OSError if there are no event logs.
    """
    return compare_logs(
        read_logs(run_a),
        read_logs(run_b),
        names=(str(run_a), str(run_b)),
        context=context,
        nodes=nodes,
    )


def compare_logs(
    a: Logs, b: Logs, *, names: tuple[str, str], context: int = CONTEXT, nodes: Sequence[str] = ()
) -> RunDifference:
    """Compare two sets of event logs."""
    facts: list[Divergence] = []
    times: list[Divergence] = []
    differing = []
    for name in sorted(a.keys() | b.keys()):
        node, _, incarnation = name.removesuffix(".jsonl").rpartition(".")
        if nodes and node not in nodes:
            continue
        fact, time = _parting(node, int(incarnation), a.get(name, ()), b.get(name, ()), context)
        facts += [fact] if fact is not None else []
        times += [time] if time is not None else []
        differing += [f"{node}.{incarnation}"] if fact is not None or time is not None else []
    return RunDifference(
        a=names[0],
        b=names[1],
        events_a=sum(map(len, a.values())),
        events_b=sum(map(len, b.values())),
        logs_differing=tuple(differing),
        first=min(facts, key=_place, default=None),
        first_time=min(times, key=_place, default=None),
    )


class UnreadableEvent(ValueError):
    """A line of an event log is not an event; the message has the log and the line."""


def read_logs(run: Path) -> dict[str, list[bytes]]:
    """Return the event logs of a run's directory. Raises FileNotFoundError if there are none.

    A last line without line feed is the result of kill -9: it is dropped unless it is a complete
    event.
    """
    logs = {
        path.name: _whole_lines(path.read_bytes())
        for path in sorted((run / "events").glob("*.jsonl"))
    }
    if not logs:
        raise FileNotFoundError(f"{run} has no event logs")
    return logs


def _whole_lines(data: bytes) -> list[bytes]:
    *lines, tail = data.split(b"\n")
    if tail:
        try:
            event_of(tail, "", len(lines))
        except UnreadableEvent:
            return lines
        lines.append(tail)
    return lines


def event_of(line: bytes, log: str, n: int) -> tuple[str, int, Fields]:
    """Return the kind, the time and all fields of an event, which is line `n` of a log (from 0).

    Raises UnreadableEvent.
    """
    try:
        fields: Fields = msgspec.json.decode(line, type=Fields)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableEvent(f"{log}: line {n + 1} is no event: {error}") from error
    kind, at_ns = fields.get("kind"), fields.get("t_ns")
    if (
        not isinstance(kind, str)
        or not isinstance(at_ns, int)
        or not isinstance(fields.get("n"), int)
    ):
        raise UnreadableEvent(f"{log}: line {n + 1} is no event: kind, t_ns or n is missing")
    return kind, at_ns, fields


def logs_of(content: bytes) -> dict[str, list[bytes]]:
    """Split concatenated event logs, as returned by `Simulation.event_bytes`."""
    logs: dict[str, list[bytes]] = {}
    for line in content.splitlines():
        envelope = msgspec.json.decode(line)
        logs.setdefault(event_file_name(envelope["node"], envelope["incarnation"]), []).append(line)
    return logs


def _place(divergence: Divergence) -> tuple[int, str, int]:
    return divergence.at_ns, divergence.node, divergence.incarnation


def _parting(
    node: str, incarnation: int, a: Sequence[bytes], b: Sequence[bytes], context: int
) -> tuple[Divergence | None, Divergence | None]:
    """Return the first divergence in the events of two logs, and the first one in their times
    before that.
    """
    time: Divergence | None = None
    log = event_file_name(node, incarnation)
    for n in range(max(len(a), len(b))):
        if n < len(a) and n < len(b) and a[n] == b[n]:
            continue
        one, other = _happening_at(a, log, n), _happening_at(b, log, n)
        if (
            one is not None
            and other is not None
            and (one.kind, one.fields) == (other.kind, other.fields)
        ):
            if time is None and one.at_ns != other.at_ns:
                time = _divergence(node, incarnation, n, one, other, a, context)
            continue
        return _divergence(node, incarnation, n, one, other, a, context), time
    return None, time


def _divergence(
    node: str,
    incarnation: int,
    n: int,
    a: Happening | None,
    b: Happening | None,
    lines: Sequence[bytes],
    context: int,
) -> Divergence:
    at_ns = min(each.at_ns for each in (a, b) if each is not None)
    log, first = event_file_name(node, incarnation), max(n - context, 0)
    before = tuple(
        _happening(line, log, first + index) for index, line in enumerate(lines[first:n])
    )
    return Divergence(node=node, incarnation=incarnation, n=n, at_ns=at_ns, a=a, b=b, before=before)


def _happening_at(lines: Sequence[bytes], log: str, n: int) -> Happening | None:
    return _happening(lines[n], log, n) if n < len(lines) else None


def _happening(line: bytes, log: str, n: int) -> Happening:
    kind, at_ns, fields = event_of(line, log, n)
    own = {name: value for name, value in fields.items() if name not in ENVELOPE_FIELDS}
    return Happening(at_ns=at_ns, kind=kind, fields=own)
