"""The replica sets of a reassignment: adding, removing, completion and cancellation.

During a reassignment a partition has the old and the new replicas; it completes, and removes the
old ones, once the required replicas are in sync.
Source: KIP-455, org.apache.kafka.controller.{PartitionReassignmentReplicas,
PartitionReassignmentRevert}.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kraftsim.core.metadata.partition_registration import PartitionRegistration


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
