"""Members of a consumer group own their partitions apart, their epochs increase, and only owners
commit. Those of a streams group own what their active tasks read.

The order is that of the records in the log of `__consumer_offsets`, whatever the order of the
events: a coordinator that is deposed may report a replicated record late.
Source: KIP-848, KIP-1251; org.apache.kafka.coordinator.group.modern.consumer.{ConsumerGroup,
CurrentAssignmentBuilder}.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kraftsim.events.event import Event
from kraftsim.groups.events import (
    ConsumerGroupEnded,
    MemberEpochSet,
    OffsetCommitted,
    PartitionGiven,
    PendingOffsetAdded,
)
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

EXCLUSIVE: Final = "member-assignments-exclusive"
BY_OWNERS: Final = "offsets-committed-by-owners"
INCREASE: Final = "member-epochs-increase"
REMOVED: Final = -1
AWAY: Final = -2
"""The member epoch of a static member that has left for a while."""
TopicPartition = tuple[str, int]


class Current(NamedTuple):
    """The current assignment of a member, by the record at one offset."""

    member_id: str
    member_epoch: int
    partitions: frozenset[TopicPartition]
    event_id: str


class _Logs:
    """The records about consumer groups: by group, then by offset. A group has one partition of the
    log for ever.
    """

    def __init__(self) -> None:
        self._epochs: dict[str, dict[int, tuple[MemberEpochSet, str]]] = {}
        self._given: dict[tuple[str, int], dict[TopicPartition, None]] = {}
        self._ended: dict[str, dict[int, str]] = {}

    def take(self, envelope: Envelope, event: Event) -> None:
        """Take an event; a coordinator that loads the log repeats what it finds."""
        match event:
            case MemberEpochSet():
                by_offset = self._epochs.setdefault(event.group_id, {})
                by_offset.setdefault(event.record_offset, (event, envelope.event_id))
            case PartitionGiven():
                given = self._given.setdefault((event.group_id, event.record_offset), {})
                given[event.topic, event.partition] = None
            case ConsumerGroupEnded():
                self._ended.setdefault(event.group_id, {})[event.record_offset] = envelope.event_id

    def groups(self) -> Iterator[str]:
        """Yield the groups."""
        yield from self._epochs

    def records(self, group_id: str) -> Iterator[tuple[int, Current | None]]:
        """Yield the records of a group in the order of the log; None: the group ends."""
        found: dict[int, Current | None] = {
            record_offset: Current(
                event.member_id,
                event.member_epoch,
                frozenset(self._given.get((group_id, record_offset), ())),
                event_id,
            )
            for record_offset, (event, event_id) in self._epochs.get(group_id, {}).items()
        }
        found |= dict.fromkeys(self._ended.get(group_id, {}))
        yield from sorted(found.items(), key=lambda each: each[0])


class AssignmentsApart:
    """No record gives a member a partition that another one has, by its own last record."""

    def __init__(self) -> None:
        self._findings = Findings(EXCLUSIVE)
        self._logs = _Logs()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Collect the records."""
        self._logs.take(envelope, event)
        return None

    def finish(self) -> Verdict:
        """Replay each group."""
        for group_id in self._logs.groups():
            members: dict[str, Current] = {}
            for record_offset, current in self._logs.records(group_id):
                if current is None:
                    members.clear()
                    continue
                members.pop(current.member_id, None)
                for topic, partition in sorted(current.partitions):
                    self._findings.examined += 1
                    for other in members.values():
                        if (topic, partition) in other.partitions:
                            self._findings.violation(
                                f"{group_id}/{topic}/{partition}/{record_offset}/{other.member_id}",
                                f"{group_id}: {current.member_id} is given {topic}-{partition} "
                                f"at offset {record_offset}, which {other.member_id} has",
                                other.event_id,
                                current.event_id,
                            )
                if current.member_epoch != REMOVED:
                    members[current.member_id] = current
        return self._findings.verdict()


