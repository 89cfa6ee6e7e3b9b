"""The trace of a run: one column per node, rows in virtual time, faults across the whole width.

Only the important events are shown unless others are requested; events within one step of time on
one node share a row, and adjacent events of one kind become one entry.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, cast

import msgspec

from kraftsim.events.event import ENVELOPE_FIELDS
from kraftsim.lab.explore.divergence import Fields, event_of, read_logs
from kraftsim.lab.explore.short_texts import short

HARNESS: Final = "harness"
FINAL: Final = "final"
QUIET: Final = frozenset(
    {
        "BatchAppended",
        "BatchReplicated",
        "ClientInitialized",
        "ConfigChanged",
        "ConnectionClosed",
        "ConnectionOpened",
        "FeatureLevelChanged",
        "FrameReceived",
        "FrameSent",
        "LeaderElected",
        "LeaderLogHeld",
        "ListenerOpened",
        "MetadataApplied",
        "MetadataCommitted",
        "MetadataWritten",
        "PartitionCreated",
        "PartitionHighWatermarkMoved",
        "ProducerIdReturned",
        "RecordAcknowledged",
        "RecordRead",
        "RecordSent",
        "VotersChanged",
    }
)
"""Redundant or too frequent kinds; they are shown only on request."""
ACROSS: Final = {
    "FaultInjected": "FAULT {fault} of {target}, {trigger}",
    "FaultTookEffect": "      {fault} of {target}: {effect}",
    "FaultEnded": "      {fault} of {target} is over",
    "PhaseBegan": "phase {phase}",
    "Settled": "settled: {what} after {after_ms} ms",
    "InvariantViolated": "VIOLATED {invariant}: {message}",
    "RunEnded": "the run is over: {outcome}",
}
PAUSES: Final = ("pause", "zombie")
AFTER_THE_REST: Final = 1 << 30
KILLED, DIED, PAUSED, RESUMED = "KILLED", "DIED", "PAUSED", "RESUMED"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a run.

    A fault of the harness at a node is also an entry of that node, of a kind of its own.
    """

    at_ns: int
    node: str
    incarnation: int
    n: int
    kind: str
    fields: Fields


class TraceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row: text across the width, or a cell for the column of each node.

    `down` are nodes that are down.
    """

    at_ns: int
    across: str | None
    cells: Mapping[str, tuple[str, ...]]
    down: tuple[str, ...]


def read_trace(run: Path) -> list[Entry]:
    """Return every event of a run's directory, in order of time, and the times at which nodes died.

    Raises OSError if there are no event logs, UnreadableEvent.
    """
    entries: list[Entry] = []
    for name, lines in read_logs(run).items():
        node, _, incarnation = name.removesuffix(".jsonl").rpartition(".")
        entries += [_entry(node, int(incarnation), line, name, at) for at, line in enumerate(lines)]
    entries = _with_peers(entries) + _deaths(entries)
    return sorted(
        entries,
        key=lambda each: (
            each.at_ns,
            each.n == AFTER_THE_REST,
            each.node == HARNESS,
            each.node,
            each.incarnation,
            each.n,
        ),
    )


def select(
    entries: Iterable[Entry],
    *,
    nodes: Sequence[str] = (),
    kinds: Sequence[str] = (),
    from_ms: float | None = None,
    to_ms: float | None = None,
    everything: bool = False,
) -> list[Entry]:
    """Return the entries to show: of these nodes (and the harness), of these kinds (patterns), in
    this time.

    Without kinds: the important ones.
    """
    return [
        entry
        for entry in entries
        if (from_ms is None or entry.at_ns >= from_ms * 1e6)
        and (to_ms is None or entry.at_ns <= to_ms * 1e6)
        and (
            not nodes
            or entry.node == HARNESS
            or any(fnmatchcase(entry.node, pattern) for pattern in nodes)
        )
        and _is_wanted(entry, kinds, everything)
    ]


def columns_of(entries: Iterable[Entry]) -> list[str]:
    """Return the nodes that get a column: controllers first, then brokers, then clients."""
    names = {entry.node: None for entry in entries if entry.node not in (HARNESS, FINAL)}
    return sorted(
        names,
        key=lambda name: (
            not name.startswith("controller-"),
            not name.startswith("broker-"),
            len(name),
            name,
        ),
    )


def rows_of(
    entries: Sequence[Entry], *, step_ms: float, with_final: bool = False
) -> list[TraceRow]:
    """Return rows: entries of one step of time share one, unless there was a fault at a node in
    between.
    """
    rows: list[TraceRow] = []
    waiting: list[Entry] = []
    down: dict[str, None] = {}
    for entry in entries:
        if entry.node == FINAL and not with_final:
            continue
        if waiting and (
            entry.node == HARNESS
            or entry.at_ns // int(step_ms * 1e6) != waiting[0].at_ns // int(step_ms * 1e6)
        ):
            rows.append(_row(waiting, down))
            waiting = []
        if entry.node == HARNESS:
            across = ACROSS.get(
                entry.kind,
                f"{entry.kind} "
                f"{' '.join(f'{name}={value}' for name, value in entry.fields.items())}",
            )
            rows.append(
                TraceRow(
                    at_ns=entry.at_ns,
                    across=across.format(**entry.fields),
                    cells={},
                    down=tuple(down),
                )
            )
        else:
            waiting.append(entry)
    if waiting:
        rows.append(_row(waiting, down))
    return rows


def _row(entries: Sequence[Entry], down: dict[str, None]) -> TraceRow:
    """Return the row of some entries; nodes that died in it are down from then on."""
    by_node: dict[str, list[Entry]] = {}
    for entry in entries:
        by_node.setdefault(entry.node, []).append(entry)
        if entry.kind in (KILLED, DIED):
            down[entry.node] = None
        elif entry.kind == "NodeStarted":
            down.pop(entry.node, None)
    cells = {node: tuple(_words(found)) for node, found in by_node.items()}
    return TraceRow(at_ns=entries[0].at_ns, across=None, cells=cells, down=tuple(down))


def _words(entries: Sequence[Entry]) -> list[str]:
    """Return the texts of one cell; adjacent events of one kind become one."""
    joined: list[tuple[Entry, int]] = []
    for entry in entries:
        last = joined[-1][0] if joined else None
        if (
            last is not None
            and last.kind == entry.kind
            and (fields := _joined(last.fields, entry.fields)) is not None
        ):
            joined[-1] = (msgspec.structs.replace(entry, fields=fields), joined[-1][1])
        elif last is not None and (last.kind, last.fields) == (entry.kind, entry.fields):
            joined[-1] = (last, joined[-1][1] + 1)
        else:
            joined.append((entry, 1))
    return [
        short(entry.kind, entry.fields, entry.incarnation) + (f" x{count}" if count > 1 else "")
        for entry, count in joined
    ]


def _joined(a: Fields, b: Fields) -> Fields | None:
    """Return two events of one kind as one, if the second continues the first, or is the same with
    a later offset.
    """
    if (a.get("topic"), a.get("partition")) != (b.get("topic"), b.get("partition")):
        return None
    last, first = a.get("last_offset"), b.get("first_offset")
    if isinstance(last, int) and first == last + 1:
        return {**b, "first_offset": a["first_offset"]}
    if "first_offset" not in b and any(name in b for name in ("high_watermark", "next_offset")):
        return b
    return b if set(b) == {"end_offset", "is_voter"} else None


def _with_peers(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries with node names in place of the addresses of frame senders and receivers:
    both ends use the same name of a link.
    """
    ends: dict[str, list[str]] = {}
    for entry in entries:
        known = ends.setdefault(str(entry.fields["link"]), []) if entry.fields.get("link") else []
        if entry.node not in known:
            known.append(entry.node)
    named = []
    for entry in entries:
        other = next(
            (node for node in ends.get(str(entry.fields.get("link")), ()) if node != entry.node),
            None,
        )
        named.append(
            entry
            if other is None
            else msgspec.structs.replace(entry, fields={**entry.fields, "peer": other})
        )
    return named


