"""The report's sections on what broke, and on latency and throughput, as plain HTML and inline SVG:
both can be read without JavaScript.

Text from a run reaches the page as text only.
"""

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kraftsim.analysis.details import RunDetails
from kraftsim.analysis.details_text import where
from kraftsim.analysis.incident import EventsBetween, Incident
from kraftsim.analysis.pace import Latencies, RunPace
from kraftsim.analysis.replica_states import ReplicaState
from kraftsim.analysis.reproduction import Reproduction
from kraftsim.analysis.run_summary import duration
from kraftsim.analysis.sentences import printable
from kraftsim.analysis.witnesses import Witness

WIDTH: Final = 900
HEIGHT: Final = 150
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 16, 20
TICKS: Final = 4
SHORTEST_NS: Final = 1_000
CURVES: Final = (("p50", 0), ("p95", 1), ("p99", 2), ("max", 3))
DASH: Final = "&ndash;"
_NOT_KNOWN: Final = f'<span title="no event of this incarnation has it">{DASH}</span>'


def summary_html(details: RunDetails | None) -> str:
    """Return the run in one sentence."""
    return "" if details is None else f'<p class="summary">{_text(details.summary.sentence)}</p>'


# --------------------------------------------------------------------------------------------------
# What broke


def broke_html(details: RunDetails | None, row_of: Mapping[int, int]) -> str:
    """Return the incidents and their reproduction; nothing for a run without violations.

    `row_of` has the row of each drawn event by its position: the page moves its picture there.
    """
    if details is None or not details.incidents:
        return ""
    incidents = "".join(
        _incident(incident, row_of, is_open=number == 0)
        for number, incident in enumerate(details.incidents)
    )
    return (
        '<section id="broke" aria-labelledby="broke-title"><h2 id="broke-title">What broke</h2>'
        f"{incidents}{_reproduction(details.reproduction)}</section>"
    )


def _incident(incident: Incident, row_of: Mapping[int, int], *, is_open: bool) -> str:
    witnesses = "".join(f"<li>{_event(each, row_of)}</li>" for each in incident.witnesses)
    return (
        f'<details class="incident"{" open" if is_open else ""}><summary>'
        f"<strong>{_text(incident.invariant)}</strong> {_text(incident.rule)} "
        f"<cite>{_text(incident.source)}</cite></summary>"
        f"<p>{_text(incident.message)}</p>"
        f'<h3>The events that show it</h3><ol class="events">{witnesses}</ol>'
        f"{_around(incident, row_of)}{_replicas(incident)}</details>"
    )


def _around(incident: Incident, row_of: Mapping[int, int]) -> str:
    if not incident.around:
        return '<p class="quiet">No other event concerns the same subject.</p>'
    title = "What lies between them" if where(incident) == "between" else "What happened around it"
    left_out = incident.around_count - len(incident.around)
    notes = []
    if any(each.leads for each in incident.around):
        notes.append(
            "➜ can have caused the violation: messages, or the order on a node, lead from it to "
            "the last event above."
        )
    if left_out > 0:
        notes.append(f"{left_out:,} more are in the event log.")
    note = f'<p class="quiet">{" ".join(notes)}</p>' if notes else ""
    rows = "".join(_around_row(each, row_of) for each in incident.around)
    return f'<h3>{title}, on {_text(incident.subject)}</h3>{note}<ul class="events">{rows}</ul>'


def _around_row(each: EventsBetween, row_of: Mapping[int, int]) -> str:
    mark = (
        '<span class="leads" title="leads to the violation">➜<span class="hidden"> leads to the '
        "violation: </span></span>"
        if each.leads
        else '<span class="leads"></span>'
    )
    return f'<li class="{each.place}">{mark}{_event(each.event, row_of)}</li>'


def _event(event: Witness, row_of: Mapping[int, int]) -> str:
    row = row_of.get(event.position)
    name = _text(event.event_id)
    place = f'<button type="button" data-row="{row}">{name}</button>' if row is not None else name
    return f"<time>{event.t_ns / 1e9:.6f} s</time> {_text(event.sentence)} <small>{place}</small>"


def _replicas(incident: Incident) -> str:
    if not incident.replicas:
        return ""
    return (
        f"<h3>Replicas of {_text(incident.log)} at that moment</h3>"
        + _table(
            ("replica", "role", "leader epoch", "log end offset", "flushed", "high watermark"),
            [_replica(each) for each in incident.replicas],
        )
        + f'<p class="quiet">{DASH}: no event of the node has it since its last start.</p>'
    )


def _replica(replica: ReplicaState) -> list[str]:
    figures = (
        replica.leader_epoch,
        replica.log_end_offset,
        replica.flushed_offset,
        replica.high_watermark,
    )
    return [
        _text(replica.node),
        _text(replica.role) or _NOT_KNOWN,
        *(_NOT_KNOWN if value is None else f"{value:,}" for value in figures),
    ]