class EpochsIncrease:
    """The epoch of a member never decreases while it is in its group."""

    def __init__(self) -> None:
        self._findings = Findings(INCREASE)
        self._logs = _Logs()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Collect the records."""
        self._logs.take(envelope, event)
        return None

    def finish(self) -> Verdict:
        """Replay each group."""
        for group_id in self._logs.groups():
            last: dict[str, Current] = {}
            for record_offset, current in self._logs.records(group_id):
                if current is None:
                    last.clear()
                    continue
                if current.member_epoch == REMOVED:
                    last.pop(current.member_id, None)
                    continue
                former = last.get(current.member_id)
                last[current.member_id] = current
                if former is None or AWAY in (former.member_epoch, current.member_epoch):
                    continue
                self._findings.examined += 1
                if current.member_epoch < former.member_epoch:
                    self._findings.violation(
                        f"{group_id}/{current.member_id}/{record_offset}",
                        f"{group_id}: {current.member_id} goes from epoch {former.member_epoch} "
                        f"back to {current.member_epoch} at offset {record_offset}",
                        former.event_id,
                        current.event_id,
                    )
        return self._findings.verdict()


class CommitsByOwners:
    """An offset that a member of a consumer group commits is of a partition that it has in the log
    at that point, or has yet to revoke.
    """

    def __init__(self) -> None:
        self._findings = Findings(BY_OWNERS)
        self._logs = _Logs()
        self._commits: dict[
            str, dict[tuple[int, TopicPartition], tuple[OffsetCommitted | PendingOffsetAdded, str]]
        ] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Collect the records."""
        if isinstance(event, OffsetCommitted | PendingOffsetAdded):
            if event.member_id and event.generation_id >= 0:
                key = (event.record_offset, (event.topic, event.partition))
                commits = self._commits.setdefault(event.group_id, {})
                commits.setdefault(key, (event, envelope.event_id))
        else:
            self._logs.take(envelope, event)
        return None

    def finish(self) -> Verdict:
        """Replay each group."""
        for group_id, commits in self._commits.items():
            records = list(self._logs.records(group_id))
            members: dict[str, Current] = {}
            place = 0
            for (record_offset, where), (commit, event_id) in sorted(
                commits.items(), key=lambda each: each[0]
            ):
                while place < len(records) and records[place][0] < record_offset:
                    current = records[place][1]
                    if current is None:
                        members.clear()
                    elif current.member_epoch == REMOVED:
                        members.pop(current.member_id, None)
                    else:
                        members[current.member_id] = current
                    place += 1
                if not members:
                    continue  # not a consumer group at that point
                self._findings.examined += 1
                own = members.get(commit.member_id)
                if own is None or where not in own.partitions:
                    topic, partition = where
                    self._findings.violation(
                        f"{group_id}/{topic}/{partition}/{record_offset}",
                        f"{group_id}: {commit.member_id} commits {topic}-{partition} at offset "
                        f"{record_offset}, which it does not have",
                        event_id,
                    )
        return self._findings.verdict()


_RECORDS = f"""
    member AS (
        SELECT run, group_id, member_id, record_offset, member_epoch, min(position) AS position
        FROM member_epoch_set GROUP BY run, group_id, member_id, record_offset, member_epoch
    ), ended AS (
        SELECT DISTINCT run, group_id, record_offset FROM consumer_group_ended
    ), spans AS (
        SELECT m.run, m.group_id, m.member_id, m.record_offset, m.member_epoch, m.position,
            min(n.record_offset) AS next_offset, min(e.record_offset) AS ended_offset
        FROM member AS m
        LEFT JOIN member AS n ON n.run = m.run AND n.group_id = m.group_id
            AND n.member_id = m.member_id AND n.record_offset > m.record_offset
        LEFT JOIN ended AS e ON e.run = m.run AND e.group_id = m.group_id
            AND e.record_offset > m.record_offset
        WHERE m.member_epoch <> {REMOVED}
        GROUP BY m.run, m.group_id, m.member_id, m.record_offset, m.member_epoch, m.position
    ), span AS (
        SELECT run, group_id, member_id, record_offset, member_epoch, position,
            least(coalesce(next_offset, 9223372036854775807),
                coalesce(ended_offset, 9223372036854775807)) AS until_offset
        FROM spans
    ), given AS (
        SELECT DISTINCT run, group_id, member_id, topic, partition, record_offset
        FROM partition_given
    ), held AS (
        SELECT g.run, g.group_id, g.member_id, g.topic, g.partition, s.record_offset,
            s.until_offset, s.position
        FROM given AS g JOIN span AS s ON s.run = g.run AND s.group_id = g.group_id
            AND s.member_id = g.member_id AND s.record_offset = g.record_offset
    )
"""
"""`span`: each current assignment, from its record to the next one of the member or the end of the
group; `held`: its partitions.
"""
_COMMITS = """
    commits AS (
        SELECT run, group_id, topic, partition, record_offset, member_id, position
        FROM offset_committed WHERE member_id <> '' AND generation_id >= 0
        UNION ALL
        SELECT run, group_id, topic, partition, record_offset, member_id, position
        FROM pending_offset_added WHERE member_id <> '' AND generation_id >= 0
    ), commit_made AS (
        SELECT run, group_id, topic, partition, record_offset, member_id, min(position) AS position
        FROM commits AS c
        WHERE EXISTS (
            SELECT 1 FROM span AS s WHERE s.run = c.run AND s.group_id = c.group_id
                AND s.record_offset < c.record_offset AND c.record_offset < s.until_offset
        )
        GROUP BY run, group_id, topic, partition, record_offset, member_id
    )
"""
_STEPS = f"""
    step AS (
        SELECT f.run, f.group_id, f.member_id, f.member_epoch AS former_epoch,
            f.position AS former_position, t.member_epoch, t.record_offset, t.position
        FROM span AS f JOIN span AS t ON t.run = f.run AND t.group_id = f.group_id
            AND t.member_id = f.member_id AND t.record_offset = f.until_offset
        WHERE f.member_epoch <> {AWAY} AND t.member_epoch <> {AWAY}
    )
"""

