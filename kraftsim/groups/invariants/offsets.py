"""Committed offsets are those of the log: what a coordinator holds, what it has loaded, and what it
returns to consumers.

Offsets of a transaction count from the position of their commit, once their marker has arrived.
"""

from typing import Final, NamedTuple

from kraftsim.events.event import Event
from kraftsim.groups.events import (
    GroupsLoaded,
    GroupsUnloaded,
    OffsetCommitted,
    OffsetForgotten,
    OffsetLoaded,
    OffsetMaterialised,
    OffsetReturned,
    PendingOffsetAdded,
    PendingOffsetDropped,
)
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalMarker, FinalOffset
from kraftsim.producer_state.invariants.sequences import OFFSETS_TOPIC

NO_OFFSET = -1
GroupKey = tuple[str, str, int]
"""Group, topic, partition."""


class Coordinators:
    """Tells which processes coordinate the groups of a partition of `__consumer_offsets`, and which
    have not learnt yet that another one does.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[str, int]] = {}
        self._loaded: dict[int, set[tuple[str, int]]] = {}  # for membership only

    def follow(self, envelope: Envelope, event: GroupsLoaded | GroupsUnloaded) -> None:
        """A process has loaded or unloaded a partition."""
        process = (envelope.node, envelope.incarnation)
        loaded = self._loaded.setdefault(event.partition, set())
        if isinstance(event, GroupsLoaded):
            self._last[event.partition] = process
            loaded.add(process)
        else:
            loaded.discard(process)

    def is_deposed(self, envelope: Envelope, partition: int) -> bool:
        """Return whether a process holds a partition that another one has loaded since."""
        process = (envelope.node, envelope.incarnation)
        return process in self._loaded.get(partition, ()) and self._last.get(partition) != process


class LastAnswers:
    """The offset that a group coordinator returns when the cluster is idle is the last valid commit
    in its log.

    A commit inside a transaction is valid if the next marker of its producer commits. Of several
    valid commits the last is determined by the offsets of the commits, not of their markers.
    Checked with the last response for each partition, unless an offset was committed after it.

    A coordinator that has not learnt yet of its successor answers from its memory, and does not
    count from the moment when the successor has loaded the partition. Apache Kafka answers so, too:
    a read asks only whether this broker has the partition loaded, and no other replica (3.9:
    GroupCoordinator.validateGroupStatus, GroupMetadataManager.isPartitionOwned; since 4.0:
    CoordinatorRuntime.CoordinatorReadEvent, withActiveContextOrThrow). An answer after its unload
    counts.

    Keeps the last response for each partition and replays the log; compares them at the end of the
    run.

    Source: KIP-98; KAFKA-5247; kafka.coordinator.group.GroupMetadataManager.
    """

    def __init__(self) -> None:
        self._findings = Findings("group-offsets-equal-log")
        self._coordinators = Coordinators()
        self._returned: dict[GroupKey, tuple[int, str]] = {}
        self._log: dict[GroupKey, dict[int, FinalOffset]] = {}
        self._markers: dict[tuple[int, int], dict[int, bool]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a response, a later commit, a load, or a record of a final log."""
        if isinstance(event, GroupsLoaded | GroupsUnloaded):
            self._coordinators.follow(envelope, event)
        elif isinstance(event, OffsetReturned):
            if event.error_code == 0 and not self._coordinators.is_deposed(
                envelope, event.coordinator_partition
            ):
                self._returned[event.group_id, event.topic, event.partition] = (
                    event.offset,
                    envelope.event_id,
                )
        elif isinstance(
            event, OffsetCommitted | PendingOffsetAdded | OffsetMaterialised | OffsetForgotten
        ):
            self._returned.pop((event.group_id, event.topic, event.partition), None)
        elif isinstance(event, FinalOffset):
            self._log.setdefault((event.group_id, event.topic, event.partition), {})[
                event.log_offset
            ] = event
        elif isinstance(event, FinalMarker) and event.topic == OFFSETS_TOPIC:
            markers = self._markers.setdefault((event.partition, event.producer_id), {})
            markers[event.offset] = event.is_commit or markers.get(
                event.offset, False
            )  # replicas-equal checks for differences between replicas
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        for key, (returned, event_id) in self._returned.items():
            if key not in self._log:
                continue
            self._findings.examined += 1
            counting = [record for record in self._log[key].values() if self._counts(record)]
            logged = (
                max(counting, key=lambda record: record.log_offset).committed_offset
                if counting
                else NO_OFFSET
            )
            if returned != logged:
                group_id, topic, partition = key
                message = (
                    f"{group_id}: {topic}-{partition}: offset {returned} was reported last, and "
                    f"the log says {logged}"
                )
                self._findings.violation(f"{group_id}/{topic}/{partition}", message, event_id)
        return self._findings.verdict()

    def _counts(self, record: FinalOffset) -> bool:
        if record.producer_id < 0:
            return True
        markers = self._markers.get((record.offsets_partition, record.producer_id), {})
        behind = min((offset for offset in markers if offset > record.log_offset), default=None)
        return behind is not None and markers[behind]