def _deaths(entries: Sequence[Entry]) -> list[Entry]:
    """Return the times at which nodes died: of incarnations with a successor, that of the last
    fault at them, else that of their last event.
    """
    last: dict[tuple[str, int], Entry] = {}
    for entry in entries:
        last[(entry.node, entry.incarnation)] = entry
    faults = [entry for entry in entries if entry.kind in ("FaultInjected", "FaultEnded")]
    found = []
    for (node, incarnation), silent in last.items():
        successor = next(
            (each for each in entries if each.node == node and each.incarnation == incarnation + 1),
            None,
        )
        if successor is None:
            continue
        blow = next(
            (
                each
                for each in faults
                if each.fields["target"] == node and silent.at_ns <= each.at_ns <= successor.at_ns
            ),
            None,
        )
        if silent.kind != "NodeStopped":
            at_ns = silent.at_ns if blow is None else blow.at_ns
            found.append(_mark(node, incarnation, at_ns, DIED if blow is None else KILLED))
    for fault in faults:
        if fault.fields["fault"] in PAUSES:
            word = PAUSED if fault.kind == "FaultInjected" else RESUMED
            found.append(_mark(str(fault.fields["target"]), 1, fault.at_ns, word))
    return found


def _mark(node: str, incarnation: int, at_ns: int, word: str) -> Entry:
    return Entry(
        at_ns=at_ns, node=node, incarnation=incarnation, n=AFTER_THE_REST, kind=word, fields={}
    )


def _is_wanted(entry: Entry, kinds: Sequence[str], everything: bool) -> bool:
    if kinds:
        return any(fnmatchcase(entry.kind, pattern) for pattern in kinds)
    if entry.node == HARNESS:
        return everything or entry.kind in ACROSS
    return everything or entry.kind not in QUIET


def _entry(node: str, incarnation: int, line: bytes, log: str, at: int) -> Entry:
    kind, at_ns, fields = event_of(line, log, at)
    own = {name: value for name, value in fields.items() if name not in ENVELOPE_FIELDS}
    return Entry(
        at_ns=at_ns,
        node=node,
        incarnation=incarnation,
        n=cast(int, fields["n"]),
        kind=kind,
        fields=own,
    )
