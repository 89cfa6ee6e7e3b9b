"""A violation, described in order: the rule, its witnesses as sentences, what lies between them on
the same log or producer, and the state of each replica at that moment.

The first violation of each violated invariant is described, for the few invariants that were
violated first; the others are in the table of invariants.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraftsim.analysis.columns import CAUSE_POSITION, POSITION, fields_of
from kraftsim.analysis.places import Where
from kraftsim.analysis.replica_states import METADATA_TOPIC, ReplicaState, replica_states
from kraftsim.analysis.store import read_events
from kraftsim.analysis.witnesses import Witness, fetch_witnesses
from kraftsim.events.catalogue import KINDS, family
from kraftsim.invariants.verdict import Outcome, Verdict, Violation

Integers = npt.NDArray[np.int64]
INCIDENTS_MAX: Final = 5
BETWEEN_MAX: Final = 24
WINDOW_MAX: Final = 200_000
"""Messages are followed back over so many events, to find what leads to a violation."""
CANDIDATES_MAX: Final = 100_000
FINAL_PREFIX: Final = "Final"
LOG_OF_FAMILY: Final = {"transactions": "__transaction_state", "groups": "__consumer_offsets"}
_METADATA_FAMILIES: Final = ("raft", "metadata", "producer_ids")
_LIFECYCLE: Final = (
    "FaultInjected",
    "FaultTookEffect",
    "NodeFailed",
    "NodeStarted",
    "NodeStopped",
)
_COMPARED: Final = ("first_offset", "last_offset", "offset", "record_key")
_NOTABLE: Final = {
    *_LIFECYCLE,
    "ControllerElected",
    "ControllerResigned",
    "IsrChanged",
    "LeaderElected",
    "LeaderFollowed",
    "LeadershipLost",
    "LogRecovered",
    "MetadataReverted",
    "MetadataTruncated",
    "PartitionTruncated",
    "ProducerFenced",
    "ProducerSnapshotTaken",
    "ProducerStateExpired",
    "QuorumStateStored",
    "RaftRoleChanged",
    "SnapshotLoaded",
    "TransactionAbortForced",
    "TransactionStateChanged",
}
Value: TypeAlias = int | str | bool


class EventsBetween(msgspec.Struct, frozen=True, kw_only=True):
    """An event near the witnesses. `place`: 'before', 'between' or 'after' them; `leads`: in
    Lamport's sense it happens before the last witness, so it can be a cause.
    """

    event: Witness
    place: str
    leads: bool


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One violation. `subject` is what the events around it have in common; `replicas` are those of
    `log`, and `around_count` counts events before any were left out.
    """

    invariant: str
    rule: str
    source: str
    message: str
    witnesses: tuple[Witness, ...]
    subject: str
    around: tuple[EventsBetween, ...]
    around_count: int
    log: str
    replicas: tuple[ReplicaState, ...]


def find_incidents(
    parquet: Where,
    verdicts: Sequence[Verdict],
    evidence: Mapping[Violation, tuple[Witness, ...]],
) -> tuple[Incident, ...]:
    """Return the incidents of a run, the earliest first."""
    first = []
    for verdict in verdicts:
        shown = [each for each in verdict.violations if evidence.get(each)]
        if verdict.outcome is Outcome.VIOLATED and shown:
            violation = min(shown, key=lambda each: evidence[each][-1].position)
            first.append((evidence[violation], verdict, violation.message))
    first.sort(key=lambda each: (each[0][-1].position, -len(each[0]), each[1].invariant))
    return tuple(
        _incident(parquet, verdict, witnesses, message)
        for witnesses, verdict, message in first[:INCIDENTS_MAX]
    )


def _incident(
    parquet: Where, verdict: Verdict, witnesses: tuple[Witness, ...], message: str
) -> Incident:
    subject = subject_of(witnesses)
    around, count = _around(parquet, subject, witnesses)
    topic, partition = subject.log
    moment = max(witness.position for witness in witnesses)
    return Incident(
        invariant=verdict.invariant,
        rule=verdict.rule,
        source=verdict.source,
        message=message,
        witnesses=witnesses,
        subject=subject.text,
        around=around,
        around_count=count,
        log=(
            ""
            if not topic
            else ("the metadata log" if topic == METADATA_TOPIC else f"{topic}-{partition}")
        ),
        replicas=replica_states(parquet, topic, partition, moment) if topic else (),
    )


# --------------------------------------------------------------------------------------------------
# The subject: what the witnesses have in common


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """`fields`: values that events must have; `kinds`: the kinds to search; `log`: topic and
    partition whose replicas are described ('' for none).
    """

    text: str
    fields: Mapping[str, Value]
    kinds: frozenset[str]
    log: tuple[str, int] = ("", 0)