_RETURNED: Final = """
    held AS (
        SELECT r.run, r.position, max(l.position) AS loaded_at FROM offset_returned AS r
        JOIN groups_loaded AS l
            ON l.run = r.run AND l.node = r.node AND l.incarnation = r.incarnation
                AND l.partition = r.coordinator_partition AND l.position < r.position
        WHERE r.error_code = 0 GROUP BY r.run, r.position
    ), unloaded AS (
        SELECT DISTINCT r.run, r.position FROM offset_returned AS r
        JOIN held AS h ON h.run = r.run AND h.position = r.position
        JOIN groups_unloaded AS u
            ON u.run = r.run AND u.node = r.node AND u.incarnation = r.incarnation
                AND u.partition = r.coordinator_partition AND u.position < r.position
                AND u.position > h.loaded_at
    ), succeeded AS (
        SELECT DISTINCT r.run, r.position FROM offset_returned AS r
        JOIN held AS h ON h.run = r.run AND h.position = r.position
        JOIN groups_loaded AS l
            ON l.run = r.run AND l.partition = r.coordinator_partition
                AND l.position < r.position AND l.position > h.loaded_at
    ), answered AS (
        SELECT r.run, r.group_id, r.topic, r.partition, r.position, r.offset AS reported_offset
        FROM offset_returned AS r
        LEFT JOIN unloaded AS u ON u.run = r.run AND u.position = r.position
        LEFT JOIN succeeded AS s ON s.run = r.run AND s.position = r.position
        WHERE r.error_code = 0 AND (s.run IS NULL OR u.run IS NOT NULL)
    )
"""
"""The answers that count: not those of a coordinator that does not know yet of its successor."""


