"""The trace event format of Chrome, which ui.perfetto.dev and chrome://tracing open.

A process per node; its tracks are incarnations, and a track per family of events. An event that is
the cause or the effect of one on another node is a slice of a nanosecond, because flow arrows bind
to slices and not to instants; each arrow is written right after the slice that it binds to.
Source: Trace Event Format (Google), and Perfetto's importer of JSON traces.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import IO, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow.compute as pc

from kraftsim.analysis.columns import CAUSE_POSITION, POSITION
from kraftsim.analysis.export.scope import LoggedEvent, Scope, exact
from kraftsim.analysis.lanes import Scenery, scenery
from kraftsim.analysis.looks import FAMILIES, family_of
from kraftsim.analysis.sentences import Value

SLICE_US: Final = 0.001
TRACKS_PER_PROCESS: Final = 100
"""Numbers of tracks are distinct in the whole trace, as thread ids on Linux are."""
INCARNATIONS: Final = 0
SCENERY_COLUMNS: Final = (
    *("node", "incarnation", "t_ns", "kind", "role", "phase", "fault", "target", "trigger"),
)
METADATA_LOG: Final = "__cluster_metadata-0"


class Gauge(NamedTuple):
    """A number of a log that an event sets: a field, and what to add to it."""

    name: str
    field: str
    plus: int = 0


HIGH_WATERMARK, LOG_END = "high watermark", "log end"
GAUGES: Final = {
    "PartitionHighWatermarkMoved": Gauge(HIGH_WATERMARK, "high_watermark"),
    "LastStableOffsetMoved": Gauge("last stable offset", "offset"),
    "BatchAppended": Gauge(LOG_END, "last_offset", 1),
    "BatchReplicated": Gauge(LOG_END, "last_offset", 1),
    "MarkerAppended": Gauge(LOG_END, "offset", 1),
    "PartitionTruncated": Gauge(LOG_END, "log_end_offset"),
    "LogRecovered": Gauge(LOG_END, "next_offset"),
    "HighWatermarkMoved": Gauge(HIGH_WATERMARK, "high_watermark"),
    "MetadataWritten": Gauge(LOG_END, "last_offset", 1),
    "MetadataTruncated": Gauge(LOG_END, "end_offset"),
}

Entry = dict[str, Value | float | dict[str, Value]]
"""One trace event."""


class Arrows:
    """Causes and effects in the window, as numbers and not as objects."""

    def __init__(self, scope: Scope) -> None:
        table = scope.table(None, [POSITION, CAUSE_POSITION])
        table = table.filter(pc.greater_equal(table.column(CAUSE_POSITION), scope.first))
        cause, effect = (
            np.asarray(table.column(name).combine_chunks(), np.int64)
            for name in (CAUSE_POSITION, POSITION)
        )
        order = np.argsort(cause, kind="stable")
        self._causes, self._effects = array("q"), array("q")
        self._causes.frombytes(cause[order].tobytes())
        self._effects.frombytes(effect[order].tobytes())
        self._first = scope.first

    def from_event(self, event: LoggedEvent) -> list[int]:
        """Return the effects of an event."""
        begin = bisect_left(self._causes, event.position)
        end = bisect_left(self._causes, event.position + 1, lo=begin)
        return list(self._effects[begin:end])

    def leads_to(self, event: LoggedEvent) -> bool:
        """Return whether the cause of an event is in the window."""
        return event.cause >= self._first


def write(scope: Scope, out: IO[bytes]) -> list[str]:
    """Write one JSON object; each trace event is a line."""
    still = scenery(scope.whole_run(SCENERY_COLUMNS))
    process = {lane.name: number for number, lane in enumerate(still.lanes, 1)}
    families: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for kind in scope.counts:
        families[family_of(kind)].append(kind)
    out.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
    separator = b""
    for entry in _entries(scope, still, process, families):
        out.write(separator + msgspec.json.encode(entry))
        separator = b",\n"
    out.write(b"\n]}\n")
    return []


def _entries(
    scope: Scope,
    still: Scenery,
    process: Mapping[str, int],
    families: Mapping[str, list[str]],
) -> Iterator[Entry]:
    yield from _names(still, families)
    yield from _incarnations(scope, still)
    yield from _faults(scope, still)
    arrows = Arrows(scope)
    for number, kinds in enumerate(families.values(), 1):
        for event in scope.events(kinds) if kinds else ():
            pid = process[event.node]
            yield from _marks(event, pid, pid * TRACKS_PER_PROCESS + number, arrows)
            gauge = GAUGES.get(event.kind)
            if gauge is not None:
                yield _counter(event, pid, gauge)


def _names(still: Scenery, families: Mapping[str, list[str]]) -> Iterator[Entry]:
    for pid, lane in enumerate(still.lanes, 1):
        tracks = {
            INCARNATIONS: "incarnations",
            **{
                number: FAMILIES[family]
                for number, (family, kinds) in enumerate(families.items(), 1)
                if kinds
            },
        }
        yield _metadata("process_name", pid, 0, {"name": lane.name})
        yield _metadata("process_labels", pid, 0, {"labels": lane.role})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
        for number, name in tracks.items():
            yield _metadata("thread_name", pid, number, {"name": name})
            yield _metadata("thread_sort_index", pid, number, {"sort_index": number})


def _metadata(name: str, pid: int, track: int, args: dict[str, Value]) -> Entry:
    return {
        "ph": "M",
        "name": name,
        "pid": pid,
        "tid": pid * TRACKS_PER_PROCESS + track,
        "args": args,
    }


def _incarnations(scope: Scope, still: Scenery) -> Iterator[Entry]:
    for span in still.incarnations:
        begin_ns, end_ns = max(span.begin_ns, scope.begin_ns), min(span.end_ns, scope.end_ns)
        if begin_ns > end_ns:
            continue
        pid = span.lane + 1
        yield {
            "ph": "X",
            "name": f"incarnation {span.incarnation}",
            "cat": "incarnation",
            "pid": pid,
            "tid": pid * TRACKS_PER_PROCESS + INCARNATIONS,
            "ts": begin_ns / 1e3,
            "dur": (end_ns - begin_ns) / 1e3,
            "args": {"end": "not ended" if span.end == "lasting" else span.end},
        }


def _faults(scope: Scope, still: Scenery) -> Iterator[Entry]:
    """Yield faults as asynchronous slices of the nodes that they target, and phases as marks across
    all tracks.
    """
    harness = next((pid for pid, lane in enumerate(still.lanes, 1) if lane.role == "harness"), 1)
    for number, band in enumerate(still.bands):
        begin_ns, end_ns = max(band.begin_ns, scope.begin_ns), min(band.end_ns, scope.end_ns)
        if begin_ns > end_ns:
            continue
        for pid in [lane + 1 for lane in band.lanes] or [harness]:
            common: Entry = {
                "name": band.fault,
                "cat": "fault",
                "id": f"fault-{number}-{pid}",
                "pid": pid,
                "tid": pid * TRACKS_PER_PROCESS,
            }
            args: dict[str, Value] = {"target": band.target, "trigger": band.trigger}
            yield {"ph": "b", "ts": begin_ns / 1e3, **common, "args": args}
            yield {"ph": "e", "ts": end_ns / 1e3, **common}
    for phase in still.phases:
        if scope.begin_ns <= phase.t_ns <= scope.end_ns:
            yield {
                "ph": "i",
                "s": "g",
                "name": f"phase {phase.phase}",
                "cat": "run",
                "pid": harness,
                "tid": harness * TRACKS_PER_PROCESS,
                "ts": phase.t_ns / 1e3,
            }


def _marks(event: LoggedEvent, pid: int, tid: int, arrows: Arrows) -> Iterator[Entry]:
    """Yield an event as an instant, or as a slice with its arrows."""
    place: Entry = {"pid": pid, "tid": tid, "ts": event.t_ns / 1e3}
    args = {"event": event.event_id, **exact(event.fields)}
    mark: Entry = {"name": event.kind, "cat": family_of(event.kind), **place, "args": args}
    effects = arrows.from_event(event)
    is_effect = arrows.leads_to(event)
    if not effects and not is_effect:
        yield {"ph": "i", "s": "t", **mark}
        return
    yield {"ph": "X", "dur": SLICE_US, **mark}
    arrow: Entry = {"name": "cause", "cat": "cause", **place}
    if is_effect:
        yield {"ph": "f", "bp": "e", "id": event.position, **arrow}
    for effect in effects:
        yield {"ph": "s", "id": effect, **arrow}


def _counter(event: LoggedEvent, pid: int, gauge: Gauge) -> Entry:
    topic = event.text("topic")
    log = f"{topic}-{event.number('partition')}" if topic else METADATA_LOG
    return {
        "ph": "C",
        "name": f"{log} {gauge.name}",
        "pid": pid,
        "tid": pid * TRACKS_PER_PROCESS,
        "ts": event.t_ns / 1e3,
        "args": {"offset": event.number(gauge.field) + gauge.plus},
    }