def _reproduction(found: Reproduction | None) -> str:
    if found is None:
        return ""
    parts = ["<h3>To reproduce it</h3>"]
    if found.shrunk:
        count = "1 fault" if found.fault_count == 1 else f"{found.fault_count:,} faults"
        parts.append(f"<p>The smallest known run is {_text(found.shrunk)}, with {count}:</p>")
    elif found.faults:
        parts.append(f"<p>The run has {found.fault_count:,} faults:</p>")
    if found.faults:
        faults = "".join(f"<li>{_text(fault)}</li>" for fault in found.faults)
        parts.append(f"<ol>{faults}</ol>")
        if found.fault_count > len(found.faults):
            left_out = found.fault_count - len(found.faults)
            parts.append(f'<p class="quiet">{left_out:,} more are in replay.json.</p>')
    if found.difference:
        sentences = "".join(f"<li>{_text(each)}</li>" for each in found.difference)
        parts.append(
            f"<p>First difference to the sound run {_text(found.sound)}:</p><ul>{sentences}</ul>"
        )
    if found.steps:
        steps = "".join(f"<li><code>{_text(step)}</code></li>" for step in found.steps)
        parts.append(f'<p>To learn more:</p><ul class="steps">{steps}</ul>')
    if found.command:
        parts.append(f"<p>Replay: <code>{_text(found.command)}</code></p>")
    return f'<div class="reproduction">{"".join(parts)}</div>'


# --------------------------------------------------------------------------------------------------
# Latency and throughput


def pace_html(details: RunDetails | None) -> str:
    """Return the plots of latency and throughput, and their tables; nothing for a run without
    acknowledgements.
    """
    pace = None if details is None else details.pace
    if pace is None:
        return ""
    begin_ns = pace.intervals[0].begin_ns
    return (
        '<section class="chapter" id="pace"><h2>Latency and throughput</h2>'
        f"<h3>Wait for an acknowledgement, by phase</h3>{_phase_table(pace.phases)}"
        f"<h3>Wait for an acknowledgement, over time</h3>{_latency_plot(pace)}"
        f"<h3>Records acknowledged per second, over time</h3>{_throughput_plot(pace)}"
        "<details><summary>Both plots as a table</summary>"
        + _table(
            ("from", "to", *_FIGURES),
            [
                [f"{_seconds(each.begin_ns)} s", f"{_seconds(each.end_ns)} s", *_figures(each)]
                for each in pace.intervals
                if each.acknowledged or each.begin_ns == begin_ns
            ],
        )
        + '<p class="quiet">Intervals without acknowledgements are left out.</p>'
        "</details></section>"
    )


_FIGURES: Final = ("p50", "p95", "p99", "longest", "records", "records/s")


def _phase_table(phases: Sequence[Latencies]) -> str:
    return _table(
        ("phase", "from", "lasted", *_FIGURES),
        [
            [
                _text(each.phase),
                f"{_seconds(each.begin_ns)} s",
                f"{_seconds(each.end_ns - each.begin_ns)} s",
                *_figures(each),
            ]
            for each in phases
        ],
    )


def _figures(each: Latencies) -> list[str]:
    waits = [duration(ns) for ns in each.percentiles_ns] or [DASH] * len(CURVES)
    return [*waits, f"{each.acknowledged:,}", f"{each.per_second:,.1f}"]


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:,.2f}"


def _latency_plot(pace: RunPace) -> str:
    """Return the curves of the percentiles on a logarithmic scale; an interval without
    acknowledgements breaks them.
    """
    waits = [ns for each in pace.intervals for ns in each.percentiles_ns]
    highest = max(waits, default=SHORTEST_NS)
    plot = _Plot(pace, _Decades.around(waits))
    curves = "".join(
        plot.curve(
            name,
            [
                each.percentiles_ns[number] if each.percentiles_ns else None
                for each in pace.intervals
            ],
        )
        for name, number in reversed(CURVES)
    )
    return plot.svg(
        curves,
        "The wait for an acknowledgement over time: "
        f"at most {duration(highest)}. The table below has the figures.",
        lambda value: duration(int(value)),
        [name for name, _ in CURVES],
    )


def _throughput_plot(pace: RunPace) -> str:
    rates = [each.per_second for each in pace.intervals]
    highest = max(rates)
    plot = _Plot(pace, _Linear(max(highest, 1e-9)))
    return plot.svg(
        plot.bars(rates),
        f"Records acknowledged per second over time: at most {highest:,.0f}. The table below has "
        "the figures.",
        lambda value: f"{value:,.0f}" if highest >= TICKS else f"{value:,.1f}",
        [],
    )