GROUP_OFFSETS_EQUAL_LOG = Invariant(
    name="group-offsets-equal-log",
    rule="The last offset that a group coordinator returned is the last valid commit in its log.",
    source="KIP-98",
    watches=(
        GroupsLoaded,
        GroupsUnloaded,
        OffsetReturned,
        OffsetCommitted,
        PendingOffsetAdded,
        OffsetMaterialised,
        OffsetForgotten,
        FinalMarker,
        FinalOffset,
    ),
    check=LastAnswers,
    examined=f"""
        WITH {_RETURNED}, step AS (
            SELECT run, group_id, topic, partition, position, true AS is_stated FROM answered
            UNION ALL SELECT run, group_id, topic, partition, position, false FROM offset_committed
            UNION ALL SELECT run, group_id, topic, partition, position, false
                FROM pending_offset_added
            UNION ALL SELECT run, group_id, topic, partition, position, false
                FROM offset_materialised
            UNION ALL SELECT run, group_id, topic, partition, position, false FROM offset_forgotten
        ), last_step AS (
            SELECT *, row_number() OVER (PARTITION BY run, group_id, topic, partition
                ORDER BY position DESC) AS place FROM step
        )
        SELECT run, count(*) FROM last_step AS s WHERE place = 1 AND is_stated AND EXISTS (
            SELECT 1 FROM final_offset AS f
            WHERE f.run = s.run AND f.group_id = s.group_id AND f.topic = s.topic
                AND f.partition = s.partition
        ) GROUP BY run
    """,
    violations=f"""
        WITH {_RETURNED}, step AS (
            SELECT run, group_id, topic, partition, position, reported_offset FROM answered
            UNION ALL SELECT run, group_id, topic, partition, position, cast(NULL AS bigint)
                FROM offset_committed
            UNION ALL SELECT run, group_id, topic, partition, position, cast(NULL AS bigint)
                FROM pending_offset_added
            UNION ALL SELECT run, group_id, topic, partition, position, cast(NULL AS bigint)
                FROM offset_materialised
            UNION ALL SELECT run, group_id, topic, partition, position, cast(NULL AS bigint)
                FROM offset_forgotten
        ), last_step AS (
            SELECT *, row_number() OVER (PARTITION BY run, group_id, topic, partition
                ORDER BY position DESC) AS place FROM step
        ), marker AS (
            SELECT DISTINCT run, partition, producer_id, m.offset AS marker_offset, is_commit
                FROM final_marker AS m WHERE topic = '{OFFSETS_TOPIC}'
        ), record AS (
            SELECT DISTINCT run, group_id, topic, partition, offsets_partition, log_offset,
                producer_id, committed_offset FROM final_offset
        ), behind AS (
            SELECT r.run, r.group_id, r.topic, r.partition, r.log_offset,
                min(m.marker_offset) AS marker_offset
            FROM record AS r
            JOIN marker AS m
                ON m.run = r.run AND m.partition = r.offsets_partition
                    AND m.producer_id = r.producer_id AND m.marker_offset > r.log_offset
            WHERE r.producer_id >= 0 GROUP BY r.run, r.group_id, r.topic, r.partition, r.log_offset
        ), counting AS (
            SELECT r.* FROM record AS r
            LEFT JOIN behind AS b
                ON b.run = r.run AND b.group_id = r.group_id AND b.topic = r.topic
                    AND b.partition = r.partition AND b.log_offset = r.log_offset
            LEFT JOIN marker AS m
                ON m.run = r.run AND m.partition = r.offsets_partition
                    AND m.producer_id = r.producer_id AND m.marker_offset = b.marker_offset
            WHERE r.producer_id < 0 OR m.is_commit
        ), latest AS (
            SELECT *, row_number() OVER (PARTITION BY run, group_id, topic, partition
                ORDER BY log_offset DESC) AS place FROM counting
        ), judged AS (
            SELECT s.run, s.group_id, s.topic, s.partition, s.position, s.reported_offset,
                coalesce(l.committed_offset, {NO_OFFSET}) AS logged
            FROM last_step AS s
            LEFT JOIN latest AS l
                ON l.run = s.run AND l.group_id = s.group_id AND l.topic = s.topic
                    AND l.partition = s.partition AND l.place = 1
            WHERE s.place = 1 AND s.reported_offset IS NOT NULL AND EXISTS (
                SELECT 1 FROM final_offset AS f
                WHERE f.run = s.run AND f.group_id = s.group_id AND f.topic = s.topic
                    AND f.partition = s.partition
            )
        )
        SELECT
            run,
            concat(group_id, '/', topic, '/', partition) AS key,
            concat(group_id, ': ', topic, '-', partition, ': offset ', reported_offset,
                ' was reported last, and the log says ', logged) AS message,
            position AS first_witness,
            cast(NULL AS bigint) AS second_witness
        FROM judged WHERE reported_offset <> logged
    """,
)


NO_PRODUCER_ID = -1
LoadedKey = tuple[int, str, str, int]
"""Partition of `__consumer_offsets`, group, topic, partition."""


class Reported(NamedTuple):
    """The offset that a record was reported to commit."""

    offset: int
    event_id: str


class LoadedOffsets:
    """The offsets that a group coordinator loads when it becomes leader equal the last commits in
    its `__consumer_offsets` partition.

    A commit that was observed as valid is a lower bound for later loads: of two records for a
    partition, the later one in the log wins. A pending transactional commit is not loaded as
    pending once its marker was observed. The offset reported for a record equals the offset in that
    record in the final logs.

    Compares each load with the valid commits before it, and everything with the final logs at the
    end of the run.

    Source: KIP-98; GroupMetadataManager.doLoadGroupsAndOffsets, OffsetMetadataManager.replay;
    KAFKA-5247, KAFKA-5600.
    """

    def __init__(self) -> None:
        self._findings = Findings("loaded-offsets-equal-log")
        self._counting: dict[LoadedKey, tuple[int, str]] = {}
        self._ended: dict[LoadedKey, dict[int, str]] = {}
        self._reported: dict[LoadedKey, dict[int, list[Reported]]] = {}
        self._records: dict[LoadedKey, dict[int, list[Reported]]] = {}

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

    def _check(self, of: LoadedKey, event: OffsetLoaded, event_id: str) -> Violation | None:
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


def _where(of: LoadedKey) -> str:
    return f"{of[1]}: {of[2]}-{of[3]}"