MEMBER_ASSIGNMENTS_EXCLUSIVE = Invariant(
    name=EXCLUSIVE,
    rule="In the log of a consumer group a partition is given to a member only when no other one "
    "has it, or has yet to revoke it.",
    source="KIP-848",
    watches=(MemberEpochSet, PartitionGiven, ConsumerGroupEnded),
    check=AssignmentsApart,
    examined=f"WITH {_RECORDS} SELECT run, count(*) FROM held GROUP BY run",
    violations=f"""
        WITH {_RECORDS}
        SELECT
            h.run,
            concat(h.group_id, '/', h.topic, '/', h.partition, '/', h.record_offset, '/',
                o.member_id) AS key,
            concat(h.group_id, ': ', h.member_id, ' is given ', h.topic, '-', h.partition,
                ' at offset ', h.record_offset, ', which ', o.member_id, ' has') AS message,
            o.position AS first_witness,
            h.position AS second_witness
        FROM held AS h JOIN held AS o ON o.run = h.run AND o.group_id = h.group_id
            AND o.topic = h.topic AND o.partition = h.partition AND o.member_id <> h.member_id
            AND o.record_offset < h.record_offset AND h.record_offset < o.until_offset
    """,
)
OFFSETS_COMMITTED_BY_OWNERS = Invariant(
    name=BY_OWNERS,
    rule="An offset that a member of a consumer group commits is of a partition that the member "
    "has, or has yet to revoke.",
    source="KIP-848, KIP-1251",
    watches=(
        MemberEpochSet,
        PartitionGiven,
        ConsumerGroupEnded,
        OffsetCommitted,
        PendingOffsetAdded,
    ),
    check=CommitsByOwners,
    examined=f"WITH {_RECORDS}, {_COMMITS} SELECT run, count(*) FROM commit_made GROUP BY run",
    violations=f"""
        WITH {_RECORDS}, {_COMMITS}
        SELECT
            c.run,
            concat(c.group_id, '/', c.topic, '/', c.partition, '/', c.record_offset) AS key,
            concat(c.group_id, ': ', c.member_id, ' commits ', c.topic, '-', c.partition,
                ' at offset ', c.record_offset, ', which it does not have') AS message,
            c.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM commit_made AS c WHERE NOT EXISTS (
            SELECT 1 FROM held AS h WHERE h.run = c.run AND h.group_id = c.group_id
                AND h.topic = c.topic AND h.partition = c.partition
                AND h.member_id = c.member_id AND h.record_offset < c.record_offset
                AND c.record_offset < h.until_offset
        )
    """,
)
MEMBER_EPOCHS_INCREASE = Invariant(
    name=INCREASE,
    rule="The epoch of a member of a consumer group never decreases while it is in the group.",
    source="KIP-848",
    watches=(MemberEpochSet, PartitionGiven, ConsumerGroupEnded),
    check=EpochsIncrease,
    examined=f"WITH {_RECORDS}, {_STEPS} SELECT run, count(*) FROM step GROUP BY run",
    violations=f"""
        WITH {_RECORDS}, {_STEPS}
        SELECT
            run,
            concat(group_id, '/', member_id, '/', record_offset) AS key,
            concat(group_id, ': ', member_id, ' goes from epoch ', former_epoch, ' back to ',
                member_epoch, ' at offset ', record_offset) AS message,
            former_position AS first_witness,
            position AS second_witness
        FROM step WHERE member_epoch < former_epoch
    """,
)

INVARIANTS = (MEMBER_ASSIGNMENTS_EXCLUSIVE, OFFSETS_COMMITTED_BY_OWNERS, MEMBER_EPOCHS_INCREASE)