def subject_of(witnesses: Sequence[Witness]) -> Subject:
    """Return what the witnesses have in common: a partition, else the metadata log, else a
    transactional id, a producer id or a group, else their nodes.
    """
    common = {
        name: value
        for name, value in witnesses[0].fields.items()
        if all(each.fields.get(name) == value for each in witnesses)
    }
    kinds = {witness.kind for witness in witnesses}
    families = {family(KINDS[kind].__module__) for kind in kinds if kind in KINDS}
    log = _log(common, families)
    if not log[0]:  # witnesses of different logs: that of the last one
        log = next((own for each in witnesses[::-1] if (own := _log(each.fields, ()))[0]), log)
    for names, text in (
        (("topic", "partition"), "partition {topic}-{partition}"),
        (("transactional_id",), "transactional id {transactional_id}"),
        (("group_id",), "group {group_id}"),
    ):
        if all(name in common for name in names):
            fields = {name: common[name] for name in names}
            return Subject(
                text=text.format_map(fields), fields=fields, kinds=_kinds_with(names), log=log
            )
    if families and families <= {*_METADATA_FAMILIES}:
        of_metadata = frozenset(
            name
            for name, kind in KINDS.items()
            if family(kind.__module__) in _METADATA_FAMILIES and not _is_final(name)
        )
        return Subject(text="the metadata log", fields={}, kinds=of_metadata, log=log)
    if int(common.get("producer_id", -1)) >= 0:
        fields = {"producer_id": common["producer_id"]}
        return Subject(
            text=f"producer id {fields['producer_id']}",
            fields=fields,
            kinds=_kinds_with(("producer_id",)),
            log=log,
        )
    return Subject(text="the same nodes", fields={}, kinds=frozenset(_NOTABLE), log=log)


def _log(common: Mapping[str, Value], families: Collection[str]) -> tuple[str, int]:
    topic, partition = common.get("topic"), common.get("partition")
    if isinstance(topic, str) and isinstance(partition, int):
        return topic, partition
    for name, of_coordinator in LOG_OF_FAMILY.items():
        number = common.get("coordinator_partition", common.get("partition"))
        if name in families and isinstance(number, int):
            return of_coordinator, number
    return (METADATA_TOPIC, 0) if set(families) & {*_METADATA_FAMILIES} else ("", 0)


def _kinds_with(names: Sequence[str]) -> frozenset[str]:
    return frozenset(
        kind for kind in KINDS if set(names) <= set(fields_of(kind)) and not _is_final(kind)
    )


def _is_final(kind: str) -> bool:
    return kind.startswith(FINAL_PREFIX)


# --------------------------------------------------------------------------------------------------
# What lies between the witnesses


def _around(
    parquet: Where, subject: Subject, witnesses: Sequence[Witness]
) -> tuple[tuple[EventsBetween, ...], int]:
    """Return the most telling events near the witnesses, and how many there are."""
    positions = sorted(witness.position for witness in witnesses)
    found = _candidates(parquet, subject)
    lies_in = np.setdiff1d(found, positions)
    between = lies_in[(lies_in > positions[0]) & (lies_in < positions[-1])]
    before, after = lies_in[lies_in < positions[0]], lies_in[lies_in > positions[-1]]
    is_final = all(_is_final(witness.kind) for witness in witnesses)
    if is_final or len(positions) == 1:
        # One witness, or two of the final logs: what led there lies before.
        between = np.concatenate((before, between, after if not is_final else after[:0]))
    count = len(between)
    chosen = _most_telling(parquet, between, witnesses)
    known = fetch_witnesses(parquet, chosen.tolist())
    node_of = {position: event.node for position, event in known.items()}
    leads = _leading(parquet, node_of, positions[-1])
    return (
        tuple(
            EventsBetween(
                event=known[position],
                place=(
                    "before"
                    if position < positions[0]
                    else ("after" if position > positions[-1] else "between")
                ),
                leads=position in leads,
            )
            for position in chosen.tolist()
        ),
        count,
    )


def _candidates(parquet: Where, subject: Subject) -> Integers:
    """Return the positions of the events of a subject, and those of faults and starts of nodes."""
    lifecycle = _positions(read_events(parquet, kinds=_LIFECYCLE, columns=[POSITION]))
    kinds = subject.kinds - {*_LIFECYCLE}
    found = read_events(parquet, kinds=kinds, columns=[POSITION, *subject.fields])
    for name, value in subject.fields.items():
        if name not in found.column_names:
            return lifecycle
        found = found.filter(pc.equal(found.column(name), value))
    return np.union1d(lifecycle, _positions(found))


