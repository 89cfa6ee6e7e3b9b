"""The pictures of an audit's page as inline SVG: batches and markers of producers, and the states
of transactional ids. Every shape has its facts as a title; text from disks is escaped.
"""

import html
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from kraftsim.analysis.sentences import printable
from kraftsim.audit.report import time_text
from kraftsim.audit.timelines import (
    PartitionTimeline,
    ProducerLane,
    StateChange,
    TimelineBatch,
    TransactionalIdTimeline,
)

WIDTH, LEFT, RIGHT, TOP, LANE, GAP, BOTTOM = 1100, 190, 12, 6, 22, 6, 20
THINNEST: Final = 1.5
LABEL_LETTERS_MAX: Final = 28
MARKERS: Final = ("COMMIT", "ABORT")
STATES: Final = ("Ongoing", "CompleteCommit", "CompleteAbort", "Empty", "Dead", "removed")
"""Those with a class of their own in the style sheet; PrepareX share one."""


class _Axis:
    """Maps a range of numbers to the width of a picture."""

    def __init__(self, numbers: Iterable[int]) -> None:
        found = list(numbers)
        self.low, self.high = min(found), max(found)

    def x(self, number: int) -> float:
        """Return the place of a number."""
        span = max(self.high - self.low, 1)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (number - self.low) / span, 1)

    def ticks(self, height: int, text: Callable[[int], str]) -> str:
        """Return grid lines with their numbers."""
        span = self.high - self.low
        numbers = sorted({self.low + span * step // 5 for step in range(6)})
        return "".join(
            f'<line class="grid" x1="{self.x(each)}" x2="{self.x(each)}" y1="{TOP}" '
            f'y2="{height - BOTTOM}"/>'
            f'<text class="tick{" last" if each == self.high else ""}" x="{self.x(each)}" '
            f'y="{height - 5}">{_escaped(text(each))}</text>'
            for each in numbers
        )


def producers_by_offset(timeline: PartitionTimeline) -> str:
    """Return the batches and markers of a partition's producers over their offsets."""
    batches = [each for lane in timeline.lanes for each in lane.batches]
    if not batches:
        return ""
    axis = _Axis(number for each in batches for number in (each.base_offset, each.last_offset + 1))
    lanes = [
        _lane(
            place,
            f"producer {lane.producer_id}",
            _open_part(place, lane, axis)
            + "".join(_batch_by_offset(place, each, axis) for each in lane.batches),
        )
        for place, lane in enumerate(timeline.lanes)
    ]
    return _svg(
        lanes,
        axis,
        lambda number: f"{number:,}",
        f"{_name(timeline)} by offset, from {axis.low} to {axis.high - 1}",
    )


def producers_by_time(timeline: PartitionTimeline) -> str:
    """Return the same over time; nothing without times."""
    times = [
        each.time_ms
        for lane in timeline.lanes
        for each in lane.batches
        if each.time_ms is not None and each.time_ms >= 0
    ]
    if not times or min(times) == max(times):
        return ""
    axis = _Axis(times)
    lanes = [
        _lane(
            place,
            f"producer {lane.producer_id}",
            "".join(_batch_by_time(place, each, axis) for each in lane.batches),
        )
        for place, lane in enumerate(timeline.lanes)
    ]
    return _svg(lanes, axis, _time_of(axis), f"{_name(timeline)} by time of the batches")


def transactional_ids(timelines: Sequence[TransactionalIdTimeline], end_ms: int | None) -> str:
    """Return the states of transactional ids over time; the last state of each lasts to the end."""
    times = [
        state.time_ms
        for timeline in timelines
        for state in timeline.states
        if state.time_ms is not None and state.time_ms >= 0
    ]
    if not times:
        return ""
    end = max([*times, *([] if end_ms is None else [end_ms])])
    axis = _Axis([*times, end])
    lanes = []
    for place, timeline in enumerate(timelines):
        known = [
            (state.time_ms, state)
            for state in timeline.states
            if state.time_ms is not None and state.time_ms >= 0
        ]
        shapes = [
            _state(
                place, state, began, known[number + 1][0] if number + 1 < len(known) else end, axis
            )
            for number, (began, state) in enumerate(known)
        ]
        lanes.append(_lane(place, timeline.transactional_id, "".join(shapes)))
    return _svg(lanes, axis, _time_of(axis), "States of transactional ids over time")


def key(entries: Sequence[tuple[str, str]]) -> str:
    """Return the explanation of the colours: class of a shape, and its meaning."""
    return (
        '<p class="keys">'
        + "".join(
            '<span><svg class="plot" viewBox="0 0 14 11" aria-hidden="true">'
            + (
                f'<line class="{kind}" x1="7" x2="7" y1="0" y2="11"/>'
                if kind in (*MARKERS, "other")
                else f'<rect class="{kind}" width="14" height="11"/>'
            )
            + f"</svg>{_escaped(meaning)}</span>"
            for kind, meaning in entries
        )
        + "</p>"
    )


def _name(timeline: PartitionTimeline) -> str:
    return f"Producers of {timeline.topic}-{timeline.partition}"


def _lane(place: int, label: str, shapes: str) -> str:
    y = _y(place)
    name = printable(label)
    shown = name if len(name) <= LABEL_LETTERS_MAX else f"{name[: LABEL_LETTERS_MAX - 1]}…"
    return (
        f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{LANE}"/>'
        f'<text x="0" y="{y + LANE - 7}">{_escaped(shown)}<title>{_escaped(name)}</title></text>'
        f"{shapes}"
    )


def _y(place: int) -> int:
    return TOP + place * (LANE + GAP)


def _svg(lanes: Sequence[str], axis: _Axis, text: Callable[[int], str], about: str) -> str:
    height = TOP + len(lanes) * (LANE + GAP) + BOTTOM
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{_escaped(about)}">{axis.ticks(height, text)}{"".join(lanes)}</svg>'
    )


def _rect(kind: str, x: float, width: float, place: int, title: str, inset: int = 4) -> str:
    return (
        f'<rect class="{kind}" x="{x}" y="{_y(place) + inset}" width="{max(width, THINNEST):.1f}" '
        f'height="{LANE - 2 * inset}"><title>{_escaped(title)}</title></rect>'
    )


def _tick(kind: str, x: float, place: int, title: str) -> str:
    shown = kind if kind in MARKERS else "other"
    return (
        f'<line class="{shown}" x1="{x}" x2="{x}" y1="{_y(place)}" y2="{_y(place) + LANE}">'
        f"<title>{_escaped(title)}</title></line>"
    )


def _open_part(place: int, lane: ProducerLane, axis: _Axis) -> str:
    if lane.open_since is None:
        return ""
    x = axis.x(lane.open_since)
    title = f"transaction without a marker, from offset {lane.open_since:,}"
    return _rect("open", x, WIDTH - RIGHT - x, place, title, inset=1)


def _batch_by_offset(place: int, batch: TimelineBatch, axis: _Axis) -> str:
    x = axis.x(batch.base_offset)
    if batch.kind in ("data", "transactional"):
        return _rect(batch.kind, x, axis.x(batch.last_offset + 1) - x, place, _title(batch))
    return _tick(batch.kind, x, place, _title(batch))


def _batch_by_time(place: int, batch: TimelineBatch, axis: _Axis) -> str:
    if batch.time_ms is None or batch.time_ms < 0:
        return ""
    x = axis.x(batch.time_ms)
    if batch.kind in ("data", "transactional"):
        return _rect(batch.kind, x - 1.5, 3, place, _title(batch))
    return _tick(batch.kind, x, place, _title(batch))


def _title(batch: TimelineBatch) -> str:
    what = (
        f"{batch.kind} batch, offsets {batch.base_offset:,} to {batch.last_offset:,}"
        if batch.kind in ("data", "transactional")
        else f"{batch.kind} marker at offset {batch.base_offset:,}"
    )
    when = "" if batch.time_ms is None or batch.time_ms < 0 else f", {time_text(batch.time_ms)}"
    return f"{what}, producer epoch {batch.producer_epoch}{when}"


def _state(place: int, state: StateChange, began: int, ended: int, axis: _Axis) -> str:
    kind = (
        state.status
        if state.status in STATES
        else "Prepare"
        if state.status.startswith("Prepare")
        else "odd"
    )
    x = axis.x(began)
    who = (
        f", producer {state.producer_id} epoch {state.producer_epoch}"
        if state.producer_id is not None
        else ""
    )
    where = f", partitions {state.partitions}" if state.partitions not in (None, "[]") else ""
    title = f"{state.status} since {time_text(began)}{who}{where}"
    return _rect(kind, x, axis.x(ended) - x, place, printable(title))


def _time_of(axis: _Axis) -> Callable[[int], str]:
    """Return what writes the ticks: with the date if the picture spans several days."""
    form = "%H:%M:%S" if axis.high - axis.low < 86_400_000 else "%m-%d %H:%M"

    def text(time_ms: int) -> str:
        try:
            return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(form)
        except (OverflowError, ValueError, OSError):
            return str(time_ms)

    return text


def _escaped(text: str) -> str:
    return html.escape(printable(text), quote=True)
