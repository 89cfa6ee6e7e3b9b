"""The offsets that a group coordinator loads when it becomes leader equal the last commits in its
`__consumer_offsets` partition.

A commit that was observed as valid is a lower bound for later loads: of two records for a
partition, the later one in the log wins. A pending transactional commit is not loaded as pending
once its marker was observed. The offset reported for a record equals the offset in that record in
the final logs.
Source: KIP-98; GroupMetadataManager.doLoadGroupsAndOffsets, OffsetMetadataManager.replay;
KAFKA-5247, KAFKA-5600.
"""

from typing import NamedTuple

from kraftsim.events.event import Event
from kraftsim.groups.events import (
    OffsetCommitted,
    OffsetLoaded,
    OffsetMaterialised,
    PendingOffsetAdded,
    PendingOffsetDropped,
)
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalOffset

NAME = "loaded-offsets-equal-log"
NO_PRODUCER_ID = -1
Key = tuple[int, str, str, int]
"""Partition of `__consumer_offsets`, group, topic, partition."""


class Reported(NamedTuple):
    """The offset that a record was reported to commit."""

    offset: int
    event_id: str


class LoadedOffsets:
    """Compares each load with the valid commits before it, and everything with the final logs at
    the end of the run.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._counting: dict[Key, tuple[int, str]] = {}
        self._ended: dict[Key, dict[int, str]] = {}
        self._reported: dict[Key, dict[int, list[Reported]]] = {}
        self._records: dict[Key, dict[int, list[Reported]]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a coordinator's report of a commit, or a record of a final log."""
        if isinstance(event, FinalOffset):
            of = (event.offsets_partition, event.group_id, event.topic, event.partition)
            self._records.setdefault(of, {}).setdefault(event.log_offset, []).append(
                Reported(event.committed_offset, envelope.event_id)
            )
            return None
        assert isinstance(
            event,
            OffsetLoaded
            | OffsetCommitted
            | PendingOffsetAdded
            | OffsetMaterialised
            | PendingOffsetDropped,
        )
        of = (event.coordinator_partition, event.group_id, event.topic, event.partition)
        found = (
            self._check(of, event, envelope.event_id) if isinstance(event, OffsetLoaded) else None
        )
        self._reported.setdefault(of, {}).setdefault(event.record_offset, []).append(
            Reported(event.offset, envelope.event_id)
        )
        if isinstance(event, OffsetMaterialised | PendingOffsetDropped):
            self._ended.setdefault(of, {})[event.record_offset] = envelope.event_id
        if (
            isinstance(event, OffsetCommitted | OffsetMaterialised)
            and event.record_offset >= self._counting.get(of, (-1, ""))[0]
        ):
            self._counting[of] = (event.record_offset, envelope.event_id)
        return found

    def _check(self, of: Key, event: OffsetLoaded, event_id: str) -> Violation | None:
        self._findings.examined += 1
        where, key = _where(of), f"{_key(of)}/{event.record_offset}"
        if event.producer_id != NO_PRODUCER_ID:
            seen = self._ended.get(of, {}).get(event.record_offset)
            if seen is None:
                return None
            message = (
                f"{where}: the commit at offset {event.record_offset} was loaded as one that "
                "waits, and its marker was seen"
            )
            return self._findings.violation(f"{key}/waits", message, seen, event_id)
        last, seen = self._counting.get(of, (-1, ""))
        if last <= event.record_offset:
            return None
        message = (
            f"{where}: the commit at offset {event.record_offset} was loaded, and that at offset "
            f"{last} counted before"
        )
        return self._findings.violation(key, message, seen, event_id)

    def finish(self) -> Verdict:
        """Compare with the logs, and return the verdict."""
        for of, reported in self._reported.items():
            for record_offset, said in reported.items():
                records = self._records.get(of, {}).get(record_offset, [])
                wrong = [
                    each
                    for each in said
                    if records and all(each.offset != record.offset for record in records)
                ]
                if wrong:
                    message = (
                        f"{_where(of)}: offset {wrong[0].offset} was believed, and the record at "
                        f"offset {record_offset} says {records[0].offset}"
                    )
                    self._findings.violation(
                        f"{_key(of)}@{record_offset}",
                        message,
                        wrong[0].event_id,
                        records[0].event_id,
                    )
        return self._findings.verdict()


def _where(of: Key) -> str:
    return f"{of[1]}: {of[2]}-{of[3]}"


def _key(of: Key) -> str:
    return f"{of[1]}/{of[2]}/{of[3]}"


