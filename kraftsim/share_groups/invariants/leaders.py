"""What the leader of a share-partition must never do, whatever its members and the persister do.

Three invariants hold within one load of a share-partition: what members have acquired is known to
that leader alone. Two hold across loads, as far as the persister has acknowledged what was stored;
a new state epoch begins everything again.
Source: KIP-932; kafka.server.share.SharePartition.
"""

from typing import Final, NamedTuple, TypeAlias

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.share_groups.events import (
    ShareLocksEnded,
    SharePartitionLoaded,
    ShareRecordsAcquired,
    ShareRecordsArchived,
    ShareStartOffsetMoved,
    ShareStateLoaded,
    ShareStateStored,
)

ONE_MEMBER: Final = "share-records-have-one-member"
COUNTED: Final = "share-deliveries-are-counted"
ADVANCES: Final = "share-start-offset-advances"
DONE: Final = "share-records-done-stay-done"
KEPT: Final = "share-records-kept-until-done"
FIRST_TERMINAL: Final = 2
"""The lowest delivery state that is the last one: 2 acknowledged, 4 archived."""

Load: TypeAlias = tuple[str, int, int, str, str, int]
"""Node, incarnation, load, group, topic id, partition."""
OfLoad: TypeAlias = (
    ShareRecordsAcquired
    | ShareLocksEnded
    | SharePartitionLoaded
    | ShareStateLoaded
    | ShareRecordsArchived
    | ShareStartOffsetMoved
    | ShareStateStored
)
StateKey: TypeAlias = tuple[str, str, int, int]
"""Group, topic id, partition, state epoch."""


class PlacedEvent(NamedTuple):
    """An event, by its place in the run."""

    order: int
    event_id: str


NEVER: Final = PlacedEvent(-1, "")


def load_of(envelope: Envelope, event: OfLoad) -> Load:
    """Return the load that an event belongs to."""
    return (
        envelope.node,
        envelope.incarnation,
        event.load,
        event.group_id,
        event.topic_id,
        event.partition,
    )


def offsets_of(event: ShareRecordsAcquired | ShareLocksEnded | ShareStateLoaded) -> range:
    """Return the offsets that an event is about."""
    return range(event.first_offset, event.last_offset + 1)


class OneMember:
    """Acquisitions and ends of locks alternate, offset by offset."""

    def __init__(self) -> None:
        self._findings = Findings(ONE_MEMBER)
        self._locks: dict[Load, dict[int, int]] = {}
        self._last: dict[Load, dict[int, PlacedEvent]] = {}
        self._order = 0

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an acquisition, or the end of locks."""
        assert isinstance(event, ShareRecordsAcquired | ShareLocksEnded)
        load = load_of(envelope, event)
        locks = self._locks.setdefault(load, {})
        if isinstance(event, ShareLocksEnded):
            for offset in offsets_of(event):
                locks[offset] = locks.get(offset, 0) - 1
            return None
        self._order += 1
        self._findings.examined += 1
        last = self._last.setdefault(load, {})
        held = sum(locks.get(offset, 0) for offset in offsets_of(event))
        before = max((last.get(offset, NEVER) for offset in offsets_of(event)), default=NEVER)
        for offset in offsets_of(event):
            locks[offset] = locks.get(offset, 0) + 1
            last[offset] = PlacedEvent(self._order, envelope.event_id)
        if held <= 0:
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} gave {event.topic}-{event.partition} from offset "
            f"{event.first_offset} to {event.member_id} of group {event.group_id}, while a member "
            "has acquired it",
            before.event_id,
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


class DeliveriesCounted:
    """The delivery count of an acquisition is one above the highest one before, and within the
    limit.
    """

    def __init__(self) -> None:
        self._findings = Findings(COUNTED)
        self._counts: dict[Load, dict[int, int]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an acquisition, or a state that was loaded."""
        assert isinstance(event, ShareRecordsAcquired | ShareStateLoaded)
        counts = self._counts.setdefault(load_of(envelope, event), {})
        before = max((counts.get(offset, 0) for offset in offsets_of(event)), default=0)
        for offset in offsets_of(event):
            counts[offset] = max(counts.get(offset, 0), event.delivery_count)
        if isinstance(event, ShareStateLoaded) or not event.is_counted:
            return None
        self._findings.examined += 1
        if event.delivery_count == before + 1 and event.delivery_count <= event.delivery_count_max:
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} counted delivery {event.delivery_count} of at most "
            f"{event.delivery_count_max} after {before} of {event.topic}-{event.partition} from "
            f"offset {event.first_offset} to group {event.group_id}",
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


