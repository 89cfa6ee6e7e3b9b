"""The static part of the picture: one swimlane per node, its incarnations, faults as bands, and the
phases of the run.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

ROLES: Final = ("harness", "controller", "broker", "client", "other", "final")
"""Roles of nodes in the order of their swimlanes."""
FINAL_KINDS: Final = ("FinalLog", "FinalBatch", "FinalRecord")
_NAME: Final = re.compile(r"[^<>|,;\s]+")
_KINDS_OF_ROLE: Final = {
    "harness": ("RunStarted", "PhaseBegan", "FaultInjected", "FaultArmed"),
    "client": (
        "ApplicationStarted",
        "ClientStarted",
        "ClientInitialized",
        "RecordSent",
        "RecordRead",
        "RecordAcknowledged",
    ),
    "final": FINAL_KINDS,
}


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    name: str
    role: str


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One incarnation of a node.

    `end` is 'stopped', 'failed', 'killed', or 'lasting' where the run ended first.
    """

    lane: int
    incarnation: int
    begin_ns: int
    end_ns: int
    end: str


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """A fault on the swimlanes of its targets; one without a known end has no width.

    Without swimlanes it concerns the whole run.
    """

    begin_ns: int
    end_ns: int
    lanes: tuple[int, ...]
    fault: str
    target: str
    trigger: str


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """When the scenario entered a phase."""

    t_ns: int
    phase: str