_OF = "run, coordinator_partition, group_id, topic, partition"
_WHERE = "group_id, ': ', topic, '-', partition"


def _report_of(view: str, *, counts: bool, ends: bool) -> str:
    return (
        f"SELECT {_OF}, record_offset, t.offset AS reported_offset, position, {counts} AS "
        f"counts, {ends} AS ends FROM {view} AS t"
    )


def _same(one: str, other: str) -> str:
    return " AND ".join(f"{one}.{column} = {other}.{column}" for column in _OF.split(", "))


INVARIANT = Invariant(
    name=NAME,
    rule="The offset that a group coordinator loads is the last valid commit in its log.",
    source="KIP-98",
    watches=(
        OffsetLoaded,
        OffsetCommitted,
        PendingOffsetAdded,
        OffsetMaterialised,
        PendingOffsetDropped,
        FinalOffset,
    ),
    check=LoadedOffsets,
    examined="SELECT run, count(*) FROM offset_loaded GROUP BY run",
    violations=f"""
        WITH reported AS (
            {_report_of("offset_loaded", counts=False, ends=False)}
            UNION ALL {_report_of("offset_committed", counts=True, ends=False)}
            UNION ALL {_report_of("pending_offset_added", counts=False, ends=False)}
            UNION ALL {_report_of("offset_materialised", counts=True, ends=True)}
            UNION ALL {_report_of("pending_offset_dropped", counts=False, ends=True)}
        ), before_load AS (
            SELECT l.*, t.record_offset AS last_offset, t.position AS seen_position,
                row_number() OVER (PARTITION BY l.run, l.position ORDER BY t.record_offset DESC,
                    t.position DESC) AS place
            FROM offset_loaded AS l
            JOIN reported AS t ON {_same("t", "l")} AND t.counts AND t.position < l.position
            WHERE l.producer_id = {NO_PRODUCER_ID}
        ), stale AS (
            SELECT *, row_number() OVER (PARTITION BY run, group_id, topic, partition, record_offset
                ORDER BY position) AS number FROM before_load
            WHERE place = 1 AND last_offset > record_offset
        ), ended_before AS (
            SELECT l.*, t.position AS seen_position, row_number() OVER (PARTITION BY l.run,
                l.position ORDER BY t.position DESC) AS place
            FROM offset_loaded AS l
            JOIN reported AS t ON {_same("t", "l")} AND t.ends AND t.record_offset = l.record_offset
                AND t.position < l.position
            WHERE l.producer_id <> {NO_PRODUCER_ID}
        ), waiting AS (
            SELECT *, row_number() OVER (PARTITION BY run, group_id, topic, partition, record_offset
                ORDER BY position) AS number FROM ended_before
            WHERE place = 1
        ), record AS (
            SELECT run, offsets_partition AS coordinator_partition, group_id, topic, partition,
                log_offset, committed_offset, position
            FROM final_offset
        ), compared AS (
            SELECT t.*, r.committed_offset, r.position AS record_position,
                max(CASE WHEN r.committed_offset = t.reported_offset THEN 1
                    ELSE 0 END) OVER (PARTITION BY t.run, t.position) AS agrees
            FROM reported AS t JOIN record AS r ON {_same("r", "t")}
                AND r.log_offset = t.record_offset
        ), differing AS (
            SELECT *, row_number() OVER (PARTITION BY run, group_id, topic, partition, record_offset
                ORDER BY position, record_position) AS number
            FROM compared WHERE agrees = 0
        )
        SELECT
            run,
            concat(group_id, '/', topic, '/', partition, '/', record_offset) AS key,
            concat({_WHERE}, ': the commit at offset ', record_offset,
                ' was loaded, and that at offset ', last_offset, ' counted before') AS message,
            seen_position AS first_witness,
            position AS second_witness
        FROM stale WHERE number = 1
        UNION ALL
        SELECT
            run,
            concat(group_id, '/', topic, '/', partition, '/', record_offset, '/waits'),
            concat({_WHERE}, ': the commit at offset ', record_offset,
                ' was loaded as one that waits, and its marker was seen'),
            seen_position,
            position
        FROM waiting WHERE number = 1
        UNION ALL
        SELECT
            run,
            concat(group_id, '/', topic, '/', partition, '@', record_offset),
            concat({_WHERE}, ': offset ', reported_offset,
                ' was believed, and the record at offset ', record_offset, ' says ',
                committed_offset),
            position,
            record_position
        FROM differing WHERE number = 1
    """,
)