class StartOffsetAdvances:
    """A load begins where the last stored state did or later, and its start offset only grows."""

    def __init__(self) -> None:
        self._findings = Findings(ADVANCES)
        self._stored: dict[StateKey, int] = {}
        self._moved: dict[Load, int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a load, a move of the start offset, or a stored one."""
        assert isinstance(event, SharePartitionLoaded | ShareStartOffsetMoved | ShareStateStored)
        state = (event.group_id, event.topic_id, event.partition, event.state_epoch)
        stored = self._stored.get(state, -1)
        if isinstance(event, ShareStateStored):
            self._stored[state] = max(stored, event.start_offset)
            return None
        self._findings.examined += 1
        load = load_of(envelope, event)
        if isinstance(event, SharePartitionLoaded):
            before = stored
        else:
            before = max(self._moved.get(load, -1), event.previous_offset + 1)
            self._moved[load] = max(self._moved.get(load, -1), event.start_offset + 1)
        if event.start_offset >= before:
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} moved the start offset of {event.topic}-{event.partition} for group "
            f"{event.group_id} to {event.start_offset}, below {before}",
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


class DoneStaysDone:
    """What was stored as done is not acquired again: not in the same load, nor in one that began
    later. A former leader that has not learnt of its successor does not count.
    """

    def __init__(self) -> None:
        self._findings = Findings(DONE)
        self._began: dict[Load, int] = {}
        self._first: dict[StateKey, dict[int, PlacedEvent]] = {}
        self._own: dict[Load, dict[tuple[int, int], PlacedEvent]] = {}
        self._order = 0

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a load, a stored state, or an acquisition."""
        assert isinstance(event, SharePartitionLoaded | ShareRecordsAcquired | ShareStateStored)
        self._order += 1
        load = load_of(envelope, event)
        if isinstance(event, SharePartitionLoaded):
            self._began[load] = self._order
            return None
        state = (event.group_id, event.topic_id, event.partition, event.state_epoch)
        first = self._first.setdefault(state, {})
        own = self._own.setdefault(load, {})
        seen = PlacedEvent(self._order, envelope.event_id)
        if isinstance(event, ShareStateStored):
            if event.delivery_state >= FIRST_TERMINAL:
                for offset in range(event.first_offset, event.last_offset + 1):
                    first.setdefault(offset, seen)
                    own.setdefault((event.state_epoch, offset), seen)
            return None
        self._findings.examined += 1
        began = self._began.get(load, -1)
        before = [
            found
            for offset in offsets_of(event)
            for found in (first.get(offset), own.get((event.state_epoch, offset)))
            if found is not None
            and (found.order < began or found is own.get((event.state_epoch, offset)))
        ]
        if not before:
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} delivered {event.topic}-{event.partition} from offset "
            f"{event.first_offset} to group {event.group_id} although it was done",
            min(before).event_id,
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


