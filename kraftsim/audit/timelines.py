"""What a few producers and transactional ids did over time, for the pictures of an audit's page:
those that defects name, and without defects the latest.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kraftsim.analysis.engines import Cells
from kraftsim.audit.judging import Asked
from kraftsim.audit.rule import Finding

PARTITIONS_MAX: Final = 12
PRODUCERS_MAX: Final = 12
"""In one partition."""
BATCHES_MAX: Final = 300
"""Of one producer: the newest."""
TRANSACTIONAL_IDS_MAX: Final = 20
STATES_MAX: Final = 200
"""Of one transactional id: the newest."""
WITNESSES_MAX: Final = 400
"""So many places of defects are looked up."""


class TimelineBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch or marker; `kind` is data, transactional, COMMIT or ABORT."""

    base_offset: int
    last_offset: int
    time_ms: int | None
    kind: str
    producer_epoch: int
    leader_epoch: int | None


class ProducerLane(msgspec.Struct, frozen=True, kw_only=True):
    """The batches of one producer in a partition, in the order of their offsets.

    `open_since`: the first offset of its transaction without a marker; null if all have ended.
    """

    producer_id: int
    batches: tuple[TimelineBatch, ...]
    open_since: int | None
    left_out: int


class PartitionTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a partition and its producers."""

    topic: str
    partition: int
    log_dir: str
    lanes: tuple[ProducerLane, ...]
    is_named: bool
    """Whether a defect names one of its batches."""


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """One record of __transaction_state."""

    time_ms: int | None
    status: str
    producer_id: int | None
    producer_epoch: int | None
    partitions: str | None
    """JSON list of [topic, partition]."""


class TransactionalIdTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """The states of a transactional id, in the order of the log."""

    transactional_id: str
    states: tuple[StateChange, ...]
    left_out: int
    is_named: bool
    """Whether a defect names it, or its producer."""


def partition_timelines(ask: Asked, defects: Sequence[Finding]) -> tuple[PartitionTimeline, ...]:
    """Return the partitions whose batches are witnesses of defects; without such defects, those of
    the latest producers.
    """
    named = _named_producers(ask, defects)
    if named:
        return tuple(
            _timeline(ask, log_dir, directory, producers)
            for (log_dir, directory), producers in list(named.items())[:PARTITIONS_MAX]
        )
    latest: dict[str, str] = {}
    for log_dir, directory, _ in ask(_LATEST):
        latest.setdefault(directory, log_dir)
    shown = sorted(list(latest.items())[: PARTITIONS_MAX // 3])
    return tuple(_timeline(ask, log_dir, directory, ()) for directory, log_dir in shown)


def transactional_id_timelines(
    ask: Asked, defects: Sequence[Finding]
) -> tuple[TransactionalIdTimeline, ...]:
    """Return the transactional ids whose records or producers defects name; without such defects,
    the latest.
    """
    producers = {id for ids in _named_producers(ask, defects).values() for id in ids}
    named = (
        [row[0] for row in ask(_ids_where(f"producer_id IN ({_numbers(producers)})"))]
        if producers
        else []
    )
    positions = _positions(defects)
    if positions:
        places = {(log_dir, file, position) for log_dir, file, position in positions}
        rows = ask(
            "SELECT DISTINCT transactional_id, log_dir, file, position FROM transaction_states "
            f"WHERE position IN ({_numbers(each[2] for each in positions)}) "
            f"ORDER BY transactional_id, log_dir, file, position"
        )
        named += [row[0] for row in rows if tuple(row[1:]) in places]
    chosen = list(dict.fromkeys(named))[:TRANSACTIONAL_IDS_MAX]
    if chosen:
        return tuple(_id_timeline(ask, name, is_named=True) for name in chosen)
    latest = [row[0] for row in ask(_ids_where("1 = 1"))[: TRANSACTIONAL_IDS_MAX // 4]]
    return tuple(_id_timeline(ask, name, is_named=False) for name in latest)


_LATEST: Final = f"""
SELECT log_dir, directory, max(max_ms) AS latest
FROM batches
WHERE producer_id >= 0 AND substring(topic, 1, 2) <> '__'
GROUP BY log_dir, directory
ORDER BY latest DESC, directory, log_dir
LIMIT {PARTITIONS_MAX * 4}
"""


def _ids_where(condition: str) -> str:
    return (
        "SELECT transactional_id, max(last_update_ms) AS latest FROM transaction_states WHERE "
        f"transactional_id IS NOT NULL AND {condition} GROUP BY transactional_id "
        f"ORDER BY latest DESC, transactional_id LIMIT {TRANSACTIONAL_IDS_MAX}"
    )


def _positions(defects: Iterable[Finding]) -> list[tuple[str, str, int]]:
    found = [
        (each.log_dir, each.file, each.position)
        for finding in defects
        for each in finding.witnesses
        if each.position >= 0
    ]
    return list(dict.fromkeys(found))[:WITNESSES_MAX]


def _named_producers(
    ask: Asked, defects: Sequence[Finding]
) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return the producers of batches that defects name, by log directory and partition."""
    places = _positions(defects)
    if not places:
        return {}
    rows = ask(
        "SELECT DISTINCT log_dir, directory, file, position, producer_id FROM batches WHERE "
        f"producer_id >= 0 AND position IN ({_numbers(place[2] for place in places)}) "
        "ORDER BY log_dir, directory, file, position, producer_id"
    )
    by_place: dict[tuple[str, str, int], list[tuple[str, int]]] = {}
    for log_dir, directory, file, position, producer_id in rows:
        by_place.setdefault((log_dir, file, position), []).append((directory, producer_id))
    found: dict[tuple[str, str], dict[int, None]] = {}
    for place in places:
        for directory, producer_id in by_place.get(place, ()):
            found.setdefault((place[0], directory), {})[producer_id] = None
    return {key: tuple(producers) for key, producers in found.items()}


