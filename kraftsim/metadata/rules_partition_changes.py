"""The change of one partition: from its current state to a target, with the resulting leader, ELR
and reassignment, as one PartitionChangeRecord; and the events of such records.

All causes of a change come here: broker state, AlterPartition, reassignments, elections,
directories.
Source: org.apache.kafka.controller.{PartitionChangeBuilder, PartitionReassignmentReplicas,
PartitionReassignmentRevert}, KIP-455, KIP-966.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kraftsim.events.event import Event
from kraftsim.metadata.events import PartitionChanged, PartitionCreated, TopicDeleted
from kraftsim.metadata.rules_registrations import PartitionRegistration
from kraftsim.metadata.rules_topic_table import PartitionKey, TopicTable
from kraftsim.metadata.rules_versions import MetadataLevel
from protocol.metadata.topics import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    RECOVERING,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.schema import Message
from protocol.uuids import uuid_text

# --------------------------------------------------------------------------------------------------
# Eligible leader replicas (KIP-966): they left the ISR with all committed records, and may lead if
# the ISR is empty
#
# While an ISR is below min.insync.replicas, acks=all produces are not acknowledged and the high
# watermark does not advance, so a replica that leaves the ISR then lacks nothing. After an unclean
# shutdown a broker may have lost records, and is not eligible any more.
# Source: PartitionChangeBuilder (maybePopulateTargetElr, maybeUpdateLastKnownLeader), 4.1 and 4.4.


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibleLeaderRules:
    """`min_in_sync_replicas`: effective value of the topic, at most its replication factor.

    `shut_down_uncleanly`: brokers removed by this change.
    """

    min_in_sync_replicas: int
    shut_down_uncleanly: Collection[int] = ()

    def left_over(self, partition: PartitionRegistration, isr: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ELR for an ISR, sorted: the former ELR and ISR members outside of it, while it
        is below the minimum.
        """
        if len(isr) >= self.min_in_sync_replicas:
            return ()
        candidates = {*partition.eligible_leader_replicas, *partition.isr}
        return tuple(sorted(candidates.difference(isr, self.shut_down_uncleanly)))


def last_known_leader(partition: PartitionRegistration, leader: int) -> list[int] | None:
    """Return the new LastKnownElr for a leader change: the former leader, empty, or unchanged
    (None).
    """
    if leader == NO_LEADER and not partition.last_known_elr:
        return [partition.leader]
    return [] if leader >= 0 and partition.last_known_elr else None


# --------------------------------------------------------------------------------------------------
# The events of committed changes: leader and ISR of every epoch


def partition_events(records: Sequence[Message], topics: TopicTable) -> tuple[Event, ...]:
    """Return the events of the records, in order; `topics` is the state before them."""
    made: dict[bytes, str] = {}
    changed: dict[PartitionKey, PartitionRegistration] = {}
    facts: list[Event] = []
    for record in records:
        match record:
            case TopicRecord():
                made[record.topic_id] = record.name
            case PartitionRecord():
                facts.append(
                    _created(record, made.get(record.topic_id) or _name(record.topic_id, topics))
                )
            case PartitionChangeRecord():
                key = (record.topic_id, record.partition_id)
                before = changed.get(key) or topics.partition(key)
                assert before is not None, "the changed partition exists"
                changed[key] = before.changed_by(record)
                facts.append(partition_changed_event(key, _name(key[0], topics), changed[key]))
            case RemoveTopicRecord():
                topic = topics.topic(record.topic_id)
                assert topic is not None, "the removed topic exists"
                facts.append(
                    TopicDeleted(
                        topic=topic.name,
                        topic_id=uuid_text(topic.topic_id),
                        partition_count=len(topic.partitions),
                    )
                )
    return tuple(facts)


def _name(topic_id: bytes, topics: TopicTable) -> str:
    topic = topics.topic(topic_id)
    assert topic is not None, "a partition belongs to a topic"
    return topic.name


def _created(record: PartitionRecord, topic: str) -> PartitionCreated:
    return PartitionCreated(
        topic=topic,
        topic_id=uuid_text(record.topic_id),
        partition=record.partition_id,
        leader=record.leader,
        isr=_listed(record.isr),
        replicas=_listed(record.replicas),
    )


def partition_changed_event(
    key: PartitionKey, topic: str, partition: PartitionRegistration
) -> PartitionChanged:
    """Return the event of a partition's current state."""
    return PartitionChanged(
        topic=topic,
        topic_id=uuid_text(key[0]),
        partition=key[1],
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        leader_recovery_state=partition.leader_recovery_state,
        isr=_listed(partition.isr),
        replicas=_listed(partition.replicas),
        adding_replicas=_listed(partition.adding_replicas),
        removing_replicas=_listed(partition.removing_replicas),
    )


