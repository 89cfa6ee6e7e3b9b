"""The state of the analysis of a run that is being written: what was read, what was checked, and
what was found. It knows no Spark and no clock: both come from the caller.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftsim.analysis.analysis import RunFacts, read_run_facts
from kraftsim.analysis.live.checking import (
    LiveChecks,
    in_order_of_time,
    key_of,
    lost_lines_text,
)
from kraftsim.analysis.live.figures import FIGURE_KINDS, ClusterFigures, Status
from kraftsim.analysis.live.line_numbers import LineNumbers
from kraftsim.analysis.live.ordering import SLACK_NS, EventOrder, Line
from kraftsim.analysis.live.source import (
    ROWS,
    Extent,
    decode_envelope,
    extents,
    log_sizes,
    next_positions,
    readable_sizes,
    rows_of,
    torn_tail,
)
from kraftsim.analysis.live.witness_lines import STEP, EventTime, LineIndex, SeenEvent
from kraftsim.events.runs import RunEnded, RunStarted
from kraftsim.invariants.invariant import Invariant
from kraftsim.invariants.verdict import VIOLATIONS_KEPT_MAX, Verdict, Violation

NANOSECONDS: Final = 1_000_000_000
RECHECK_PAUSE: Final = 4
"""Checking again takes at most a fifth of the time: this many times as long as it took, there is no
other.
"""
READ_AGAIN_BYTES: Final = 1024 * 1024


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A violation that was found, or one that no longer holds when late events are in their
    place.
    """

    violation: Violation
    events: tuple[SeenEvent, ...]
    is_withdrawn: bool = False