def _timeline(ask: Asked, log_dir: str, directory: str, named: Sequence[int]) -> PartitionTimeline:
    """Return the named producers and the latest others of a partition."""
    here = f"log_dir = {sql_text(log_dir)} AND directory = {sql_text(directory)}"
    latest = ask(
        f"SELECT producer_id, max(last_offset) AS latest FROM batches WHERE {here} AND "
        f"producer_id >= 0 GROUP BY producer_id ORDER BY latest DESC LIMIT {PRODUCERS_MAX}"
    )
    producers = list(dict.fromkeys([*named, *(row[0] for row in latest)]))[:PRODUCERS_MAX]
    rows = ask(
        "SELECT producer_id, base_offset, last_offset, max_ms, is_transactional, control_type, "
        "producer_epoch, leader_epoch, topic, partition, total, marker FROM ("
        "SELECT *, count(*) OVER (PARTITION BY producer_id) AS total, row_number() OVER "
        "(PARTITION BY producer_id ORDER BY base_offset DESC) AS place, max(CASE WHEN is_control "
        "THEN base_offset END) OVER (PARTITION BY producer_id) AS marker "
        f"FROM batches WHERE {here} AND producer_id IN ({_numbers(producers)})) AS numbered "
        f"WHERE place <= {BATCHES_MAX} ORDER BY producer_id, base_offset"
    )
    lanes: dict[int, list[Cells]] = {}
    for row in rows:
        lanes.setdefault(row[0], []).append(tuple(row))
    topic, _, partition = directory.rpartition("-")
    return PartitionTimeline(
        topic=topic,
        partition=int(partition) if partition.isdecimal() else -1,
        log_dir=log_dir,
        lanes=tuple(
            _lane(producer, lanes[producer]) for producer in producers if producer in lanes
        ),
        is_named=bool(named),
    )


def _lane(producer_id: int, rows: Sequence[Cells]) -> ProducerLane:
    batches = tuple(
        TimelineBatch(
            base_offset=row[1],
            last_offset=row[2],
            time_ms=row[3],
            kind=row[5] or ("transactional" if row[4] else "data"),
            producer_epoch=row[6],
            leader_epoch=row[7],
        )
        for row in rows
    )
    last_marker = rows[-1][11]
    unended = [
        each.base_offset
        for each in batches
        if each.kind == "transactional" and (last_marker is None or each.base_offset > last_marker)
    ]
    return ProducerLane(
        producer_id=producer_id,
        batches=batches,
        open_since=min(unended, default=None),
        left_out=int(rows[-1][10]) - len(rows),
    )


def _id_timeline(ask: Asked, transactional_id: str, *, is_named: bool) -> TransactionalIdTimeline:
    """Return the states in the replica that has most records of it."""
    rows = ask(
        "SELECT log_dir, last_update_ms, timestamp_ms, status, producer_id, producer_epoch, "
        "partitions, is_tombstone, total FROM (SELECT *, count(*) OVER (PARTITION BY log_dir) AS "
        "total, row_number() OVER (PARTITION BY log_dir ORDER BY record_offset DESC) AS place FROM "
        f"transaction_states WHERE transactional_id = {sql_text(transactional_id)}) AS numbered "
        f"WHERE place <= {STATES_MAX} ORDER BY total DESC, log_dir, record_offset"
    )
    of_one = [row for row in rows if row[0] == rows[0][0]]
    states = tuple(
        StateChange(
            time_ms=row[2] if row[1] is None or row[1] < 0 else row[1],
            status="removed" if row[7] else row[3] or "unknown",
            producer_id=row[4],
            producer_epoch=row[5],
            partitions=row[6],
        )
        for row in of_one
    )
    return TransactionalIdTimeline(
        transactional_id=transactional_id,
        states=states,
        left_out=int(of_one[0][8]) - len(of_one) if of_one else 0,
        is_named=is_named,
    )


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(str(int(number)) for number in dict.fromkeys(numbers))


def sql_text(text: str) -> str:
    """Return a text from a disk as an expression of SQL, alike in DuckDB and Spark: Spark takes a
    backslash for an escape, and a dollar sign for a variable.
    """
    parts = re.split(r"(['\\$])", text)
    return " || ".join(
        f"chr({ord(part)})" if part in ("'", "\\", "$") else f"'{part}'" for part in parts
    )