def _key(of: LoadedKey) -> str:
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


LOADED_OFFSETS_EQUAL_LOG = Invariant(
    name="loaded-offsets-equal-log",
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


FetchedKey = tuple[str, int, int, str, str, int]
"""Node, incarnation, coordinator partition, group, topic, partition."""
OfPartition = (
    OffsetLoaded
    | OffsetCommitted
    | PendingOffsetAdded
    | OffsetMaterialised
    | PendingOffsetDropped
    | OffsetForgotten
    | OffsetReturned
)


class ReturnedOffsets:
    """Every offset that OffsetFetch returns was committed; with require_stable, no offset is
    returned while a transaction may replace it.

    Each incarnation of each broker is tracked on its own: the offsets it loaded, the commits
    outside of transactions, the pending commits, and their outcome. Until it has loaded a partition
    of `__consumer_offsets` it returns no offset.

    Tracks the pending commits at each coordinator, and all records that were ever committed.

    Source: KIP-447; KAFKA-9346, KAFKA-15784.
    """

    def __init__(self) -> None:
        self._findings = Findings("fetched-offsets-stable")
        self._pending: dict[FetchedKey, dict[int, str]] = {}
        self._committed: set[tuple[int, int]] = set()  # for membership only

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a change of an offset, or an offset that was returned to a client."""
        if isinstance(event, GroupsUnloaded):
            gone = [
                key
                for key in self._pending
                if key[:3] == (envelope.node, envelope.incarnation, event.partition)
            ]
            for key in gone:
                del self._pending[key]
            return None
        assert isinstance(event, OfPartition)
        key = (
            envelope.node,
            envelope.incarnation,
            event.coordinator_partition,
            event.group_id,
            event.topic,
            event.partition,
        )
        if isinstance(event, OffsetReturned):
            return self._check(key, event, envelope.event_id)
        match event:
            case PendingOffsetAdded():
                self._pending.setdefault(key, {})[event.producer_id] = envelope.event_id
            case OffsetLoaded() if event.producer_id != NO_PRODUCER_ID:
                self._pending.setdefault(key, {})[event.producer_id] = envelope.event_id
            case OffsetLoaded() | OffsetCommitted():
                self._committed.add((event.coordinator_partition, event.record_offset))
            case OffsetMaterialised():
                self._committed.add((event.coordinator_partition, event.record_offset))
                self._pending.get(key, {}).pop(event.producer_id, None)
            case PendingOffsetDropped():
                self._pending.get(key, {}).pop(event.producer_id, None)
            case OffsetForgotten():
                self._pending.pop(key, None)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _check(self, key: FetchedKey, event: OffsetReturned, event_id: str) -> Violation | None:
        if event.error_code or event.offset < 0:
            return None
        self._findings.examined += 1
        where = f"{event.group_id}: {event.topic}-{event.partition}"
        name = f"{event.group_id}/{event.topic}/{event.partition}/{event.record_offset}"
        if (event.coordinator_partition, event.record_offset) not in self._committed:
            return self._findings.violation(
                name, f"{where}: offset {event.offset} was reported, and never committed", event_id
            )
        waiting = min(self._pending.get(key, {}).values(), default="", key=_place)
        if event.require_stable and waiting:
            message = f"{where}: offset {event.offset} was reported while a transaction was open"
            return self._findings.violation(name, message, waiting, event_id)
        return None


def _place(event_id: str) -> int:
    """Return the sequence number of an event on its node; the earliest event of an incarnation has
    the lowest.
    """
    return int(event_id.rpartition(".")[2])


_KEY = "run, node, incarnation, coordinator_partition, group_id, topic, partition"
_SAME = " AND ".join(f"e.{column} = w.{column}" for column in _KEY.split(", "))
_COLUMNS = f"{_KEY}, position"

FETCHED_OFFSETS_STABLE = Invariant(
    name="fetched-offsets-stable",
    rule="Every offset that is returned was committed; with require_stable, none is returned "
    "while a transaction may replace it.",
    source="KIP-447",
    watches=(
        GroupsUnloaded,
        OffsetLoaded,
        OffsetCommitted,
        PendingOffsetAdded,
        OffsetMaterialised,
        PendingOffsetDropped,
        OffsetForgotten,
        OffsetReturned,
    ),
    check=ReturnedOffsets,
    examined="SELECT run, count(*) FROM offset_returned AS t WHERE error_code = 0 AND t.offset "
    ">= 0 GROUP BY run",
    violations=f"""
        WITH reported AS (
            SELECT {_COLUMNS}, record_offset, require_stable, t.offset AS reported_offset
                FROM offset_returned AS t WHERE error_code = 0 AND t.offset >= 0
        ), committed AS (
            SELECT run, coordinator_partition, record_offset, min(position) AS position FROM (
                SELECT run, coordinator_partition, record_offset, position FROM offset_loaded
                    WHERE producer_id = {NO_PRODUCER_ID}
                UNION ALL SELECT run, coordinator_partition, record_offset, position
                    FROM offset_committed
                UNION ALL SELECT run, coordinator_partition, record_offset, position
                    FROM offset_materialised
            ) AS every GROUP BY run, coordinator_partition, record_offset
        ), waiting AS (
            SELECT {_COLUMNS}, producer_id FROM pending_offset_added
            UNION ALL SELECT {_COLUMNS}, producer_id FROM offset_loaded
                WHERE producer_id <> {NO_PRODUCER_ID}
        ), step AS (
            SELECT {_COLUMNS}, producer_id FROM offset_materialised
            UNION ALL SELECT {_COLUMNS}, producer_id FROM pending_offset_dropped
            UNION ALL SELECT {_COLUMNS}, producer_id FROM waiting
        ), over AS (
            SELECT w.run, w.position, min(e.position) AS until
            FROM waiting AS w JOIN step AS e ON {_SAME} AND e.producer_id = w.producer_id
                AND e.position > w.position GROUP BY w.run, w.position
        ), forgotten AS (
            SELECT w.run, w.position, min(e.position) AS until
            FROM waiting AS w JOIN offset_forgotten AS e ON {_SAME} AND e.position > w.position
                GROUP BY w.run, w.position
        ), unloaded AS (
            SELECT w.run, w.position, min(e.position) AS until
            FROM waiting AS w
            JOIN groups_unloaded AS e
                ON e.run = w.run AND e.node = w.node AND e.incarnation = w.incarnation
                    AND e.partition = w.coordinator_partition
                AND e.position > w.position
            GROUP BY w.run, w.position
        ), open AS (
            SELECT w.*, o.until AS over_at, f.until AS forgotten_at, u.until AS unloaded_at
                FROM waiting AS w
            LEFT JOIN over AS o ON o.run = w.run AND o.position = w.position
            LEFT JOIN forgotten AS f ON f.run = w.run AND f.position = w.position
            LEFT JOIN unloaded AS u ON u.run = w.run AND u.position = w.position
        ), blocked AS (
            SELECT e.run, e.position, min(w.position) AS waiting_at
            FROM reported AS e
            JOIN open AS w ON {_SAME} AND w.position < e.position AND (w.over_at IS NULL
                OR w.over_at > e.position)
                AND (w.forgotten_at IS NULL OR w.forgotten_at > e.position)
                    AND (w.unloaded_at IS NULL OR w.unloaded_at > e.position)
            WHERE e.require_stable GROUP BY e.run, e.position
        ), judged AS (
            SELECT t.*, c.position IS NOT NULL AS is_committed, b.waiting_at FROM reported AS t
            LEFT JOIN committed AS c
                ON c.run = t.run AND c.coordinator_partition = t.coordinator_partition
                    AND c.record_offset = t.record_offset
                AND c.position < t.position
            LEFT JOIN blocked AS b ON b.run = t.run AND b.position = t.position
        ), numbered AS (
            SELECT *, row_number() OVER (PARTITION BY run, group_id, topic, partition, record_offset
                ORDER BY position) AS place FROM judged
            WHERE NOT is_committed OR waiting_at IS NOT NULL
        )
        SELECT
            run,
            concat(group_id, '/', topic, '/', partition, '/', record_offset) AS key,
            concat(
                group_id, ': ', topic, '-', partition, ': offset ', reported_offset,
                CASE WHEN is_committed THEN ' was reported while a transaction was open'
                    ELSE ' was reported, and never committed' END
            ) AS message,
            CASE WHEN is_committed THEN waiting_at ELSE position END AS first_witness,
            CASE WHEN is_committed THEN position END AS second_witness
        FROM numbered WHERE place = 1
    """,
)


INVARIANTS = (
    GROUP_OFFSETS_EQUAL_LOG,
    LOADED_OFFSETS_EQUAL_LOG,
    FETCHED_OFFSETS_STABLE,
)