class KeptUntilDone:
    """The start offset passes only what is acknowledged, archived, or has no record.

    Not for a load of a state with gaps, about which nothing is known.
    """

    def __init__(self) -> None:
        self._findings = Findings(KEPT)
        self._done: dict[Load, dict[int, int]] = {}
        self._archived: dict[Load, list[tuple[int, int]]] = {}
        self._with_gaps: set[Load] = set()  # for membership only

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process what becomes of records, or a move of the start offset."""
        assert isinstance(
            event,
            SharePartitionLoaded
            | ShareStateLoaded
            | ShareLocksEnded
            | ShareRecordsArchived
            | ShareStartOffsetMoved,
        )
        load = load_of(envelope, event)
        done = self._done.setdefault(load, {})
        archived = self._archived.setdefault(load, [])
        if isinstance(event, SharePartitionLoaded):
            if event.has_gaps:
                self._with_gaps.add(load)
        elif isinstance(event, ShareRecordsArchived):
            archived.append((event.first_offset, event.last_offset))
        elif isinstance(event, ShareStateLoaded | ShareLocksEnded):
            if event.delivery_state >= FIRST_TERMINAL:
                for offset in offsets_of(event):
                    done[offset] = done.get(offset, 0) + 1
        elif load not in self._with_gaps:
            return self._moved(envelope, event, done, archived)
        return None

    def _moved(
        self,
        envelope: Envelope,
        event: ShareStartOffsetMoved,
        done: dict[int, int],
        archived: list[tuple[int, int]],
    ) -> Violation | None:
        self._findings.examined += 1
        passed = range(event.previous_offset, event.start_offset)
        count = sum(times for offset, times in done.items() if offset in passed) + sum(
            max(min(last + 1, passed.stop) - max(first, passed.start), 0)
            for first, last in archived
        )
        if count >= len(passed):
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} moved the start offset of {event.topic}-{event.partition} for group "
            f"{event.group_id} from {event.previous_offset} to {event.start_offset}, and only "
            f"{count} records of that are done",
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_SAME_SHARE: Final = (
    "e.run = w.run AND e.group_id = w.group_id AND e.topic_id = w.topic_id "
    "AND e.partition = w.partition"
)
_SAME_LOAD: Final = (
    f"{_SAME_SHARE} AND e.node = w.node AND e.incarnation = w.incarnation AND e.load = w.load"
)
_OVERLAP: Final = "e.first_offset <= w.last_offset AND e.last_offset >= w.first_offset"
_SHARED: Final = (
    "least(e.last_offset, w.last_offset) - greatest(e.first_offset, w.first_offset) + 1"
)
_KEY: Final = "concat(w.node, '.', w.incarnation, '.', w.n) AS key"
_OF: Final = "run, node, incarnation, load, group_id, topic_id, partition"
_ACQUIRED: Final = "SELECT run, count(*) FROM share_records_acquired AS w GROUP BY run"

SHARE_RECORDS_HAVE_ONE_MEMBER = Invariant(
    name=ONE_MEMBER,
    rule="A record is acquired by one member of a share group at a time.",
    source="KIP-932",
    watches=(ShareRecordsAcquired, ShareLocksEnded),
    check=OneMember,
    examined=_ACQUIRED,
    violations=f"""
        WITH changes AS (
            SELECT {_OF}, first_offset, last_offset, position, 1 AS amount
            FROM share_records_acquired
            UNION ALL
            SELECT {_OF}, first_offset, last_offset, position, -1 AS amount
            FROM share_locks_ended
        ), held AS (
            SELECT w.run, w.position, sum(e.amount * ({_SHARED})) AS held,
                max(CASE WHEN e.amount = 1 THEN e.position END) AS before
            FROM share_records_acquired AS w JOIN changes AS e
                ON {_SAME_LOAD} AND {_OVERLAP} AND e.position < w.position
            GROUP BY w.run, w.position
        )
        SELECT w.run, {_KEY},
            concat(w.node, ' gave ', w.topic, '-', w.partition, ' from offset ', w.first_offset,
                ' to ', w.member_id, ' of group ', w.group_id,
                ', while a member has acquired it') AS message,
            h.before AS first_witness, w.position AS second_witness
        FROM share_records_acquired AS w JOIN held AS h
            ON h.run = w.run AND h.position = w.position AND h.held > 0
    """,
)

SHARE_DELIVERIES_ARE_COUNTED = Invariant(
    name=COUNTED,
    rule="The delivery count of a record rises by one with each acquisition, up to the limit.",
    source="KIP-932",
    watches=(ShareRecordsAcquired, ShareStateLoaded),
    check=DeliveriesCounted,
    examined="""
        SELECT run, count(*) FROM share_records_acquired AS w WHERE is_counted GROUP BY run
    """,
    violations=f"""
        WITH counts AS (
            SELECT {_OF}, first_offset, last_offset, position, delivery_count
            FROM share_records_acquired
            UNION ALL
            SELECT {_OF}, first_offset, last_offset, position, delivery_count
            FROM share_state_loaded
        ), known AS (
            SELECT w.run, w.position, max(e.delivery_count) AS before
            FROM share_records_acquired AS w JOIN counts AS e
                ON {_SAME_LOAD} AND {_OVERLAP} AND e.position < w.position
            GROUP BY w.run, w.position
        )
        SELECT w.run, {_KEY},
            concat(w.node, ' counted delivery ', w.delivery_count, ' of at most ',
                w.delivery_count_max, ' after ', coalesce(k.before, 0), ' of ', w.topic, '-',
                w.partition, ' from offset ', w.first_offset, ' to group ', w.group_id) AS message,
            w.position AS first_witness, CAST(NULL AS BIGINT) AS second_witness
        FROM share_records_acquired AS w
            LEFT JOIN known AS k ON k.run = w.run AND k.position = w.position
        WHERE w.is_counted AND (w.delivery_count <> coalesce(k.before, 0) + 1
            OR w.delivery_count > w.delivery_count_max)
    """,
)

SHARE_START_OFFSET_ADVANCES = Invariant(
    name=ADVANCES,
    rule="The start offset of a share-partition never goes back, not with another leader either.",
    source="KIP-932, KAFKA-19859",
    watches=(SharePartitionLoaded, ShareStartOffsetMoved, ShareStateStored),
    check=StartOffsetAdvances,
    examined="""
        SELECT run, count(*) FROM (
            SELECT run FROM share_partition_loaded
            UNION ALL SELECT run FROM share_start_offset_moved
        ) AS w GROUP BY run
    """,
    violations=f"""
        WITH loads AS (
            SELECT w.run, w.position, max(e.start_offset) AS before
            FROM share_partition_loaded AS w JOIN share_state_stored AS e
                ON {_SAME_SHARE} AND e.state_epoch = w.state_epoch AND e.position < w.position
            GROUP BY w.run, w.position
        ), moves AS (
            SELECT w.run, w.position, max(e.start_offset) AS before
            FROM share_start_offset_moved AS w JOIN share_start_offset_moved AS e
                ON {_SAME_LOAD} AND e.position < w.position
            GROUP BY w.run, w.position
        ), begins AS (
            SELECT w.run, w.node, w.incarnation, w.n, w.topic, w.partition, w.group_id, w.position,
                w.start_offset, coalesce(l.before, -1) AS before
            FROM share_partition_loaded AS w
                LEFT JOIN loads AS l ON l.run = w.run AND l.position = w.position
            UNION ALL
            SELECT w.run, w.node, w.incarnation, w.n, w.topic, w.partition, w.group_id, w.position,
                w.start_offset,
                greatest(coalesce(m.before + 1, -1), w.previous_offset + 1) AS before
            FROM share_start_offset_moved AS w
                LEFT JOIN moves AS m ON m.run = w.run AND m.position = w.position
        )
        SELECT w.run, {_KEY},
            concat(w.node, ' moved the start offset of ', w.topic, '-', w.partition, ' for group ',
                w.group_id, ' to ', w.start_offset, ', below ', w.before) AS message,
            w.position AS first_witness, CAST(NULL AS BIGINT) AS second_witness
        FROM begins AS w WHERE w.start_offset < w.before
    """,
)

SHARE_RECORDS_DONE_STAY_DONE = Invariant(
    name=DONE,
    rule="A record that is stored as acknowledged or archived is not delivered again to its share "
    "group.",
    source="KIP-932",
    watches=(SharePartitionLoaded, ShareRecordsAcquired, ShareStateStored),
    check=DoneStaysDone,
    examined=_ACQUIRED,
    violations=f"""
        WITH began AS (
            SELECT w.run, w.position, max(e.position) AS began
            FROM share_records_acquired AS w JOIN share_partition_loaded AS e
                ON {_SAME_LOAD} AND e.position < w.position
            GROUP BY w.run, w.position
        ), again AS (
            SELECT w.run, w.position, min(e.position) AS done
            FROM share_records_acquired AS w JOIN share_state_stored AS e
                ON {_SAME_SHARE} AND e.state_epoch = w.state_epoch AND {_OVERLAP}
                AND e.position < w.position AND e.delivery_state >= {FIRST_TERMINAL}
            LEFT JOIN began AS b ON b.run = w.run AND b.position = w.position
            WHERE ({_SAME_LOAD}) OR e.position < b.began
            GROUP BY w.run, w.position
        )
        SELECT w.run, {_KEY},
            concat(w.node, ' delivered ', w.topic, '-', w.partition, ' from offset ',
                w.first_offset, ' to group ', w.group_id, ' although it was done') AS message,
            a.done AS first_witness, w.position AS second_witness
        FROM share_records_acquired AS w
            JOIN again AS a ON a.run = w.run AND a.position = w.position
    """,
)

_PASSED: Final = (
    "greatest(least(e.last_offset + 1, w.start_offset) - "
    "greatest(e.first_offset, w.previous_offset), 0)"
)
SHARE_RECORDS_KEPT_UNTIL_DONE = Invariant(
    name=KEPT,
    rule="The start offset of a share-partition passes only records that are acknowledged, "
    "archived or gone.",
    source="KIP-932",
    watches=(
        SharePartitionLoaded,
        ShareStateLoaded,
        ShareLocksEnded,
        ShareRecordsArchived,
        ShareStartOffsetMoved,
    ),
    check=KeptUntilDone,
    examined=f"""
        SELECT w.run, count(*) FROM share_start_offset_moved AS w
        WHERE NOT EXISTS (SELECT 1 FROM share_partition_loaded AS e
            WHERE {_SAME_LOAD} AND e.has_gaps AND e.position < w.position)
        GROUP BY w.run
    """,
    violations=f"""
        WITH done AS (
            SELECT {_OF}, first_offset, last_offset, position FROM share_locks_ended
            WHERE delivery_state >= {FIRST_TERMINAL}
            UNION ALL
            SELECT {_OF}, first_offset, last_offset, position FROM share_state_loaded
            WHERE delivery_state >= {FIRST_TERMINAL}
            UNION ALL
            SELECT {_OF}, first_offset, last_offset, position FROM share_records_archived
        ), counted AS (
            SELECT w.run, w.position, sum({_PASSED}) AS amount
            FROM share_start_offset_moved AS w JOIN done AS e
                ON {_SAME_LOAD} AND e.position < w.position
            GROUP BY w.run, w.position
        )
        SELECT w.run, {_KEY},
            concat(w.node, ' moved the start offset of ', w.topic, '-', w.partition, ' for group ',
                w.group_id, ' from ', w.previous_offset, ' to ', w.start_offset, ', and only ',
                CAST(coalesce(c.amount, 0) AS BIGINT), ' records of that are done') AS message,
            w.position AS first_witness, CAST(NULL AS BIGINT) AS second_witness
        FROM share_start_offset_moved AS w
            LEFT JOIN counted AS c ON c.run = w.run AND c.position = w.position
        WHERE coalesce(c.amount, 0) < w.start_offset - w.previous_offset
            AND NOT EXISTS (SELECT 1 FROM share_partition_loaded AS e
                WHERE {_SAME_LOAD} AND e.has_gaps AND e.position < w.position)
    """,
)

INVARIANTS = (
    SHARE_DELIVERIES_ARE_COUNTED,
    SHARE_RECORDS_DONE_STAY_DONE,
    SHARE_RECORDS_HAVE_ONE_MEMBER,
    SHARE_RECORDS_KEPT_UNTIL_DONE,
    SHARE_START_OFFSET_ADVANCES,
)