def _listed(broker_ids: Iterable[int]) -> str:
    return ",".join(map(str, broker_ids))


# --------------------------------------------------------------------------------------------------
# The replica sets of a reassignment: adding, removing, completion and cancellation
#
# During a reassignment a partition has the old and the new replicas; it completes, and removes the
# old ones, once the required replicas are in sync.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """`replicas` are all during the reassignment, the target first; `removing` and `adding` are
    subsets of them.
    """

    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The target replicas."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    def target_isr(self, isr: Sequence[int], *, waits_for_all: bool) -> tuple[int, ...] | None:
        """Return the ISR with which the reassignment completes; None if there is none, or a
        required replica is not in sync.

        Required are all target replicas or, if the partition does not get fewer replicas, only the
        adding ones (KAFKA-19975).
        """
        staying = tuple(replica for replica in isr if replica not in self.removing)
        if not (self.removing or self.adding) or not staying:
            return None
        shrinks = len(self.adding) < len(self.removing)
        awaited = (
            self.target if waits_for_all else (*self.adding, *(self.target if shrinks else ()))
        )
        return staying if all(replica in staying for replica in awaited) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverted:
    """The partition after a cancelled reassignment.

    `is_unclean`: no old replica was in sync, so the first one becomes the ISR.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_unclean: bool


def reassignment_to(target: Sequence[int], current: Sequence[int]) -> Reassignment:
    """Return the reassignment from the current replicas to a target.

    Removing replicas follow the target, by broker id.
    """
    removing = tuple(sorted(replica for replica in current if replica not in target))
    adding = tuple(sorted(replica for replica in target if replica not in current))
    return Reassignment(replicas=(*target, *removing), removing=removing, adding=adding)


def reverted(partition: PartitionRegistration) -> Reverted:
    """Return the state before a reassignment: without the adding replicas, with the removing
    ones.
    """
    replicas = tuple(
        replica for replica in partition.replicas if replica not in partition.adding_replicas
    )
    assert replicas, "a partition has replicas besides the adding ones"
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding_replicas)
    return Reverted(replicas=replicas, isr=isr or replicas[:1], is_unclean=not isr)


# --------------------------------------------------------------------------------------------------
# The change record
#
# Eligible leader replicas are cleared if the log has them and the feature is disabled.