class Scenery(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is static."""

    lanes: tuple[Lane, ...]
    incarnations: tuple[Life, ...]
    bands: tuple[Band, ...]
    phases: tuple[Phase, ...]
    begin_ns: int
    end_ns: int


def scenery(events: pa.Table) -> Scenery:
    """Return swimlanes, incarnations and bands of the drawn events of a run, which are sorted by
    time.
    """
    kinds_of_node = _kinds_by_node(events)
    roles = _declared_roles(events)
    lanes = sorted(
        (
            Lane(name=node, role=roles.get(node) or _role(kinds))
            for node, kinds in kinds_of_node.items()
        ),
        key=lambda lane: (ROLES.index(lane.role), _natural(lane.name)),
    )
    lane_of = {lane.name: number for number, lane in enumerate(lanes)}
    t_ns = events.column("t_ns")
    end_ns = t_ns[-1].as_py() if events.num_rows else 0
    incarnations = _incarnations(events, lane_of, end_ns)
    phases = (
        Phase(t_ns=int(row["t_ns"]), phase=row["phase"])
        for row in _rows(events, "PhaseBegan", "phase")
    )
    return Scenery(
        lanes=tuple(lanes),
        incarnations=tuple(incarnations),
        bands=tuple(_bands(events, lane_of, incarnations)),
        phases=tuple(phases),
        begin_ns=t_ns[0].as_py() if events.num_rows else 0,
        end_ns=end_ns,
    )


def _kinds_by_node(events: pa.Table) -> Mapping[str, set[str]]:
    pairs = events.select(["node", "kind"]).group_by(["node", "kind"]).aggregate([]).to_pylist()
    kinds: dict[str, set[str]] = {}
    for pair in pairs:
        kinds.setdefault(pair["node"], set()).add(pair["kind"])
    return kinds


def _declared_roles(events: pa.Table) -> Mapping[str, str]:
    declared = {
        row["node"]: row["role"].partition(",")[0]  # a combined node is among the brokers
        for row in _rows(events, "NodeStarted", "node", "role")
    }
    return {node: role for node, role in declared.items() if role in ROLES}


def _role(kinds: set[str]) -> str:
    if kinds <= set(FINAL_KINDS):
        return "final"
    for role in ("harness", "client"):
        if kinds & set(_KINDS_OF_ROLE[role]):
            return role
    return "other"


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts broker-2 before broker-10."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d+)", name)
    ]


def _rows(events: pa.Table, kind: str, *columns: str) -> Sequence[Mapping[str, str]]:
    names = list(dict.fromkeys(("t_ns", *columns)))
    rows: Sequence[Mapping[str, str]] = (
        events.filter(pc.equal(events.column("kind"), kind)).select(names).to_pylist()
    )
    return rows


def _incarnations(events: pa.Table, lane_of: Mapping[str, int], end_of_run_ns: int) -> list[Life]:
    keys = ["node", "incarnation"]
    spans = (
        events.select([*keys, "t_ns"])
        .group_by(keys)
        .aggregate([("t_ns", "min"), ("t_ns", "max")])
        .to_pylist()
    )
    goodbyes = {
        (row["node"], row["incarnation"]): "stopped" for row in _rows(events, "NodeStopped", *keys)
    }
    goodbyes |= {
        (row["node"], row["incarnation"]): "stopped"
        for kind in ("ClientStopped", "ApplicationEnded")
        for row in _rows(events, kind, *keys)
    }
    goodbyes |= {
        (row["node"], row["incarnation"]): "failed" for row in _rows(events, "NodeFailed", *keys)
    }
    strikes = [
        (row["target"], int(row["t_ns"])) for row in _rows(events, "FaultInjected", "target")
    ]
    spans.sort(key=lambda span: (lane_of[span["node"]], span["incarnation"]))
    incarnations = []
    for span, after in zip(spans, [*spans[1:], None], strict=True):
        next_begin_ns = (
            after["t_ns_min"] if after is not None and after["node"] == span["node"] else None
        )
        end = goodbyes.get(
            (span["node"], span["incarnation"]), "lasting" if next_begin_ns is None else "killed"
        )
        last_ns = end_of_run_ns if end == "lasting" else span["t_ns_max"]
        if end == "killed":
            last_ns = _killed_at(span["node"], last_ns, next_begin_ns, strikes)
        lane, incarnation = lane_of[span["node"]], span["incarnation"]
        incarnations.append(
            Life(
                lane=lane,
                incarnation=incarnation,
                begin_ns=span["t_ns_min"],
                end_ns=last_ns,
                end=end,
            )
        )
    return incarnations


def _killed_at(
    node: str, last_line_ns: int, next_begin_ns: int | None, strikes: Sequence[tuple[str, int]]
) -> int:
    """Return the end of an incarnation without a stop event: the fault on its node before its next
    incarnation, else its last line.
    """
    between = [
        t_ns
        for target, t_ns in strikes
        if target == node and next_begin_ns is not None and last_line_ns <= t_ns <= next_begin_ns
    ]
    return min(between, default=last_line_ns)


def _bands(
    events: pa.Table, lane_of: Mapping[str, int], incarnations: Sequence[Life]
) -> list[Band]:
    ends: dict[tuple[str, str], list[int]] = {}
    for row in _rows(events, "FaultEnded", "fault", "target"):
        ends.setdefault((row["fault"], row["target"]), []).append(int(row["t_ns"]))
    bands = []
    for row in _rows(events, "FaultInjected", "fault", "target", "trigger"):
        begin_ns = int(row["t_ns"])
        lanes = tuple(
            sorted({lane_of[name] for name in _NAME.findall(row["target"]) if name in lane_of})
        )
        later = [
            end_ns for end_ns in ends.get((row["fault"], row["target"]), []) if end_ns >= begin_ns
        ]
        end_ns = min(later) if later else _next_incarnation_ns(incarnations, lanes, begin_ns)
        bands.append(
            Band(
                begin_ns=begin_ns,
                end_ns=end_ns,
                lanes=lanes,
                fault=row["fault"],
                target=row["target"],
                trigger=row["trigger"],
            )
        )
    return bands


def _next_incarnation_ns(incarnations: Sequence[Life], lanes: Sequence[int], begin_ns: int) -> int:
    """Return when the one target of a fault was up again, if the fault ended its incarnation; else
    the time of the fault.
    """
    died = any(
        life.lane in lanes and life.end == "killed" and life.end_ns == begin_ns
        for life in incarnations
    )
    reborn = [
        life.begin_ns for life in incarnations if life.lane in lanes and life.begin_ns > begin_ns
    ]
    return min(reborn) if died and len(lanes) == 1 and reborn else begin_ns