class _Linear(NamedTuple):
    """A scale from 0 to a value."""

    highest: float

    def part(self, value: float) -> float:
        """Return the place of a value, from 0 to 1."""
        return value / self.highest

    def ticks(self) -> list[float]:
        """Return the values of the grid."""
        return [self.highest * number / TICKS for number in range(TICKS + 1)]


class _Decades(NamedTuple):
    """A logarithmic scale over whole decades of nanoseconds, given by their exponents."""

    low: int
    high: int

    @classmethod
    def around(cls, values: Sequence[int]) -> "_Decades":
        """Return the smallest scale with all values in it; below a microsecond it ends."""
        low = math.floor(math.log10(max(min(values, default=0), SHORTEST_NS)))
        high = math.ceil(math.log10(max(max(values, default=0), SHORTEST_NS)))
        return cls(low, max(high, low + 1))

    def part(self, value: float) -> float:
        """Return the place of a value, from 0 to 1."""
        exponent = math.log10(max(value, SHORTEST_NS))
        return (exponent - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return the values of the grid."""
        return [10.0**exponent for exponent in range(self.low, self.high + 1)]


class _Plot:
    """Positions in a picture of the intervals of a run: time to the right, values upwards."""

    def __init__(self, pace: RunPace, scale: _Linear | _Decades) -> None:
        self._pace = pace
        self._begin_ns = pace.intervals[0].begin_ns
        self._span_ns = max(pace.intervals[-1].end_ns - self._begin_ns, 1)
        self._scale = scale

    def x(self, t_ns: float) -> float:
        """Return the place of a time."""
        return LEFT + (t_ns - self._begin_ns) / self._span_ns * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the place of a value."""
        return HEIGHT - BOTTOM - self._scale.part(value) * (HEIGHT - TOP - BOTTOM)

    def curve(self, name: str, values: Sequence[int | None]) -> str:
        """Return one curve, with a gap where there is no value, and a dot for a lonely value."""
        parts: list[list[str]] = [[]]
        for interval, value in zip(self._pace.intervals, values, strict=True):
            if value is None:
                parts.append([])
                continue
            middle = (interval.begin_ns + interval.end_ns) / 2
            parts[-1].append(f"{self.x(middle):.1f} {self.y(value):.1f}")
        lines = " ".join(f"M{' L'.join(part)}" for part in parts if len(part) > 1)
        dots = " ".join(f"M{part[0]}h0.1" for part in parts if len(part) == 1)
        return (
            f'<path class="curve {name}" d="{lines}"/><path class="curve dots {name}" d="{dots}"/>'
        )

    def bars(self, values: Sequence[float]) -> str:
        """Return one bar per interval."""
        return "".join(
            f'<rect class="bar" x="{self.x(each.begin_ns):.1f}" y="{self.y(value):.1f}" '
            f'width="{max(self.x(each.end_ns) - self.x(each.begin_ns) - 0.5, 0.5):.1f}" '
            f'height="{HEIGHT - BOTTOM - self.y(value):.1f}"/>'
            for each, value in zip(self._pace.intervals, values, strict=True)
            if value
        )

    def svg(
        self, drawn: str, label: str, tick: Callable[[float], str], legend: Sequence[str]
    ) -> str:
        """Return the picture with axes, phases and a legend."""
        lines = "".join(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(value):.1f}" '
            f'y2="{self.y(value):.1f}"/><text x="{LEFT - 6}" y="{self.y(value) + 3:.1f}" '
            f'class="tick">{tick(value)}</text>'
            for value in self._scale.ticks()
        )
        times = "".join(
            f'<text class="time" x="{self.x(t_ns):.1f}" y="{HEIGHT - 5}">{t_ns / 1e9:,.1f} s</text>'
            for t_ns in (
                self._begin_ns + self._span_ns * (number + 0.5) / TICKS for number in range(TICKS)
            )
        )
        phases = "".join(
            f'<line class="phase" x1="{self.x(each.begin_ns):.1f}" x2="{self.x(each.begin_ns):.1f}"'
            f' y1="4" y2="{HEIGHT - BOTTOM}"/><text class="phase" '
            f'x="{self.x(each.begin_ns) + 4:.1f}" y="11">{_text(each.phase)}</text>'
            for each in self._pace.phases
            if self._begin_ns <= each.begin_ns <= self._begin_ns + self._span_ns
        )
        keys = "".join(f'<span class="{name}">{name}</span>' for name in legend)
        return (
            f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{_text(label)}">{lines}{times}{phases}{drawn}</svg>'
            + (f'<p class="keys-of-plot" aria-hidden="true">{keys}</p>' if keys else "")
        )


def _table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are HTML already."""
    heads = "".join(f'<th scope="col">{each}</th>' for each in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: object) -> str:
    return html.escape(printable(str(value)), quote=True)
