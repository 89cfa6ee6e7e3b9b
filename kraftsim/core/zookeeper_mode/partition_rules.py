"""Partition leader and ISR changes of a ZooKeeper-mode controller: in steps, each one a write of
the state znode.

Unlike in KRaft the removal of a replica bumps the leader epoch each time, the first in-sync replica
becomes leader, a leader that shuts down is replaced before it stops, and a request for another ISR
is not checked for the leader epoch.
Source: kafka.controller.{PartitionStateMachine, ReplicaStateMachine, Election, ReplicaAssignment,
KafkaController} of 2.3 to 3.9.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kraftsim.core.metadata.partition_registration import PartitionRegistration
from protocol.metadata.m03_partition import NO_LEADER, RECOVERED, RECOVERING

MayLead = Callable[[int], bool]
NOT_MADE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The replicas of a partition during a reassignment, the target first, with the adding and
    removing ones.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def is_moving(self) -> bool:
        """Whether any replica is being added or removed."""
        return bool(self.adding or self.removing)

    def moved_to(self, target: Sequence[int]) -> "Assignment":
        """Return the reassignment from the origin of the current one to a target."""
        full = tuple(dict.fromkeys((*target, *self.origin)))
        return Assignment(
            replicas=full,
            adding=tuple(replica for replica in full if replica not in self.origin),
            removing=tuple(replica for replica in full if replica not in target),
        )


def assignment_of(partition: PartitionRegistration) -> Assignment:
    """Return the assignment of a partition."""
    return Assignment(
        replicas=partition.replicas,
        adding=partition.adding_replicas,
        removing=partition.removing_replicas,
    )


def assigned(partition: PartitionRegistration, assignment: Assignment) -> PartitionRegistration:
    """Return a partition with other replicas. Its state znode is unchanged."""
    return replace(
        partition,
        replicas=assignment.replicas,
        adding_replicas=assignment.adding,
        removing_replicas=assignment.removing,
        directories=(bytes(16),) * len(assignment.replicas),
    )


def led_by(
    partition: PartitionRegistration,
    leader: int,
    isr: Sequence[int],
    *,
    leader_recovery_state: int | None = None,
) -> PartitionRegistration:
    """Return a partition with the next leader epoch, the first one being 0."""
    return replace(
        partition,
        leader=leader,
        isr=tuple(isr),
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        leader_recovery_state=partition.leader_recovery_state
        if leader_recovery_state is None
        else leader_recovery_state,
    )


def renewed(partition: PartitionRegistration) -> PartitionRegistration:
    """Return a partition with the next leader epoch and nothing else changed, so that its replicas
    apply the new assignment.
    """
    return led_by(partition, partition.leader, partition.isr)


def in_sync_with(
    partition: PartitionRegistration, leader: int, isr: Sequence[int], leader_recovery_state: int
) -> PartitionRegistration:
    """Return a partition with another ISR, in the same leader epoch, as requested by its leader."""
    return replace(
        partition,
        leader=leader,
        isr=tuple(isr),
        leader_recovery_state=leader_recovery_state,
        partition_epoch=partition.partition_epoch + 1,
    )


def elected_first(
    partition: PartitionRegistration, is_online: MayLead
) -> PartitionRegistration | None:
    """Return a new partition with its first leader: the ISR are all live replicas.

    None without any.
    """
    assert partition.partition_epoch == NOT_MADE, "a partition is initialized once"
    online = [replica for replica in partition.replicas if is_online(replica)]
    return led_by(partition, online[0], online, leader_recovery_state=RECOVERED) if online else None


def elected_offline(
    partition: PartitionRegistration,
    is_online: MayLead,
    *,
    allows_unclean: bool,
    marks_recovery: bool,
) -> PartitionRegistration | None:
    """Return a partition whose leader has failed, with the first live in-sync replica as leader, or
    with unclean election the first live one.

    None if there is none.
    """
    online = [replica for replica in partition.replicas if is_online(replica)]
    leader = next((replica for replica in online if replica in partition.isr), None)
    if leader is not None:
        return led_by(
            partition, leader, [replica for replica in partition.isr if is_online(replica)]
        )
    if not online or not allows_unclean:
        return None
    return led_by(
        partition,
        online[0],
        online[:1],
        leader_recovery_state=RECOVERING if marks_recovery else None,
    )


def elected_of(
    partition: PartitionRegistration, candidates: Sequence[int], is_online: MayLead
) -> PartitionRegistration | None:
    """Return a partition whose leader is the first live in-sync candidate; None if there is
    none.
    """
    leader = next(
        (replica for replica in candidates if is_online(replica) and replica in partition.isr), None
    )
    return None if leader is None else led_by(partition, leader, partition.isr)


def elected_for_shutdown(
    partition: PartitionRegistration, is_there: MayLead, is_leaving: MayLead
) -> PartitionRegistration | None:
    """Return a partition without the brokers in controlled shutdown; None if there is no other
    leader.

    `is_there` includes them.
    """
    leader = next(
        (
            each
            for each in partition.replicas
            if is_there(each) and each in partition.isr and not is_leaving(each)
        ),
        None,
    )
    return (
        None
        if leader is None
        else led_by(
            partition, leader, [replica for replica in partition.isr if not is_leaving(replica)]
        )
    )


def without(partition: PartitionRegistration, replica: int) -> PartitionRegistration | None:
    """Return a partition with a replica removed from the ISR, unless it is the last one, and from
    leadership.

    None if it was not in sync.
    """
    if replica not in partition.isr:
        return None
    isr = (
        partition.isr
        if len(partition.isr) == 1
        else tuple(each for each in partition.isr if each != replica)
    )
    return led_by(partition, NO_LEADER if replica == partition.leader else partition.leader, isr)
