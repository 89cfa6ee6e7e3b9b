"""Members of a share group: their epochs increase, and they get only partitions of topics that they
subscribe to and whose state is initialized.

The order is that of the records in the log of `__consumer_offsets`, whatever the order of the
events: a coordinator that is deposed may report a replicated record late.
Source: KIP-932; org.apache.kafka.coordinator.group.modern.share.{ShareGroup,
ShareGroupAssignmentBuilder}, GroupMetadataManager.initializeShareGroupState.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from kraftsim.events.event import Event
from kraftsim.groups.events import (
    ShareGroupEnded,
    ShareMemberEpochSet,
    ShareMemberSubscribed,
    SharePartitionGiven,
    SharePartitionInitialized,
    SharePartitionsRecorded,
)
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

INCREASE: Final = "share-member-epochs-increase"
SUBSCRIBED: Final = "share-members-get-subscribed-topics"
INITIALIZED: Final = "share-partitions-initialized-first"
REMOVED: Final = -1
NONE_BEFORE: Final = -1
Given = tuple[str, int, str, str, int]
"""Group, offset of the record, member, topic and partition."""


class EpochsOfShareMembers:
    """The epoch of a member never decreases between its join and its removal."""

    def __init__(self) -> None:
        self._findings = Findings(INCREASE)
        self._epochs: dict[tuple[str, str], dict[int, tuple[int, str]]] = {}
        self._ended: dict[str, dict[int, None]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Collect the records."""
        match event:
            case ShareMemberEpochSet():
                found = self._epochs.setdefault((event.group_id, event.member_id), {})
                found.setdefault(event.record_offset, (event.member_epoch, envelope.event_id))
            case ShareGroupEnded():
                self._ended.setdefault(event.group_id, {})[event.record_offset] = None
        return None

    def finish(self) -> Verdict:
        """Compare each epoch with the one before."""
        for (group_id, member_id), epochs in self._epochs.items():
            former_offset, former_epoch, former_id = 0, REMOVED, ""
            for record_offset, (epoch, event_id) in sorted(epochs.items()):
                is_new = former_epoch == REMOVED or any(
                    former_offset < ended < record_offset for ended in self._ended.get(group_id, ())
                )
                if epoch != REMOVED and not is_new:
                    self._findings.examined += 1
                    if epoch < former_epoch:
                        self._findings.violation(
                            f"{group_id}/{member_id}/{record_offset}",
                            f"{group_id}: {member_id} goes from epoch {former_epoch} back to "
                            f"{epoch} at offset {record_offset}",
                            former_id,
                            event_id,
                        )
                former_offset, former_epoch, former_id = record_offset, epoch, event_id
        return self._findings.verdict()


class GivenPartitions:
    """The assigned partitions, each with the event that gave it."""

    def __init__(self) -> None:
        self._given: dict[Given, str] = {}

    def take(self, envelope: Envelope, event: SharePartitionGiven) -> None:
        """A member is given a partition."""
        where = (event.group_id, event.record_offset, event.member_id)
        self._given.setdefault((*where, event.topic, event.partition), envelope.event_id)

    def in_order(self) -> list[tuple[Given, str]]:
        """Return them in the order of the log."""
        return sorted(self._given.items())


def last_before(offsets: Sequence[int], offset: int) -> int:
    """Return the last of ascending offsets below one; -1 if there is none."""
    index = bisect_left(offsets, offset)
    return offsets[index - 1] if index else NONE_BEFORE


