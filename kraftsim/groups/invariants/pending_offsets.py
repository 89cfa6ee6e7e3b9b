"""Offsets that wait for the end of their transaction stay with their coordinator until then.

A group with such offsets does not expire, and loses none of them to the expiry of others: the
commit, which its client gets acknowledged, would have no effect. A client that deletes the group or
the offsets, and the deletion of the topic, may remove them: GroupMetadataManager and
OffsetMetadataManager.deleteAllOffsets do. Once the marker is replicated, which moves the last
stable offset, each of them is committed or dropped.
Source: KIP-447, KAFKA-19163, KAFKA-19164; OffsetMetadataManager.{cleanupExpiredOffsets,
replayEndTransactionMarker}, GroupMetadata.hasOffsets.
"""

from typing import Final, NamedTuple, TypeAlias

from kraftsim.events.event import Event
from kraftsim.groups.events import (
    GroupRemoved,
    GroupsLoaded,
    GroupsUnloaded,
    OffsetForgotten,
    OffsetLoaded,
    OffsetMaterialised,
    OffsetReturned,
    PendingOffsetAdded,
    PendingOffsetDropped,
)
from kraftsim.groups.invariants.offsets import NO_PRODUCER_ID
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events_transactions import LastStableOffsetMoved
from kraftsim.producer_state.invariants.sequences import OFFSETS_TOPIC

KEPT: Final = "pending-offsets-do-not-expire"
ENDED: Final = "pending-offsets-end-with-transaction"
EXPIRED: Final = "expired"
LIMIT_NS: Final = 30_000_000_000
"""A coordinator that could not confirm a marker in time gets it again, request.timeout.ms later at
most.
"""

Coordinator: TypeAlias = tuple[str, int, int]
"""Node, incarnation, partition of `__consumer_offsets`."""
Waiting: TypeAlias = tuple[str, str, int, int]
"""Group, topic, partition, producer id."""


class PendingCommit(NamedTuple):
    """The event of a pending offset, and where its record is."""

    event_id: str
    record_offset: int


class PendingOffsets:
    """The pending offsets of each coordinator, the one that was added last at the end."""

    def __init__(self) -> None:
        self._held: dict[Coordinator, dict[Waiting, PendingCommit]] = {}
        self.count = 0

    def of(self, coordinator: Coordinator) -> dict[Waiting, PendingCommit]:
        """Return those of a coordinator."""
        return self._held.get(coordinator, {})

    def coordinators(self, node: str, incarnation: int) -> list[Coordinator]:
        """Return those of a process that have any."""
        return [each for each in self._held if each[:2] == (node, incarnation)]

    def take(self, envelope: Envelope, event: Event) -> list[tuple[Waiting, PendingCommit]]:
        """Process an event; return those that were removed without the end of their transaction."""
        if isinstance(event, GroupsLoaded | GroupsUnloaded):
            self._held.pop((envelope.node, envelope.incarnation, event.partition), None)
            return []
        if isinstance(event, GroupRemoved | OffsetForgotten):
            held = self.of((envelope.node, envelope.incarnation, event.coordinator_partition))
            gone = [
                each
                for each in held.items()
                if each[0][0] == event.group_id
                and (
                    isinstance(event, GroupRemoved)
                    or each[0][1:3] == (event.topic, event.partition)
                )
            ]
            for waiting, _ in gone:
                del held[waiting]
            return gone
        if not isinstance(
            event, PendingOffsetAdded | OffsetLoaded | OffsetMaterialised | PendingOffsetDropped
        ):
            return []
        if event.producer_id == NO_PRODUCER_ID:
            return []
        coordinator = (envelope.node, envelope.incarnation, event.coordinator_partition)
        held = self._held.setdefault(coordinator, {})
        waiting = (event.group_id, event.topic, event.partition, event.producer_id)
        held.pop(waiting, None)
        if isinstance(event, PendingOffsetAdded | OffsetLoaded):
            self.count += 1
            held[waiting] = PendingCommit(envelope.event_id, event.record_offset)
        return []


class PendingOffsetsKept:
    """No pending offset, and no group that has one, expires."""

    def __init__(self) -> None:
        self._findings = Findings(KEPT)
        self._pending = PendingOffsets()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a change of a group's offsets."""
        gone = self._pending.take(envelope, event)
        self._findings.examined = self._pending.count
        if not gone:
            return None
        assert isinstance(event, GroupRemoved | OffsetForgotten)
        if event.reason != EXPIRED:
            return None
        what = (
            f"group {event.group_id}"
            if isinstance(event, GroupRemoved)
            else f"the offset of group {event.group_id} for {event.topic}-{event.partition}"
        )
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} let {what} expire while a transaction that commits an offset was "
            "open",
            gone[0][1].event_id,
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


