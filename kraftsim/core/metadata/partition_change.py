"""The record that takes a partition from what it is to what it shall be, with the leader that follows from it.

One door for everything that changes a partition: brokers that come and go, leaders that ask for another ISR, moves, elections, directories.
Eligible leader replicas are given up wherever a log has them and the cluster has the feature no more.
Source: org.apache.kafka.controller.PartitionChangeBuilder, KIP-966.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from kraftsim.core.metadata.eligible_leaders import EligibleLeaderRules, last_known_leader
from kraftsim.core.metadata.metadata_level import MetadataLevel
from kraftsim.core.metadata.partition_registration import PartitionRegistration
from kraftsim.core.metadata.reassignment import Reassignment
from protocol.metadata.m03_partition import RECOVERING
from protocol.metadata.m05_partition_change import NO_LEADER, NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE, PartitionChangeRecord


class Election(Enum):
    """What an election may do."""

    ONLINE = "online"
    """Keep the leader if it may lead, else take the first replica in sync that may."""
    PREFERRED = "preferred"
    """The same, but the first replica comes before the present leader."""
    UNCLEAN = "unclean"
    """Like ONLINE; where nobody in sync may lead take anybody who may, and lose what it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTarget:
    """What a partition shall be; None leaves a part as it is. `directories` are those of single replicas."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    directories: Mapping[int, bytes] = field(default_factory=dict)


AS_IT_IS = PartitionTarget()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRules:
    """What a change stands under. `may_lead`: the replica is active and its directory online; `default_directory`: where a broker puts new ones.

    `eligible` are the rules of KIP-966, None where the cluster does not have the feature.
    """

    level: MetadataLevel
    election: Election
    may_lead: Callable[[int], bool]
    default_directory: Callable[[int], bytes]
    eligible: EligibleLeaderRules | None = None
    moves_wait_for_all: bool = True
    suits_zookeeper: bool = False
    """Whether brokers may be in ZooKeeper mode: any ISR that shrinks costs a leader epoch, whatever the level."""


def changed_partition(partition: PartitionRegistration, target: PartitionTarget, rules: ChangeRules) -> PartitionChangeRecord | None:
    """Return the change, without the name of its partition; None if nothing changes.

    A move that can be completed is. Without eligible leaders an ISR never becomes empty: its last member stays in it although nobody leads.
    """
    target = _with_completed_move(partition, target, rules)
    isr = partition.isr if target.isr is None else target.isr
    replicas = partition.replicas if target.replicas is None else target.replicas
    eligible = partition.eligible_leader_replicas if rules.eligible is None else rules.eligible.left_over(partition, isr)
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
        record.leader = partition.leader  # a new leader epoch tells those who leave from those who stay
    if record.isr is not None or rules.eligible is None:
        eligible = ()  # nobody has what a leader of an unclean election lacks
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


def _with_completed_move(partition: PartitionRegistration, target: PartitionTarget, rules: ChangeRules) -> PartitionTarget:
    move = Reassignment(
        replicas=partition.replicas if target.replicas is None else target.replicas,
        removing=partition.removing_replicas if target.removing_replicas is None else target.removing_replicas,
        adding=partition.adding_replicas if target.adding_replicas is None else target.adding_replicas,
    )
    isr = move.target_isr(partition.isr if target.isr is None else target.isr, waits_for_all=rules.moves_wait_for_all)
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
    partition: PartitionRegistration, isr: tuple[int, ...], eligible: tuple[int, ...], replicas: tuple[int, ...], rules: ChangeRules
) -> tuple[int, bool]:
    """Return (leader, whether the election is unclean). The present leader may stay although it is no replica any more, if it is in sync.

    Where nobody is in sync any more, those who left the ISR last may lead; then the leader of last resort; then, if that is allowed, anybody.
    """
    order = (replicas[0], partition.leader, *replicas[1:]) if rules.election is Election.PREFERRED else (partition.leader, *replicas)
    candidates = isr or eligible
    clean = next((replica for replica in order if replica in candidates and rules.may_lead(replica)), None)
    if clean is not None:
        return clean, False
    if rules.eligible is not None and not candidates and len(partition.last_known_elr) == 1 and rules.may_lead(partition.last_known_elr[0]):
        return partition.last_known_elr[0], True
    anybody = next((replica for replica in replicas if rules.may_lead(replica)), None) if rules.election is Election.UNCLEAN else None
    return (NO_LEADER, False) if anybody is None else (anybody, True)


def _set_assignment(
    record: PartitionChangeRecord, partition: PartitionRegistration, target: PartitionTarget, replicas: tuple[int, ...], rules: ChangeRules
) -> None:
    if replicas != partition.replicas:
        record.replicas = list(replicas)
    if rules.level.has_directories:
        known = {**dict(zip(partition.replicas, partition.directories, strict=True)), **target.directories}
        directories = [known[replica] if replica in known else rules.default_directory(replica) for replica in replicas]
        if directories != list(partition.directories):
            record.directories = directories
    if target.removing_replicas not in (None, partition.removing_replicas):
        record.removing_replicas = list(target.removing_replicas)
    if target.adding_replicas not in (None, partition.adding_replicas):
        record.adding_replicas = list(target.adding_replicas)


def _says_something(record: PartitionChangeRecord) -> bool:
    if record.leader != NO_LEADER_CHANGE or record.leader_recovery_state != NO_RECOVERY_STATE_CHANGE:
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
