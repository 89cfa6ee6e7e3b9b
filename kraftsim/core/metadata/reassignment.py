"""How a partition moves to other brokers: who joins, who leaves, when it is done, and what calling it off leaves behind.

A partition under way has all replicas, old and new; the move is done once those who are waited for are in sync: only then the old ones may go.
Source: KIP-455, org.apache.kafka.controller.{PartitionReassignmentReplicas, PartitionReassignmentRevert}.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kraftsim.core.metadata.partition_registration import PartitionRegistration


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """`replicas` are all that the partition has while it moves, the target first; `removing` and `adding` are among them."""

    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that shall stay."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    def target_isr(self, isr: Sequence[int], *, waits_for_all: bool) -> tuple[int, ...] | None:
        """Return the ISR with which the move is done; None while there is no move, or while somebody who is waited for is not in sync.

        All who shall stay are waited for or, where the partition does not get fewer replicas, only those who join (KAFKA-19975).
        """
        staying = tuple(replica for replica in isr if replica not in self.removing)
        if not (self.removing or self.adding) or not staying:
            return None
        shrinks = len(self.adding) < len(self.removing)
        awaited = self.target if waits_for_all else (*self.adding, *(self.target if shrinks else ()))
        return staying if all(replica in staying for replica in awaited) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverted:
    """The partition after its move was called off. `is_unclean`: nobody of the old replicas was in sync, so the first is taken as if it were."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_unclean: bool


def reassignment_to(target: Sequence[int], current: Sequence[int]) -> Reassignment:
    """Return the move from the current replicas to a target. Who leaves stands behind the target, by broker id."""
    removing = tuple(sorted(replica for replica in current if replica not in target))
    adding = tuple(sorted(replica for replica in target if replica not in current))
    return Reassignment(replicas=(*target, *removing), removing=removing, adding=adding)


def reverted(partition: PartitionRegistration) -> Reverted:
    """Return what a partition under way goes back to: without those that were joining, and with those that were leaving."""
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    assert replicas, "a partition had replicas before it was moved"
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding_replicas)
    return Reverted(replicas=replicas, isr=isr or replicas[:1], is_unclean=not isr)