class PendingOffsetsEnded:
    """No offset stays pending at a coordinator for 30 s after its transaction has ended there.

    That the last stable offset is beyond the record shows that the marker is replicated.
    """

    def __init__(self) -> None:
        self._findings = Findings(ENDED)
        self._pending = PendingOffsets()
        self._passed: dict[str, tuple[int, str]] = {}
        """Event of a pending offset -> when its transaction ended, and the event."""
        self._last_ns: dict[tuple[str, int], int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a change of a group's offsets, or of the last stable offset."""
        if isinstance(event, LastStableOffsetMoved):
            if event.topic != OFFSETS_TOPIC:
                return None
            coordinator = (envelope.node, envelope.incarnation, event.partition)
            for held in self._pending.of(coordinator).values():
                if held.record_offset < event.offset:
                    self._passed.setdefault(held.event_id, (envelope.t_ns, envelope.event_id))
        self._last_ns[envelope.node, envelope.incarnation] = envelope.t_ns
        self._pending.take(envelope, event)
        self._findings.examined = self._pending.count
        return None

    def finish(self) -> Verdict:
        """Return the verdict, with what is pending still."""
        for (node, incarnation), last_ns in self._last_ns.items():
            self._finish(node, incarnation, last_ns)
        return self._findings.verdict()

    def _finish(self, node: str, incarnation: int, last_ns: int) -> None:
        for coordinator in self._pending.coordinators(node, incarnation):
            for (group_id, topic, partition, _), held in self._pending.of(coordinator).items():
                passed_ns, witness = self._passed.get(held.event_id, (last_ns, ""))
                if last_ns - passed_ns > LIMIT_NS:
                    self._findings.violation(
                        held.event_id,
                        f"{node}: the offset of group {group_id} for {topic}-{partition} is "
                        "pending after its transaction has ended",
                        held.event_id,
                        witness,
                    )


_OF = "run, node, incarnation, n, coordinator_partition, group_id, topic, partition"
_AT = "e.run = w.run AND e.node = w.node AND e.incarnation = w.incarnation"
_OF_GROUP = (
    f"{_AT} AND e.coordinator_partition = w.coordinator_partition AND e.group_id = w.group_id"
)
_SAME = f"{_OF_GROUP} AND e.topic = w.topic AND e.partition = w.partition"
_PENDING = f"""
    waiting AS (
        SELECT {_OF}, producer_id, record_offset, position FROM pending_offset_added
        UNION ALL
        SELECT {_OF}, producer_id, record_offset, position FROM offset_loaded
        WHERE producer_id <> {NO_PRODUCER_ID}
    ), ends AS (
        SELECT {_OF}, producer_id, position FROM waiting
        UNION ALL SELECT {_OF}, producer_id, position FROM offset_materialised
        UNION ALL SELECT {_OF}, producer_id, position FROM pending_offset_dropped
    ), loads AS (
        SELECT run, node, incarnation, partition, position FROM groups_loaded
        UNION ALL SELECT run, node, incarnation, partition, position FROM groups_unloaded
    ), over AS (
        SELECT w.run, w.position, min(e.position) AS until
        FROM waiting AS w JOIN ends AS e
            ON {_SAME} AND e.producer_id = w.producer_id AND e.position > w.position
        GROUP BY w.run, w.position
        UNION ALL
        SELECT w.run, w.position, min(e.position) AS until
        FROM waiting AS w JOIN offset_forgotten AS e ON {_SAME} AND e.position > w.position
        GROUP BY w.run, w.position
        UNION ALL
        SELECT w.run, w.position, min(e.position) AS until
        FROM waiting AS w JOIN group_removed AS e ON {_OF_GROUP} AND e.position > w.position
        GROUP BY w.run, w.position
        UNION ALL
        SELECT w.run, w.position, min(e.position) AS until
        FROM waiting AS w JOIN loads AS e
            ON {_AT} AND e.partition = w.coordinator_partition AND e.position > w.position
        GROUP BY w.run, w.position
    ), first_over AS (
        SELECT run, position, min(until) AS until FROM over GROUP BY run, position
    ), held AS (
        SELECT w.*, f.until FROM waiting AS w
        LEFT JOIN first_over AS f ON f.run = w.run AND f.position = w.position
    )
"""
_EXAMINED = f"""
    SELECT run, count(*) FROM (
        SELECT run FROM pending_offset_added UNION ALL
        SELECT run FROM offset_loaded WHERE producer_id <> {NO_PRODUCER_ID}
    ) AS w GROUP BY run
"""

PENDING_OFFSETS_DO_NOT_EXPIRE = Invariant(
    name=KEPT,
    # What clients see of it comes later, and judges brokers of Apache Kafka as well.
    ends_run=False,
    rule="A group does not expire, nor an offset of it, while a transaction that commits the "
    "offset is open.",
    source="KIP-447, KAFKA-19163",
    watches=(
        PendingOffsetAdded,
        OffsetLoaded,
        OffsetMaterialised,
        PendingOffsetDropped,
        OffsetForgotten,
        GroupRemoved,
        GroupsLoaded,
        GroupsUnloaded,
    ),
    check=PendingOffsetsKept,
    examined=_EXAMINED,
    violations=f"""
        WITH {_PENDING}, expiry AS (
            SELECT {_OF}, position, concat('the offset of group ', group_id, ' for ', topic, '-',
                partition) AS what
            FROM offset_forgotten WHERE reason = '{EXPIRED}'
            UNION ALL
            SELECT run, node, incarnation, n, coordinator_partition, group_id,
                CAST(NULL AS STRING) AS topic, CAST(NULL AS BIGINT) AS partition, position,
                concat('group ', group_id) AS what
            FROM group_removed WHERE reason = '{EXPIRED}'
        )
        SELECT
            e.run,
            concat(e.node, '.', e.incarnation, '.', e.n) AS key,
            concat(e.node, ' let ', e.what,
                ' expire while a transaction that commits an offset was open') AS message,
            min(w.position) AS first_witness,
            e.position AS second_witness
        FROM expiry AS e JOIN held AS w ON {_OF_GROUP}
            AND (e.topic IS NULL OR (e.topic = w.topic AND e.partition = w.partition))
            AND w.until = e.position
        GROUP BY e.run, e.node, e.incarnation, e.n, e.what, e.position
    """,
)

_LAST: Final = " UNION ALL ".join(
    f"SELECT run, node, incarnation, max(t_ns) AS t_ns FROM {view} GROUP BY run, node, incarnation"
    for view in (
        "pending_offset_added",
        "offset_loaded",
        "offset_materialised",
        "pending_offset_dropped",
        "offset_forgotten",
        "offset_returned",
        "group_removed",
        "groups_loaded",
        "groups_unloaded",
        f"(SELECT * FROM last_stable_offset_moved WHERE topic = '{OFFSETS_TOPIC}') AS s",
    )
)

PENDING_OFFSETS_END_WITH_TRANSACTION = Invariant(
    name=ENDED,
    rule="When a transaction has ended in a partition of __consumer_offsets, its coordinator "
    "commits or drops the pending offsets.",
    source="KIP-447, KAFKA-19164",
    watches=(
        PendingOffsetAdded,
        OffsetLoaded,
        OffsetMaterialised,
        PendingOffsetDropped,
        OffsetForgotten,
        OffsetReturned,
        GroupRemoved,
        GroupsLoaded,
        GroupsUnloaded,
        LastStableOffsetMoved,
    ),
    check=PendingOffsetsEnded,
    examined=_EXAMINED,
    violations=f"""
        WITH {_PENDING}, alive AS (
            SELECT run, node, incarnation, max(t_ns) AS t_ns FROM ({_LAST}) AS every
            GROUP BY run, node, incarnation
        ), passed AS (
            SELECT w.run, w.position, min(s.position) AS passed_at, min(s.t_ns) AS t_ns
            FROM held AS w JOIN last_stable_offset_moved AS s
                ON s.run = w.run AND s.node = w.node AND s.incarnation = w.incarnation
                AND s.topic = '{OFFSETS_TOPIC}' AND s.partition = w.coordinator_partition
                AND s.offset > w.record_offset AND s.position > w.position
            WHERE w.until IS NULL GROUP BY w.run, w.position
        )
        SELECT
            w.run,
            concat(w.node, '.', w.incarnation, '.', w.n) AS key,
            concat(w.node, ': the offset of group ', w.group_id, ' for ', w.topic, '-', w.partition,
                ' is pending after its transaction has ended') AS message,
            w.position AS first_witness,
            p.passed_at AS second_witness
        FROM passed AS p JOIN held AS w ON w.run = p.run AND w.position = p.position
        JOIN alive AS a ON a.run = w.run AND a.node = w.node AND a.incarnation = w.incarnation
        WHERE a.t_ns - p.t_ns > {LIMIT_NS}
    """,
)

INVARIANTS = (PENDING_OFFSETS_DO_NOT_EXPIRE, PENDING_OFFSETS_END_WITH_TRANSACTION)
