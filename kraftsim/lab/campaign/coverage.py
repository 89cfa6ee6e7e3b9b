"""Coverage of a run, computed from its events while it runs: which facts it has seen, and which
facts shortly after one another.

A fact is an event without its numbers: its kind, the role of its node, and the fields that name a
state, an error or a choice. Facts about one subject (a node, a partition, a transactional id, a
group, the quorum) form a chain, and each pair in a chain is a feature: that covers the edges of
every state machine, and the races around them. Margins are part of a fact where an event has one:
how far a truncation was from the high watermark, how late something settled, how many transactions
were loaded, whether an epoch was older than the latest one. A run that reaches a new feature is
worth to be varied. Source: AFL's edge coverage, with events instead of branches.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec import structs

from kraftsim.events.event import Event
from kraftsim.events.runs import FaultArmed, FaultTookEffect, PhaseBegan, Settled
from kraftsim.lab.explore import isolated
from kraftsim.lab.explore.fork import Fork
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.partitions.events import PartitionTruncated
from kraftsim.partitions.events_transactions import LastStableOffsetMoved
from kraftsim.raft.events import RaftRoleChanged

IGNORED: Final = re.compile(
    r"Frame\w+|Final\w+|Connection\w+|Fault(?!TookEffect)\w+|Run\w+"
    r"|RecordSent|RecordAcknowledged|RecordRead|CopyRead|FactStated"
)
"""Kinds of events that say nothing about the state of a node, or are far too many."""
NAMES: Final = (
    *("state", "role", "from_state", "to_state", "error_code", "action", "outcome", "api", "what"),
    *("change", "migration_state", "leader_recovery_state", "transaction_version"),
    *("kraft_version", "reason", "record_kinds", "status", "remedy", "feature", "fault"),
)
"""Fields that name a state, an error or a choice."""
COUNTS: Final = (
    *("transaction_count", "group_count", "producer_count", "truncated_bytes", "defeats"),
    *("request_count", "differences", "kept_records", "replayed_bytes"),
)
"""Fields of which the magnitude matters."""
EPOCHS: Final = (
    *("leader_epoch", "coordinator_epoch", "producer_epoch", "broker_epoch", "controller_epoch"),
    *("partition_epoch", "generation_id"),
)
"""Fields that only grow for one subject: an older value is a race that was lost or fenced."""
MARGINS: Final[Mapping[type[Event], Callable[[Event], int]]] = {
    PartitionTruncated: lambda event: _above(event, "log_end_offset", "high_watermark"),
    LastStableOffsetMoved: lambda event: _above(event, "high_watermark", "offset"),
    Settled: lambda event: _number(event, "after_ms") * 4 // max(1, _number(event, "limit_ms")),
}
"""By kind of event: how near it was to a violation, as a small number."""
TEXT_MAX: Final = 40
WINDOW_NS: Final = 2_000_000_000
CLOSE_NS: Final = 10_000_000
"""A pair within this time is another feature: about one round trip."""
CHAIN: Final = 3
"""How many of the last facts about a subject form pairs with the next one."""
QUORUM: Final = ("quorum",)
PARTITION: Final = ("topic", "partition")
FACTS_MAX: Final = 1 << 16
MASK: Final = 0xFFFFFFFF


class FeaturePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run first reached a feature: the nth event of a kind at a node since the faults were
    armed, `at_ms` after that.
    """

    kind: str
    node: str
    nth: int
    at_ms: int


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The features of a run in the order in which it reached them, as hashes, and the place of
    each; None for a feature that was there before the faults were armed.
    """

    features: tuple[int, ...]
    places: tuple[FeaturePlace | None, ...]


class EventShape(NamedTuple):
    """Which fields of a kind of event are part of a fact, and what the event is about."""

    names: tuple[str, ...]
    counts: tuple[str, ...]
    epochs: tuple[str, ...]
    partition: tuple[str, ...]
    subjects: tuple[str, ...]


class CoverageObserver:
    """Receives every event of one run: see `kraftsim.world.simulated.Simulation.observe`."""

    def __init__(self) -> None:
        self._places: dict[int, FeaturePlace | None] = {}
        self._chains: dict[tuple[object, ...], list[tuple[int, str, int]]] = {}
        self._latest: dict[tuple[object, ...], int] = {}
        self._counts: dict[tuple[type[Event], str], int] = {}
        self._armed_ns = -1

    def coverage(self) -> Coverage:
        """Return the coverage so far."""
        return Coverage(features=tuple(self._places), places=tuple(self._places.values()))

    def examine(self, node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        """Process an event."""
        kind = type(event)
        shape = _shape(kind)
        if self._armed_ns < 0 and isinstance(event, PhaseBegan | FaultArmed):
            self._armed_ns = t_ns
            self._counts.clear()
        if shape is None:
            return
        self._counts[kind, node] = self._counts.get((kind, node), 0) + 1
        subjects = _subjects(shape, node, event)
        fact = _fact(kind, _role(node), self._details(shape, subjects[-1], event))
        self._reach(fact, kind, node, t_ns)
        for subject in subjects:
            chain = self._chains.setdefault(subject, [])
            for earlier, at_node, at_ns in chain:
                apart_ns = t_ns - at_ns
                if apart_ns > WINDOW_NS:
                    continue
                how = (at_node == node) + 2 * (apart_ns > CLOSE_NS)
                pair = (earlier * 0x9E3779B1 ^ fact * 3 ^ how * 0x85EBCA6B) & MASK
                self._reach(pair, kind, node, t_ns)
            if not chain or chain[-1][0] != fact:
                chain.append((fact, node, t_ns))
                if len(chain) > CHAIN:
                    del chain[0]

    def _reach(self, feature: int, kind: type[Event], node: str, t_ns: int) -> None:
        if feature in self._places:
            return
        self._places[feature] = (
            None
            if self._armed_ns < 0
            else FeaturePlace(
                kind=kind.__name__,
                node=node,
                nth=self._counts[kind, node],
                at_ms=(t_ns - self._armed_ns) // 1_000_000,
            )
        )

    def _details(
        self, shape: EventShape, subject: tuple[object, ...], event: Event
    ) -> tuple[object, ...]:
        """Return the values that are part of the fact."""
        values: list[object] = [getattr(event, name) for name in shape.names]
        values += [_magnitude(getattr(event, name)) for name in shape.counts]
        for name in shape.epochs:
            epoch = getattr(event, name)
            latest = self._latest.get((name, *subject), epoch)
            values.append(epoch < latest)
            if epoch >= latest:
                self._latest[name, *subject] = epoch
        margin = MARGINS.get(type(event))
        if margin is not None:
            values.append(margin(event))
        return tuple(values)


@cache
def _shape(kind: type[Event]) -> EventShape | None:
    """Return the shape of a kind of event; None for one that is ignored."""
    if IGNORED.fullmatch(kind.__name__):
        return None
    fields = structs.fields(kind)
    names = [field.name for field in fields]
    return EventShape(
        names=tuple(field.name for field in fields if field.type is bool or field.name in NAMES),
        counts=tuple(name for name in COUNTS if name in names),
        epochs=tuple(name for name in EPOCHS if name in names),
        partition=PARTITION if set(PARTITION) <= set(names) else (),
        subjects=tuple(name for name in ("transactional_id", "group_id") if name in names),
    )


def _subjects(shape: EventShape, node: str, event: Event) -> list[tuple[object, ...]]:
    """Return what an event is about, its node first."""
    subjects: list[tuple[object, ...]] = [("node", node)]
    if isinstance(event, FaultTookEffect):
        subjects = [("node", name) for name in re.split(r"<>|>|,", event.target)]
    elif isinstance(event, RaftRoleChanged):
        subjects.append(QUORUM)
    if shape.partition:
        subjects.append(tuple(getattr(event, name) for name in shape.partition))
    subjects += [(name, getattr(event, name)) for name in shape.subjects]
    return subjects


@lru_cache(FACTS_MAX)
def _fact(kind: type[Event], role: str, details: tuple[object, ...]) -> int:
    """Return the number of a fact, the same in every process."""
    text = "|".join((kind.__name__, role, *(_plain(str(each)) for each in details)))
    return crc32(text.encode())


def _plain(text: str) -> str:
    """Return a text without its numbers, and each part of a list once."""
    parts = dict.fromkeys(text.split(","))
    return (
        text
        if len(text) <= 6  # a number that is a code, or a short name
        else re.sub(r"\d+", "#", ",".join(parts))[:TEXT_MAX]
    )


@cache
def _role(node: str) -> str:
    return re.split(r"[-\d]", node, maxsplit=1)[0]


def _magnitude(number: int) -> int:
    return number.bit_length() if number > 0 else 0


def _number(event: Event, name: str) -> int:
    value = getattr(event, name)
    assert isinstance(value, int), f"{name} is a number"
    return value


def _above(event: Event, upper: str, lower: str) -> int:
    """Return the magnitude of a distance, -1 for one that is negative."""
    distance = _number(event, upper) - _number(event, lower)
    return -1 if distance < 0 else _magnitude(distance)


# --------------------------------------------------------------------------------------------------
# A run with its coverage


class CoveredRun(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run, and its coverage."""

    result: RunResult
    coverage: Coverage


def run_with_coverage(request: RunRequest, fork: Fork | None = None) -> CoveredRun:
    """Run a request in simulation, and observe it; with a `fork`, one of its branches. Raises as
    `run_request`, and BranchesRun.
    """
    if isolated.needs_isolation(request):
        task = f"{__name__}:{covered_as_data.__name__}"
        return msgspec.json.decode(isolated.call(task, request, b"null"), type=CoveredRun)
    observer = CoverageObserver()
    result = run_request(request, observer=observer.examine, fork=fork)
    return CoveredRun(result=result, coverage=observer.coverage())


def covered_as_data(request: RunRequest, nothing: bytes) -> bytes:
    """Run a request with its coverage, and return both as JSON."""
    return msgspec.json.encode(run_with_coverage(request))
