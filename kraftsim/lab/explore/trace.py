"""The trace of a run: one column per node, rows in virtual time, faults across the whole width.

Only the important events are shown unless others are requested; events within one step of time on
one node share a row, and adjacent events of one kind become one entry.
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, cast

import msgspec

from kraftsim.events.event import ENVELOPE_FIELDS
from kraftsim.lab.explore.divergence import Fields, event_of, read_logs
from protocol.api_keys import ApiKey

# --------------------------------------------------------------------------------------------------
# A short text for each kind of event, for narrow columns: 'elected e5', 'appended 17..19',
# 'vote->102 granted'
#
# A kind without a text here falls back to its name and its first field.

EventFields = Mapping[str, int | str | bool | None]

WORDS: Final[Mapping[str, str]] = {
    "ApplicationEnded": "ends: {reason}",
    "ApplicationStarted": "starts {function}",
    "BatchAppended": "{topic}-{partition} +{first_offset}..{last_offset}",
    "BatchReplicated": "{topic}-{partition} replicated {first_offset}..{last_offset}",
    "BrokerEpochReceived": "registered e{broker_epoch}",
    "BrokerFenced": "fence {broker_id}",
    "BrokerRegistered": "register {broker_id}",
    "BrokerRegistrationRefused": "refuse {broker_id}: {reason}",
    "BrokerUnfenced": "unfence {broker_id}",
    "BrokerUnregistered": "unregister {broker_id}",
    "ClientInitialized": "id {producer_id}",
    "ClientStarted": "begins",
    "ClientStopped": "ends",
    "ConnectionClosed": "closed {peer}: {reason}",
    "ConnectionOpened": "open {peer}",
    "ControllerElected": "ELECTED e{leader_epoch}",
    "ControllerRegistered": "register {controller_id}",
    "ControllerResigned": "resigned e{leader_epoch}",
    "ReplicationFailed": "{topic}-{partition} cannot fetch",
    "DiskFailed": "{operation} failed: {reason}",
    "DuplicateAnswered": "{topic}-{partition} duplicate {first_offset}",
    "FactStated": "{name} {key} = {value}",
    "FeatureLevelChanged": "{feature} {level}",
    "HighWatermarkMoved": "hw {high_watermark}",
    "InitProducerIdRefused": "id refused {error_code}",
    "IsrChangeAsked": "{topic}-{partition} isr? {isr}",
    "IsrChanged": "{topic}-{partition} isr {isr}",
    "LeaderElected": "leads {topic}-{partition} e{leader_epoch}",
    "LeaderFollowed": "follows {leader_id} {topic}-{partition}",
    "LeaderLogHeld": "holds {first_offset}..<{end_offset} e{epoch}",
    "LeadershipLost": "resigned {topic}-{partition}",
    "ListenerOpened": "listens {port}",
    "LogStartMoved": "{topic}-{partition} starts at {log_start_offset}",
    "MetadataAppended": "appended {first_offset}..{last_offset}",
    "MetadataApplied": "applied <{next_offset}",
    "MetadataCommitted": "committed <{high_watermark}",
    "MetadataFlushed": "flush <{end_offset}",
    "MetadataReplicated": "replicated {first_offset}..{last_offset}",
    "MetadataReverted": "REVERTED to {to_offset}",
    "MetadataTruncated": "TRUNCATED to {end_offset}",
    "MetadataWritten": "wrote {first_offset}..{last_offset} e{epoch}",
    "NodeFailed": "FAILED: {reason}",
    "NodeReady": "ready",
    "NodeStopped": "stopped",
    "PartitionChanged": "{topic}-{partition} leader {leader}",
    "PartitionCreated": "{topic}-{partition} created",
    "PartitionHighWatermarkMoved": "{topic}-{partition} hw {high_watermark}",
    "PartitionTruncated": "{topic}-{partition} TRUNCATED to {log_end_offset}",
    "ProduceRefused": "{topic}-{partition} refused {error_code}",
    "ProducerIdBlockAllocated": "BLOCK {first_producer_id}..<{next_producer_id} to {broker_id}",
    "ProducerIdBlockReceived": "got block {first_producer_id}..<{next_producer_id}",
    "ProducerIdBlockRefused": "no block: {error_code}",
    "ProducerIdBlockRequested": "requests block",
    "ProducerIdReturned": "returns id {producer_id}",
    "ProducerStateExpired": "expires {producer_id}",
    "RecordAcknowledged": "{record_key} acked at {offset}",
    "RecordReportedDuplicate": "{record_key} called a duplicate",
    "RecordFailed": "{record_key} failed {error_code}",
    "RecordRead": "{record_key} read",
    "RecordSent": "{record_key} sent",
    "RequestRefused": "refused {api_key}: {reason}",
    "SnapshotLoaded": "LOADED snapshot <{end_offset}",
    "SnapshotWritten": "snapshot <{end_offset}",
    "TopicCreated": "topic {topic}",
    "VoteSent": "vote for {candidate_id} announced",
    "VotersChanged": "voters {voters}",
}


def short(kind: str, fields: EventFields, incarnation: int = 1) -> str:
    """Return the short text of an event."""
    special = SPECIAL.get(kind)
    if special is not None:
        return special(fields, incarnation)
    form = WORDS.get(kind)
    if form is not None:
        return form.format(**fields).replace("__cluster_metadata-0", "log")
    main = next(iter(fields.items()), None)
    return kind if main is None else f"{kind} {main[1]}"


def api_name(api_key: object) -> str:
    """Return the name of an API as Kafka writes it; its number if it is unknown."""
    name = next((key.name for key in ApiKey if key == api_key), None)
    return f"API {api_key}" if name is None else name.replace("_", " ").title().replace(" ", "")


def _role(fields: EventFields, incarnation: int) -> str:
    leader = f" of {fields['leader_id']}" if fields["role"] == "Follower" else ""
    return f"{str(fields['role']).lower()}{leader} e{fields['leader_epoch']}"


def _vote(fields: EventFields, incarnation: int) -> str:
    what = "pre-vote" if fields["is_pre_vote"] else "vote"
    return (
        f"{what}->{fields['candidate_id']} {'granted' if fields['is_granted'] else 'refused'} "
        f"e{fields['leader_epoch']}"
    )


def _started(fields: EventFields, incarnation: int) -> str:
    return "starts" if incarnation == 1 else f"RESTARTED #{incarnation}"


def _recovered(fields: EventFields, incarnation: int) -> str:
    truncated = (
        f", {fields['truncated_bytes']} bytes truncated" if fields["truncated_bytes"] else ""
    )
    return f"log <{fields['next_offset']}{truncated}"


def _peer(fields: EventFields) -> str:
    """Return the peer: the id of a controller, which differs from a broker's by its size, else the
    name.
    """
    return str(fields["peer"]).removeprefix("controller-").partition(":")[0]


def _sent(fields: EventFields, incarnation: int) -> str:
    return (
        f"{api_name(fields['api_key'])}{' answer' if fields['is_response'] else ''}->"
        f"{_peer(fields)}"
    )


def _received(fields: EventFields, incarnation: int) -> str:
    return (
        f"{api_name(fields['api_key'])}{' answer' if fields['is_response'] else ''}<-"
        f"{_peer(fields)}"
    )


SPECIAL: Final[Mapping[str, Callable[[EventFields, int], str]]] = {
    "FrameReceived": _received,
    "FrameSent": _sent,
    "LogRecovered": _recovered,
    "NodeStarted": _started,
    "RaftRoleChanged": _role,
    "VoteAnswered": _vote,
}


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


# --------------------------------------------------------------------------------------------------
# Lays rows of a trace out in columns of a given width, as plain text whose segments have styles

TIME_WIDTH: Final = 9
COLUMN_MIN: Final = 18
COLUMN_MAX: Final = 34
HEADER_EVERY: Final = 40
DOWN: Final = "."
Piece = tuple[str, str]
"""Text, and its style: '' for none, else 'time', 'head', 'fault', 'bad', 'good', 'news', 'dim'."""
STYLES: Final = (
    ("KILLED", "bad"),
    ("DIED", "bad"),
    ("FAILED", "bad"),
    ("RESTARTED", "good"),
    ("ELECTED", "good"),
    ("RESUMED", "good"),
    ("PAUSED", "bad"),
    ("TRUNCATED", "news"),
    ("REVERTED", "news"),
    ("LOADED", "news"),
    ("BLOCK", "news"),
)


def fitting(names: Sequence[str], width: int) -> int:
    """Return how many columns fit."""
    return max(1, min(len(names), (width - TIME_WIDTH) // COLUMN_MIN))


def laid_out(rows: Sequence[TraceRow], names: Sequence[str], width: int) -> Iterator[list[Piece]]:
    """Yield the lines: times on the left, then one column per name; rows without a column span the
    whole width.
    """
    room = min((width - TIME_WIDTH) // max(len(names), 1), COLUMN_MAX)
    heading = [
        ("seconds".ljust(TIME_WIDTH), "head"),
        *((name[: room - 1].ljust(room), "head") for name in names),
    ]
    lines = 0
    for row in rows:
        if lines % HEADER_EVERY == 0:
            yield heading
        if row.across is not None:
            yield from _across(row, min(width, TIME_WIDTH + room * len(names)))
            lines += 1
        elif any(name in row.cells for name in names):
            for line in _cells(row, names, room):
                yield line
                lines += 1


def _across(row: TraceRow, width: int) -> Iterator[list[Piece]]:
    assert row.across is not None, "it stands across"
    style = "bad" if row.across.startswith("VIOLATED") else "fault"
    ahead = " " * (len(row.across) - len(row.across.lstrip()))
    for number, text in enumerate(
        textwrap.wrap(row.across.strip(), max(width - TIME_WIDTH - 4 - len(ahead), 20)) or [""]
    ):
        time = _time(row) if number == 0 else ""
        label = f"-- {ahead}{text} " if number == 0 and not ahead else f"   {ahead}{text} "
        yield [
            (time.ljust(TIME_WIDTH), "time"),
            (
                label.ljust(width - TIME_WIDTH, "-" if number == 0 and not ahead else " ").rstrip(),
                style,
            ),
        ]


def _cells(row: TraceRow, names: Sequence[str], room: int) -> Iterator[list[Piece]]:
    wrapped = {
        name: [line for word in row.cells.get(name, ()) for line in textwrap.wrap(word, room - 1)]
        for name in names
    }
    for number in range(max(map(len, wrapped.values()), default=0)):
        line: list[Piece] = [((_time(row) if number == 0 else "").ljust(TIME_WIDTH), "time")]
        for name in names:
            words = wrapped[name]
            if number < len(words):
                line.append((words[number].ljust(room), _style(words[number])))
            else:
                line.append(((DOWN if name in row.down and not words else "").ljust(room), "dim"))
        yield line


def _style(word: str) -> str:
    return next((style for start, style in STYLES if start in word), "")


def _time(row: TraceRow) -> str:
    return f"{row.at_ns / 1e9:.3f}"
