"""Acknowledgement latency and throughput of a run: by phase of the scenario, and over time.

The nth outcome of a record (acknowledged or failed) at a client belongs to its nth send. An
acknowledgement counts in the phase and the interval in which it arrives.
"""

from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraftsim.analysis.places import Where
from kraftsim.analysis.run_summary import codes, pairs, renumber
from kraftsim.analysis.store import read_events

Integers = npt.NDArray[np.int64]
INTERVALS: Final = 80
"""The run is divided into so many equal intervals."""
BEFORE_ALL: Final = "before the first phase"
PERCENTILES: Final = (50, 95, 99)
_SENT, _ACKNOWLEDGED, _FAILED = "RecordSent", "RecordAcknowledged", "RecordFailed"
_PHASE, _ENDED = "PhaseBegan", "RunEnded"


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """The acknowledgements that arrived from `begin_ns` to before `end_ns`.

    `percentiles_ns` are p50, p95, p99 and the maximum; none without an acknowledgement whose send
    is known.
    """

    begin_ns: int
    end_ns: int
    acknowledged: int
    percentiles_ns: tuple[int, ...]
    phase: str = ""

    @property
    def per_second(self) -> float:
        """Records acknowledged per second."""
        span_ns = self.end_ns - self.begin_ns
        return self.acknowledged * 1e9 / span_ns if span_ns > 0 else 0.0


class RunPace(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies by phase, and over time."""

    phases: tuple[Latencies, ...]
    intervals: tuple[Latencies, ...]


class Waits(NamedTuple):
    """When each acknowledgement arrived, and how long its client waited; -1 where its send is not
    known.
    """

    at_ns: Integers
    wait_ns: Integers

    @property
    def known(self) -> Integers:
        """The waits of acknowledgements whose sends are known."""
        return self.wait_ns[self.wait_ns >= 0]


def find_waits(parquet: Where) -> Waits:
    """Return the waits for all acknowledgements of a run, in the order of time."""
    events = read_events(
        parquet,
        kinds=(_SENT, _ACKNOWLEDGED, _FAILED),
        columns=("kind", "t_ns", "node", "incarnation", "client_id", "topic", "record_key"),
    )
    at_ns = np.asarray(events.column("t_ns").combine_chunks(), np.int64)
    is_sent = _is(events.column("kind"), _SENT)
    is_acknowledged = _is(events.column("kind"), _ACKNOWLEDGED)
    record = np.asarray(events.column("incarnation").combine_chunks(), np.int64)
    for name in ("node", "client_id", "topic", "record_key"):
        (record,), _ = renumber(pairs([record], codes([events.column(name)])))
    sends, outcomes = np.flatnonzero(is_sent), np.flatnonzero(~is_sent)
    wait_ns = np.full(len(at_ns), -1, np.int64)
    if len(sends) and len(outcomes):
        send, outcome = pairs(
            [record[sends], record[outcomes]],
            [_ordinals(record[sends]), _ordinals(record[outcomes])],
        )
        order = np.argsort(send, kind="stable")
        place = np.minimum(np.searchsorted(send[order], outcome), len(order) - 1)
        found = sends[order[place]]
        wait = at_ns[outcomes] - at_ns[found]
        wait_ns[outcomes] = np.where((send[order[place]] == outcome) & (wait >= 0), wait, -1)
    return Waits(at_ns[is_acknowledged], wait_ns[is_acknowledged])


def find_pace(parquet: Where, waits: Waits) -> RunPace | None:
    """Return latency and throughput; None for a run without acknowledgements."""
    if not len(waits.at_ns):
        return None
    marks = read_events(parquet, kinds=(_PHASE, _ENDED, _SENT), columns=("kind", "t_ns", "phase"))
    at_ns = np.asarray(marks.column("t_ns").combine_chunks(), np.int64)
    kind = marks.column("kind")
    is_phase, is_end = _is(kind, _PHASE), _is(kind, _ENDED)
    first_ns = int(min(at_ns[~is_end].min(initial=waits.at_ns[0]), waits.at_ns[0]))
    last_ns = int(max(waits.at_ns[-1], at_ns[~is_end].max(initial=0))) + 1
    ended = at_ns[is_end]
    end_ns = max(last_ns, int(ended.max(initial=0)))
    names = marks.column("phase").filter(is_phase).to_pylist()
    begins = at_ns[is_phase].tolist()
    if not begins or begins[0] > first_ns:
        begins, names = [first_ns, *begins], [BEFORE_ALL, *names]
    phases = tuple(
        _latencies(waits, begin, end, name)
        for begin, end, name in zip(begins, [*begins[1:], end_ns], names, strict=True)
    )
    edges = np.linspace(begins[0], end_ns, INTERVALS + 1).astype(np.int64)
    return RunPace(
        phases=phases,
        intervals=tuple(
            _latencies(waits, int(begin), int(end), "") for begin, end in pairwise(edges)
        ),
    )


def _latencies(waits: Waits, begin_ns: int, end_ns: int, phase: str) -> Latencies:
    first, last = np.searchsorted(waits.at_ns, [begin_ns, end_ns])
    known = waits.wait_ns[first:last]
    known = np.sort(known[known >= 0])
    return Latencies(
        begin_ns=begin_ns,
        end_ns=end_ns,
        acknowledged=int(last - first),
        percentiles_ns=_percentiles(known),
        phase=phase,
    )


def _percentiles(ordered: Integers) -> tuple[int, ...]:
    """Return p50, p95, p99 and the maximum: each is a measured value, the least that so many
    percent do not exceed.
    """
    if not len(ordered):
        return ()
    ranks = [-(-len(ordered) * percent // 100) - 1 for percent in PERCENTILES]
    return tuple(int(ordered[rank]) for rank in [*ranks, len(ordered) - 1])


def _is(kind: pa.ChunkedArray, name: str) -> "npt.NDArray[np.bool_]":
    return np.asarray(pc.equal(kind, name).combine_chunks()).astype(bool)


def _ordinals(values: Integers) -> Integers:
    """Return how often each value occurred before."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(values)]
    begin = np.maximum.accumulate(np.where(is_first, np.arange(len(values)), 0))
    ordinals = np.empty(len(values), np.int64)
    ordinals[order] = np.arange(len(values)) - begin
    return ordinals