class GivenInitialized:
    """A partition is given only if the last record before says that its state is initialized."""

    def __init__(self) -> None:
        self._findings = Findings(INITIALIZED)
        self._given = GivenPartitions()
        self._recorded: dict[str, dict[int, None]] = {}
        self._initialized: dict[tuple[str, int], dict[tuple[str, int], None]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Collect the records."""
        match event:
            case SharePartitionGiven():
                self._given.take(envelope, event)
            case SharePartitionsRecorded():
                self._recorded.setdefault(event.group_id, {})[event.record_offset] = None
            case SharePartitionInitialized():
                place = (event.group_id, event.record_offset)
                self._initialized.setdefault(place, {})[event.topic, event.partition] = None
        return None

    def finish(self) -> Verdict:
        """Look each partition up in the last record before."""
        recorded = {group_id: sorted(offsets) for group_id, offsets in self._recorded.items()}
        for (group_id, offset, member_id, topic, partition), event_id in self._given.in_order():
            self._findings.examined += 1
            last = last_before(recorded.get(group_id, ()), offset)
            if (topic, partition) not in self._initialized.get((group_id, last), {}):
                self._findings.violation(
                    f"{group_id}/{topic}/{partition}/{offset}",
                    f"{group_id}: {member_id} is given {topic}-{partition} at offset {offset}, "
                    "whose state is not initialized",
                    event_id,
                )
        return self._findings.verdict()


class GivenSubscribed:
    """A partition is given only if the member subscribes to its topic."""

    def __init__(self) -> None:
        self._findings = Findings(SUBSCRIBED)
        self._given = GivenPartitions()
        self._topics: dict[tuple[str, str], dict[int, frozenset[str]]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Collect the records."""
        match event:
            case SharePartitionGiven():
                self._given.take(envelope, event)
            case ShareMemberSubscribed():
                found = self._topics.setdefault((event.group_id, event.member_id), {})
                found[event.record_offset] = frozenset(event.topics.split(","))
        return None

    def finish(self) -> Verdict:
        """Look each topic up in the last subscription before."""
        recorded = {member: sorted(topics) for member, topics in self._topics.items()}
        for (group_id, offset, member_id, topic, partition), event_id in self._given.in_order():
            self._findings.examined += 1
            member = (group_id, member_id)
            last = last_before(recorded.get(member, ()), offset)
            if topic not in self._topics.get(member, {}).get(last, ()):
                self._findings.violation(
                    f"{group_id}/{topic}/{partition}/{offset}",
                    f"{group_id}: {member_id} is given {topic}-{partition} at offset {offset}, and "
                    "does not subscribe to it",
                    event_id,
                )
        return self._findings.verdict()


_GIVEN = """
    given AS (
        SELECT run, group_id, record_offset, member_id, topic, partition, min(position) AS position
        FROM share_partition_given
        GROUP BY run, group_id, record_offset, member_id, topic, partition
    )
"""
_STEPS = f"""
    member AS (
        SELECT run, group_id, member_id, record_offset, member_epoch, min(position) AS position
        FROM share_member_epoch_set
        GROUP BY run, group_id, member_id, record_offset, member_epoch
    ), step AS (
        SELECT run, group_id, member_id, record_offset, member_epoch, position,
            lag(record_offset) OVER w AS former_offset,
            lag(member_epoch) OVER w AS former_epoch,
            lag(position) OVER w AS former_position
        FROM member
        WINDOW w AS (PARTITION BY run, group_id, member_id ORDER BY record_offset)
    ), kept AS (
        SELECT * FROM step AS s
        WHERE s.member_epoch <> {REMOVED} AND s.former_epoch <> {REMOVED} AND NOT EXISTS (
            SELECT 1 FROM share_group_ended AS e WHERE e.run = s.run AND e.group_id = s.group_id
                AND s.former_offset < e.record_offset AND e.record_offset < s.record_offset
        )
    )
"""
_RECORDED = f"""
    {_GIVEN}, recorded AS (
        SELECT DISTINCT run, group_id, record_offset FROM share_partitions_recorded
    ), initialized AS (
        SELECT DISTINCT run, group_id, topic, partition, record_offset
        FROM share_partition_initialized
    ), placed AS (
        SELECT g.run, g.group_id, g.record_offset, g.member_id, g.topic, g.partition, g.position,
            max(r.record_offset) AS last_offset
        FROM given AS g LEFT JOIN recorded AS r ON r.run = g.run AND r.group_id = g.group_id
            AND r.record_offset < g.record_offset
        GROUP BY g.run, g.group_id, g.record_offset, g.member_id, g.topic, g.partition, g.position
    )
"""
_WISHES = f"""
    {_GIVEN}, wish AS (
        SELECT DISTINCT run, group_id, member_id, record_offset, topics FROM share_member_subscribed
    ), placed AS (
        SELECT g.run, g.group_id, g.record_offset, g.member_id, g.topic, g.partition, g.position,
            max(w.record_offset) AS last_offset
        FROM given AS g LEFT JOIN wish AS w ON w.run = g.run AND w.group_id = g.group_id
            AND w.member_id = g.member_id AND w.record_offset < g.record_offset
        GROUP BY g.run, g.group_id, g.record_offset, g.member_id, g.topic, g.partition, g.position
    )
"""

SHARE_MEMBER_EPOCHS_INCREASE = Invariant(
    name=INCREASE,
    rule="The epoch of a member of a share group never decreases while it is in the group.",
    source="KIP-932",
    watches=(ShareMemberEpochSet, ShareGroupEnded),
    check=EpochsOfShareMembers,
    examined=f"WITH {_STEPS} SELECT run, count(*) FROM kept GROUP BY run",
    violations=f"""
        WITH {_STEPS}
        SELECT
            run,
            concat(group_id, '/', member_id, '/', record_offset) AS key,
            concat(group_id, ': ', member_id, ' goes from epoch ', former_epoch, ' back to ',
                member_epoch, ' at offset ', record_offset) AS message,
            former_position AS first_witness,
            position AS second_witness
        FROM kept WHERE member_epoch < former_epoch
    """,
)
SHARE_PARTITIONS_INITIALIZED_FIRST = Invariant(
    name=INITIALIZED,
    rule="A partition is given to a member of a share group only while the log of the group says "
    "that its state is initialized.",
    source="KIP-932",
    watches=(SharePartitionGiven, SharePartitionsRecorded, SharePartitionInitialized),
    check=GivenInitialized,
    examined=f"WITH {_GIVEN} SELECT run, count(*) FROM given GROUP BY run",
    violations=f"""
        WITH {_RECORDED}
        SELECT
            p.run,
            concat(p.group_id, '/', p.topic, '/', p.partition, '/', p.record_offset) AS key,
            concat(p.group_id, ': ', p.member_id, ' is given ', p.topic, '-', p.partition,
                ' at offset ', p.record_offset, ', whose state is not initialized') AS message,
            p.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM placed AS p WHERE NOT EXISTS (
            SELECT 1 FROM initialized AS i WHERE i.run = p.run AND i.group_id = p.group_id
                AND i.topic = p.topic AND i.partition = p.partition
                AND i.record_offset = p.last_offset
        )
    """,
)
SHARE_MEMBERS_GET_SUBSCRIBED_TOPICS = Invariant(
    name=SUBSCRIBED,
    rule="A partition is given to a member of a share group only if the member subscribes to its "
    "topic.",
    source="KIP-932",
    watches=(SharePartitionGiven, ShareMemberSubscribed),
    check=GivenSubscribed,
    examined=f"WITH {_GIVEN} SELECT run, count(*) FROM given GROUP BY run",
    violations=f"""
        WITH {_WISHES}
        SELECT
            p.run,
            concat(p.group_id, '/', p.topic, '/', p.partition, '/', p.record_offset) AS key,
            concat(p.group_id, ': ', p.member_id, ' is given ', p.topic, '-', p.partition,
                ' at offset ', p.record_offset, ', and does not subscribe to it') AS message,
            p.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM placed AS p WHERE NOT EXISTS (
            SELECT 1 FROM wish AS w WHERE w.run = p.run AND w.group_id = p.group_id
                AND w.member_id = p.member_id AND w.record_offset = p.last_offset
                AND instr(concat(',', w.topics, ','), concat(',', p.topic, ',')) > 0
        )
    """,
)

INVARIANTS = (
    SHARE_MEMBER_EPOCHS_INCREASE,
    SHARE_PARTITIONS_INITIALIZED_FIRST,
    SHARE_MEMBERS_GET_SUBSCRIBED_TOPICS,
)