def _positions(table: pa.Table) -> Integers:
    return np.asarray(table.column(POSITION).combine_chunks(), np.int64)


def _most_telling(parquet: Where, found: Integers, witnesses: Sequence[Witness]) -> Integers:
    """Return at most `BETWEEN_MAX` positions: events about the same offsets or record, and faults
    and starts of the same nodes first, then elections and truncations, then the nearest to the
    witnesses.
    """
    if len(found) <= BETWEEN_MAX:
        return found
    positions = np.array([witness.position for witness in witnesses], np.int64)
    distance = np.abs(found[:, None] - positions[None, :]).min(axis=1)
    nearest_witness = np.abs(found[:, None] - positions[None, :]).argmin(axis=1)
    if len(found) > CANDIDATES_MAX:
        nearest = np.sort(np.argsort(distance, kind="stable")[:CANDIDATES_MAX])
        found, distance = found[nearest], distance[nearest]
        nearest_witness = nearest_witness[nearest]
    table = read_events(
        parquet,
        columns=[POSITION, "kind", "node", "target", *_COMPARED],
        positions=found.tolist(),
    )
    table = table.take(pc.sort_indices(table.column(POSITION)))
    rank = np.where(_is_one_of(table, "kind", _NOTABLE), 1, 2)
    rank = np.where(_is_same(table, witnesses), 0, rank)
    by_distance = np.lexsort((distance, rank, nearest_witness))
    turn = np.empty(len(found), np.int64)  # so that each witness has its share of the events
    for number in range(len(positions)):
        own = by_distance[nearest_witness[by_distance] == number]
        turn[own] = np.arange(len(own))
    order = np.lexsort((turn, rank))[:BETWEEN_MAX]
    return np.sort(found[order])


def _is_same(table: pa.Table, witnesses: Sequence[Witness]) -> "npt.NDArray[np.bool_]":
    """Return which events are about an offset or the record of a witness, or are a fault or a start
    of its node.
    """
    nodes = {witness.node for witness in witnesses}
    same = _is_one_of(table, "kind", _LIFECYCLE) & (
        _is_one_of(table, "node", nodes) | _is_one_of(table, "target", nodes)
    )
    first, last, single = (
        _offsets(table, name) for name in ("first_offset", "last_offset", "offset")
    )
    for witness in witnesses:
        fields = witness.fields
        low = fields.get("first_offset", fields.get("offset"))
        high = fields.get("last_offset", low)
        if isinstance(low, int) and isinstance(high, int) and low >= 0:
            same |= (first >= 0) & (first <= high) & (last >= low)
            same |= (single >= low) & (single <= high)
        key = fields.get("record_key")
        if isinstance(key, str) and key:
            same |= _is_one_of(table, "record_key", {key})
    return same


def _offsets(table: pa.Table, name: str) -> Integers:
    if name not in table.column_names:
        return np.full(table.num_rows, -1, np.int64)
    return np.asarray(table.column(name).combine_chunks().fill_null(-1), np.int64)


def _is_one_of(table: pa.Table, name: str, values: Collection[str]) -> "npt.NDArray[np.bool_]":
    if name not in table.column_names:
        return np.zeros(table.num_rows, bool)
    found = pc.is_in(table.column(name).cast(pa.string()), pa.array(sorted(values), pa.string()))
    return np.asarray(found.combine_chunks()).astype(bool)


def _leading(parquet: Where, node_of: Mapping[int, str], last: int) -> set[int]:
    """Return which of the positions happen before the event at `last`: they precede it on its node,
    or messages lead from them to it. Messages are followed back over `WINDOW_MAX` events; what an
    older event leads to by an older message only is not found.   Source: L. Lamport, 1978.
    """
    earlier = [position for position in node_of if position < last]
    if not earlier:
        return set()
    begin = max(min(earlier), last - WINDOW_MAX)
    table = read_events(
        parquet, columns=[POSITION, "node", CAUSE_POSITION], positions=range(begin, last + 1)
    )
    table = table.take(pc.sort_indices(table.column(POSITION)))
    encoded = table.column("node").combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    node = np.asarray(encoded.indices, np.int64)
    position = _positions(table)
    cause = np.asarray(table.column(CAUSE_POSITION).combine_chunks().fill_null(-1), np.int64)
    reached = np.full(len(encoded.dictionary), -1, np.int64)
    reached[node[-1]] = last
    for row in np.flatnonzero(cause >= begin)[::-1].tolist():
        if position[row] <= reached[node[row]]:
            source = node[cause[row] - begin]
            reached[source] = max(reached[source], cause[row])
    latest = dict(zip(encoded.dictionary.to_pylist(), reached.tolist(), strict=True))
    return {each for each in earlier if each <= latest.get(node_of[each], -1)}