class Election(Enum):
    """The type of an election."""

    ONLINE = "online"
    """Keep the leader if it is eligible, else the first eligible replica in the ISR."""
    PREFERRED = "preferred"
    """Like ONLINE, but the preferred replica comes before the current leader."""
    UNCLEAN = "unclean"
    """Like ONLINE; if no replica in the ISR is eligible, any other replica, with data loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTarget:
    """The target state of a partition; None leaves a field unchanged.

    `directories` are those of single replicas.
    """

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    directories: Mapping[int, bytes] = field(default_factory=dict)


UNCHANGED = PartitionTarget()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRules:
    """The context of a change. `may_lead`: the replica is active and its directory online;
    `default_directory`: the directory of new replicas of a broker.

    `eligible` are the rules of KIP-966, None if the feature is disabled.
    """

    level: MetadataLevel
    election: Election
    may_lead: Callable[[int], bool]
    default_directory: Callable[[int], bytes]
    eligible: EligibleLeaderRules | None = None
    moves_wait_for_all: bool = True
    suits_zookeeper: bool = False
    """Whether brokers may be in ZooKeeper mode: every ISR shrink bumps the leader epoch, at any
    level.
    """


def changed_partition(
    partition: PartitionRegistration, target: PartitionTarget, rules: ChangeRules
) -> PartitionChangeRecord | None:
    """Return the change record, without the partition's name; None if nothing changes.

    Completes a reassignment if possible. Without ELR an ISR never becomes empty: its last member
    stays in it even without a leader.
    """
    target = _with_completed_move(partition, target, rules)
    isr = partition.isr if target.isr is None else target.isr
    replicas = partition.replicas if target.replicas is None else target.replicas
    eligible = (
        partition.eligible_leader_replicas
        if rules.eligible is None
        else rules.eligible.left_over(partition, isr)
    )
    leader, is_unclean = _elected(partition, isr, eligible, replicas, rules)
    record = PartitionChangeRecord()
    if leader != partition.leader:
        record.leader = leader
        if leader in eligible:
            isr, eligible = (leader,), tuple(replica for replica in eligible if replica != leader)
        if is_unclean:
            record.isr = [leader]
            if partition.leader_recovery_state != RECOVERING and rules.level.has_leader_recovery:
                record.leader_recovery_state = RECOVERING
    elif not set(partition.replicas) <= set(replicas):
        record.leader = (
            partition.leader
        )  # the leader epoch is bumped so that removed replicas are fenced
    if record.isr is not None or rules.eligible is None:
        eligible = ()  # an unclean leader clears the ELR
    if eligible != partition.eligible_leader_replicas:
        record.eligible_leader_replicas = list(eligible)
    if record.isr is None and (isr or rules.eligible is not None) and isr != partition.isr:
        record.isr = list(isr)
    shrinks = record.isr is not None and not set(partition.isr) <= set(record.isr)
    bumps = rules.level.bumps_leader_epoch_on_isr_shrink or rules.suits_zookeeper
    if shrinks and bumps and record.leader == NO_LEADER_CHANGE:
        record.leader = partition.leader
    if rules.eligible is not None:
        record.last_known_elr = last_known_leader(partition, record.leader)
    _set_assignment(record, partition, target, replicas, rules)
    if target.leader_recovery_state not in (None, partition.leader_recovery_state):
        record.leader_recovery_state = target.leader_recovery_state
    return record if _says_something(record) else None


def _with_completed_move(
    partition: PartitionRegistration, target: PartitionTarget, rules: ChangeRules
) -> PartitionTarget:
    move = Reassignment(
        replicas=partition.replicas if target.replicas is None else target.replicas,
        removing=partition.removing_replicas
        if target.removing_replicas is None
        else target.removing_replicas,
        adding=partition.adding_replicas
        if target.adding_replicas is None
        else target.adding_replicas,
    )
    isr = move.target_isr(
        partition.isr if target.isr is None else target.isr, waits_for_all=rules.moves_wait_for_all
    )
    if isr is None:
        return target
    return PartitionTarget(
        isr=isr,
        replicas=move.target,
        removing_replicas=(),
        adding_replicas=(),
        leader_recovery_state=target.leader_recovery_state,
        directories=target.directories,
    )


def _elected(
    partition: PartitionRegistration,
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    replicas: tuple[int, ...],
    rules: ChangeRules,
) -> tuple[int, bool]:
    """Return (leader, whether the election is unclean).

    The current leader may stay although it is not a replica any more, if it is in sync.

    Without an ISR the eligible leader replicas are candidates; then the last known leader; then, if
    unclean election is allowed, any replica.
    """
    order = (
        (replicas[0], partition.leader, *replicas[1:])
        if rules.election is Election.PREFERRED
        else (partition.leader, *replicas)
    )
    candidates = isr or eligible
    clean = next(
        (replica for replica in order if replica in candidates and rules.may_lead(replica)), None
    )
    if clean is not None:
        return clean, False
    if (
        rules.eligible is not None
        and not candidates
        and len(partition.last_known_elr) == 1
        and rules.may_lead(partition.last_known_elr[0])
    ):
        return partition.last_known_elr[0], True
    unclean = (
        next((replica for replica in replicas if rules.may_lead(replica)), None)
        if rules.election is Election.UNCLEAN
        else None
    )
    return (NO_LEADER, False) if unclean is None else (unclean, True)


def _set_assignment(
    record: PartitionChangeRecord,
    partition: PartitionRegistration,
    target: PartitionTarget,
    replicas: tuple[int, ...],
    rules: ChangeRules,
) -> None:
    if replicas != partition.replicas:
        record.replicas = list(replicas)
    if rules.level.has_directories:
        known = {
            **dict(zip(partition.replicas, partition.directories, strict=True)),
            **target.directories,
        }
        directories = [
            known[replica] if replica in known else rules.default_directory(replica)
            for replica in replicas
        ]
        if directories != list(partition.directories):
            record.directories = directories
    if target.removing_replicas not in (None, partition.removing_replicas):
        record.removing_replicas = list(target.removing_replicas)
    if target.adding_replicas not in (None, partition.adding_replicas):
        record.adding_replicas = list(target.adding_replicas)


def _says_something(record: PartitionChangeRecord) -> bool:
    if (
        record.leader != NO_LEADER_CHANGE
        or record.leader_recovery_state != NO_RECOVERY_STATE_CHANGE
    ):
        return True
    parts = (
        record.isr,
        record.replicas,
        record.removing_replicas,
        record.adding_replicas,
        record.directories,
        record.eligible_leader_replicas,
        record.last_known_elr,
    )
    return any(part is not None for part in parts)