class LiveRun:
    """The analysis of one run while it is written."""

    def __init__(
        self, run: Path, invariants: Sequence[Invariant], *, slack_ns: int = SLACK_NS
    ) -> None:
        self.run = run
        self._invariants = tuple(invariants)
        self._order = EventOrder(slack_ns)
        self._checks = self._new_checks()
        self._positions: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._unsorted: set[str] = set()
        self._numbers: dict[str, LineNumbers] = {}
        self._index = LineIndex(run)
        self._unreadable_count = 0
        self._found: dict[tuple[str, str], Violation] = {}
        self._announced: set[tuple[str, str]] = set()  # for membership only, never iterated
        self._announced_counts: Counter[str] = Counter()
        self._news: list[Found] = []
        self._figures = ClusterFigures()
        self._last_t_ns: dict[str, int] = {}
        self._may_recheck_ns = 0
        self._grown_ns: int | None = None
        self._behind_since_ns: dict[str, int] = {}
        self._last_status: tuple[int, int, int] | None = None
        self.event_count = 0
        self.checked_count = 0
        self.late_count = 0
        self.recheck_count = 0
        self.torn_bytes = 0
        self.has_started = False
        self.has_ended = False

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of events whose lines are wanted."""
        watched = {kind.__name__ for each in self._invariants for kind in each.watches}
        return frozenset(watched | {kind.__name__ for kind in FIGURE_KINDS})

    @property
    def positions(self) -> dict[str, int]:
        """How far each file was read."""
        return dict(self._positions)

    @property
    def unfit_count(self) -> int:
        """Lines whose fields are not those of their kind: only an analysis of the finished run can
        use them.
        """
        return self._checks.unfit_count

    @property
    def bytes_behind(self) -> int:
        """Bytes of whole lines that were not read at the last look."""
        return sum(
            max(0, size - self._positions.get(file, 0)) for file, size in self._sizes.items()
        )

    def seconds_idle(self, now_ns: int) -> float:
        """Return for how long no file has grown, with everything read; 0 if something is unread."""
        if self._grown_ns is None or self.bytes_behind:
            return 0.0
        return (now_ns - self._grown_ns) / NANOSECONDS

    # ----------------------------------------------------------------------------------------------
    # Reading

    def scan(self, now_ns: int, sizes: dict[str, int] | None = None) -> None:
        """Look how large the files are; `sizes` is for a caller that has looked already."""
        sizes = readable_sizes(self.run, self._positions) if sizes is None else sizes
        if sizes != self._sizes or self._grown_ns is None:
            self._grown_ns = now_ns
        self._sizes = sizes
        self._order.scanned(now_ns, sizes)
        for file, size in sizes.items():
            if size > self._positions.get(file, 0):
                self._behind_since_ns.setdefault(file, now_ns)
            else:
                self._behind_since_ns.pop(file, None)

    def add(self, table: pa.Table, now_ns: int) -> None:
        """Take the rows of a batch: lines of each file in their order."""
        if not table.num_rows:
            return
        table = table.combine_chunks()
        files = pc.dictionary_encode(table.column("file").combine_chunks())
        codes = files.indices.to_numpy(zero_copy_only=False)
        names = files.dictionary.to_pylist()
        starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), table.num_rows]
        for first, end in pairwise(starts):
            self._add_file(names[codes[first]], table.slice(first, end - first), now_ns)

    def _add_file(self, file: str, rows: pa.Table, now_ns: int) -> None:
        before = self._positions.get(file, 0)
        position = rows.column("end")[-1].as_py()
        self._positions[file] = position
        if position >= self._sizes.get(file, 0):
            self._behind_since_ns.pop(file, None)
        else:
            self._behind_since_ns[file] = now_ns
        is_event = pc.is_valid(rows.column("kind"))
        line_starts = pa.array(
            np.concatenate(([before], rows.column("end").to_numpy()[:-1])), pa.int64()
        )
        rows = rows.append_column("start", line_starts)
        self._unreadable_count += (
            pc.sum(
                pc.greater(pc.binary_length(rows.filter(pc.invert(is_event)).column("line")), 0)
            ).as_py()
            or 0
        )
        events = rows.filter(is_event)
        if not events.num_rows:
            self._order.add(file, (), position=position, last_t_ns=-1, now_ns=now_ns)
            return
        self.event_count += events.num_rows
        kinds = set(pc.unique(events.column("kind")).to_pylist())
        self.has_started |= RunStarted.__name__ in kinds
        self.has_ended |= RunEnded.__name__ in kinds
        self._take_numbers(file, events)
        times = events.column("t_ns").to_numpy()
        if len(times) > 1 and np.any(np.diff(times) < 0):
            self._unsorted.add(file)
        last_t_ns = int(times[-1])
        node = events.column("node")[-1].as_py()
        self._last_t_ns[node] = max(last_t_ns, self._last_t_ns.get(node, -1))
        wanted = events.filter(pc.is_valid(events.column("line")))
        lines = map(
            Line,
            wanted.column("t_ns").to_pylist(),
            wanted.column("node").to_pylist(),
            wanted.column("incarnation").to_pylist(),
            wanted.column("n").to_pylist(),
            wanted.column("line").to_pylist(),
        )
        self._order.add(file, lines, position=position, last_t_ns=last_t_ns, now_ns=now_ns)

    def _take_numbers(self, file: str, events: pa.Table) -> None:
        """Note the line numbers, and where some of the lines are."""
        incarnations = pc.unique(
            pc.binary_join_element_wise(
                events.column("node"), events.column("incarnation").cast(pa.string()), "."
            )
        ).to_pylist()
        for incarnation in incarnations:
            own = events
            if len(incarnations) > 1:
                node, _, number = incarnation.rpartition(".")
                own = events.filter(
                    pc.and_(
                        pc.equal(events.column("node"), node),
                        pc.equal(events.column("incarnation"), int(number)),
                    )
                )
            numbers = own.column("n").to_pylist()
            self._numbers.setdefault(incarnation, LineNumbers()).add_all(numbers)
            starts = own.column("start")
            for row in range(0, own.num_rows, STEP):
                self._index.add(incarnation, file, numbers[row], starts[row].as_py())

    def read_rest(self, now_ns: int) -> None:
        """Read what is left of the files, without Spark: no writer appends any more, or the user
        stopped the watch.
        """
        sizes = log_sizes(self.run)
        while True:
            ends = next_positions(self.run, self._positions)
            ends = {file: min(end, sizes.get(file, end)) for file, end in ends.items()}
            parts = extents(self._positions, ends)
            if not parts:
                break
            for part in parts:
                self._add_extent(part, now_ns)
            self.advance(now_ns)
        for file in sizes:
            tail = torn_tail(self.run, file, self._positions.get(file, 0))
            envelope = decode_envelope(tail) if tail.strip() else None
            if envelope is None:
                self.torn_bytes += len(tail)
                continue
            line = tail if envelope.kind in self.kinds else None
            end = self._positions.get(file, 0) + len(tail)
            row = (file, *msgspec.structs.astuple(envelope), end, line)
            self.add(_table([row]), now_ns)

    def _add_extent(self, extent: Extent, now_ns: int) -> None:
        rows = list(rows_of(self.run, extent, self.kinds))
        if rows:
            self.add(_table(rows), now_ns)

    # ----------------------------------------------------------------------------------------------
    # Checking

    def advance(self, now_ns: int) -> bool:
        """Check what is below the watermark.

        Late lines make it necessary to check everything again, in order; that is not done too
        often, and until then no line is checked. Return whether it was done: then call
        `rechecked`.
        """
        if self._order.late_count:
            if now_ns < self._may_recheck_ns:
                return False
            self._check_again(self._order.watermark_ns())
            return True
        for line in self._order.ready():
            self._examine(line)
        return False

    def rechecked(self, took_ns: int, now_ns: int) -> None:
        """Note how long checking again took."""
        self._may_recheck_ns = now_ns + RECHECK_PAUSE * took_ns

    def _examine(self, line: Line) -> None:
        event, violations = self._checks.examine(line)
        self.checked_count += 1
        if event is not None:
            self._figures.examine(line.node, event)
        for violation in violations:
            self._report(violation)

    def _report(self, violation: Violation) -> None:
        if key_of(violation) in self._found:
            return
        self._found[key_of(violation)] = violation
        if key_of(violation) in self._announced:
            return
        self._announced_counts[violation.invariant] += 1
        if self._announced_counts[violation.invariant] <= VIOLATIONS_KEPT_MAX:
            self._announced.add(key_of(violation))
            self._news.append(Found(violation=violation, events=self.events_of(violation)))

    def _check_again(self, watermark_ns: int | None) -> None:
        """Check all lines that were read, in order; `watermark_ns` None is without end."""
        self.late_count += self._order.late_count
        self.recheck_count += 1
        before, self._found = self._found, {}
        news, self._news = self._news, []
        self._checks = self._new_checks()
        self._figures = ClusterFigures()
        self.checked_count = 0
        waiting: list[Line] = []
        last: Line | None = None
        for line in self._lines_read():
            if watermark_ns is not None and line.t_ns >= watermark_ns:
                waiting.append(line)
            else:
                self._examine(line)
                last = line
        self._order.start_again(waiting, last)
        withdrawn = [
            Found(violation=violation, events=(), is_withdrawn=True)
            for key, violation in before.items()
            if key not in self._found and key in self._announced
        ]
        self._announced.difference_update(key_of(each.violation) for each in withdrawn)
        self._news = [*news, *withdrawn, *self._news]

    def _lines_read(self) -> Iterator[Line]:
        """Yield all lines that were read, in the order of time, from the files."""
        return heapq.merge(
            *(
                sorted(self._lines_of(file, position))
                if file in self._unsorted
                else self._lines_of(file, position)
                for file, position in sorted(self._positions.items())
            )
        )

    def _lines_of(self, file: str, position: int) -> Iterator[Line]:
        kinds = self.kinds
        rest = b""
        with (self.run / file).open("rb") as log:
            left = position
            while left > 0:
                content = log.read(min(READ_AGAIN_BYTES, left))
                if not content:
                    break
                left -= len(content)
                *lines, rest = (rest + content).split(b"\n")
                yield from self._wanted(lines, kinds)
        yield from self._wanted([rest], kinds)  # a torn last line that is an event

    def _wanted(self, lines: Sequence[bytes], kinds: frozenset[str]) -> Iterator[Line]:
        for line in lines:
            envelope = decode_envelope(line) if line else None
            if envelope is not None and envelope.kind in kinds:
                yield Line(envelope.t_ns, envelope.node, envelope.incarnation, envelope.n, line)

    def _new_checks(self) -> LiveChecks:
        return LiveChecks(self._invariants, FIGURE_KINDS)

    # ----------------------------------------------------------------------------------------------
    # Results

    def take_news(self) -> list[Found]:
        """Return the violations that were found since the last call; of each invariant no more
        between two calls of `status` than a verdict keeps.
        """
        news, self._news = self._news, []
        return news

    def events_of(self, violation: Violation) -> tuple[SeenEvent, ...]:
        """Return the events that show a violation, as far as their lines are found."""
        events = (self._index.event(event_id) for event_id in violation.witnesses)
        return tuple(event for event in events if event is not None)

    def status(self, now_ns: int) -> Status:
        """Return the state of the watch, with rates since the last call."""
        events, acknowledged = self.event_count, self._figures.acknowledged_count
        before_ns, events_before, acknowledged_before = self._last_status or (now_ns, 0, 0)
        seconds = max(now_ns - before_ns, 1) / NANOSECONDS if self._last_status else 0.0
        self._last_status = (now_ns, events, acknowledged)
        self._announced_counts.clear()
        present_ns = self._order.now_t_ns(now_ns)
        passed_ns = self._order.watermark_ns()
        lag = self._figures.high_watermark_lag()
        return Status(
            event_count=events,
            checked_count=self.checked_count,
            events_per_second=(events - events_before) / seconds if seconds else 0.0,
            acknowledged_per_second=max(0, acknowledged - acknowledged_before) / seconds
            if seconds
            else 0.0,
            bytes_behind=self.bytes_behind,
            oldest_unread_seconds=max(
                ((now_ns - since) / NANOSECONDS for since in self._behind_since_ns.values()),
                default=0.0,
            ),
            waiting_count=self._order.waiting_count,
            checked_behind_seconds=None
            if present_ns is None or passed_ns is None
            else max(0, present_ns - passed_ns) / NANOSECONDS,
            node_lag_seconds={}
            if present_ns is None
            else {
                node: max(0, present_ns - last) / NANOSECONDS
                for node, last in sorted(self._last_t_ns.items())
            },
            high_watermark_lag=None if lag is None else lag[0],
            high_watermark_lag_of="" if lag is None else lag[1],
            violation_count=len(self._found),
        )

    def lost_lines(self) -> str:
        """Return what the logs lack, or ''."""
        return lost_lines_text(
            sum(each.missing_count for each in self._numbers.values()),
            self._unreadable_count,
            sum(each.repeated_count for each in self._numbers.values()),
        )

    def finish(self) -> tuple[RunFacts, tuple[Verdict, ...]]:
        """Check everything that was read, and return the verdicts; call it once, after
        `read_rest`.

        Raises ValueError if run.json is malformed.
        """
        if self._order.late_count:
            self._check_again(None)
        for line in self._order.rest():
            self._examine(line)
        facts = read_run_facts(self.run)
        verdicts = self._checks.finish(facts.must_exercise, self.lost_lines(), facts.not_evaluated)
        return facts, tuple(in_order_of_time(verdict, self._times(verdict)) for verdict in verdicts)

    def _times(self, verdict: Verdict) -> dict[str, EventTime]:
        firsts = {each.witnesses[0] for each in verdict.violations if each.witnesses}
        found = {event_id: self._index.event(event_id) for event_id in sorted(firsts)}
        return {event_id: event.time for event_id, event in found.items() if event is not None}


def _table(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)],
        schema=ROWS,
    )
