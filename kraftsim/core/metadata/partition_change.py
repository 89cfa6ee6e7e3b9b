"""Builds the PartitionChangeRecord from a partition's current state to a target, with the resulting
leader.

Used by all partition changes: broker state, AlterPartition, reassignments, elections, directories.
Eligible leader replicas are cleared if the log has them and the feature is disabled.
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
from protocol.metadata.m05_partition_change import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    PartitionChangeRecord,
)


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
