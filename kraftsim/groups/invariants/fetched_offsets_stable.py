"""Every offset that OffsetFetch returns was committed; with require_stable, no offset is returned
while a transaction may replace it.

Each incarnation of each broker is tracked on its own: the offsets it loaded, the commits outside of
transactions, the pending commits, and their outcome. Until it has loaded a partition of
`__consumer_offsets` it returns no offset.
Source: KIP-447; KAFKA-9346, KAFKA-15784.
"""

from kraftsim.events.event import Event
from kraftsim.groups.events import (
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

NAME = "fetched-offsets-stable"
NO_PRODUCER_ID = -1
Key = tuple[str, int, int, str, str, int]
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
    """Tracks the pending commits at each coordinator, and all records that were ever committed."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._pending: dict[Key, dict[int, str]] = {}
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

    def _check(self, key: Key, event: OffsetReturned, event_id: str) -> Violation | None:
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

INVARIANT = Invariant(
    name=NAME,
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
