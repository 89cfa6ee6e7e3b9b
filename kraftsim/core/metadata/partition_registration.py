"""A partition as the metadata log knows it, and how it changes when a broker leaves or comes back.

Source: org.apache.kafka.metadata.PartitionRegistration, org.apache.kafka.controller.PartitionChangeBuilder.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from protocol.metadata.m03_partition import PartitionRecord
from protocol.metadata.m05_partition_change import NO_LEADER, NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE, PartitionChangeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """replicas stand in the order of preference; directories are parallel to them (empty below metadata.version 17)."""

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int

    def changed_by(self, record: PartitionChangeRecord) -> "PartitionRegistration":
        """Return the partition after a change. Naming a leader, even the same one, begins a new leader epoch; any record a new partition epoch."""
        names_leader = record.leader != NO_LEADER_CHANGE
        recovers = record.leader_recovery_state != NO_RECOVERY_STATE_CHANGE
        return replace(
            self,
            replicas=self.replicas if record.replicas is None else tuple(record.replicas),
            directories=self.directories if record.directories is None else tuple(record.directories),
            isr=self.isr if record.isr is None else tuple(record.isr),
            removing_replicas=self.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
            adding_replicas=self.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
            leader=record.leader if names_leader else self.leader,
            leader_recovery_state=record.leader_recovery_state if recovers else self.leader_recovery_state,
            leader_epoch=self.leader_epoch + names_leader,
            partition_epoch=self.partition_epoch + 1,
        )

    def without(self, broker_id: int, is_active: Callable[[int], bool], *, bumps_epoch_on_shrink: bool) -> PartitionChangeRecord | None:
        """Return the change that takes a broker out of the ISR, or None. The last member stays in the ISR, so that nothing else becomes leader."""
        shrunk = tuple(replica for replica in self.isr if replica != broker_id)
        return self._change(shrunk, lambda replica: replica != broker_id and is_active(replica), bumps_epoch_on_shrink)

    def with_electable(self, broker_id: int, is_active: Callable[[int], bool]) -> PartitionChangeRecord | None:
        """Return the change that gives a leaderless partition a leader now that a broker is back, or None."""
        if self.leader != NO_LEADER:
            return None
        return self._change(self.isr, lambda replica: replica == broker_id or is_active(replica), bumps_epoch_on_shrink=False)

    def _change(self, target_isr: tuple[int, ...], may_lead: Callable[[int], bool], bumps_epoch_on_shrink: bool) -> PartitionChangeRecord | None:
        leader = self._elect(target_isr, may_lead)
        shrinks = bool(target_isr) and target_isr != self.isr
        record = PartitionChangeRecord(isr=list(target_isr) if shrinks else None)
        if leader != self.leader or (shrinks and bumps_epoch_on_shrink):
            record.leader = leader
        return record if shrinks or record.leader != NO_LEADER_CHANGE else None

    def _elect(self, target_isr: tuple[int, ...], may_lead: Callable[[int], bool]) -> int:
        """Keep the leader if it may lead, else take the first replica in sync that may."""
        candidates = (self.leader, *self.replicas)
        return next((replica for replica in candidates if replica in target_isr and may_lead(replica)), NO_LEADER)


def partition_of(record: PartitionRecord) -> PartitionRegistration:
    """Return what a PartitionRecord says."""
    return PartitionRegistration(
        replicas=tuple(record.replicas),
        directories=tuple(record.directories),
        isr=tuple(record.isr),
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        leader=record.leader,
        leader_recovery_state=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
    )
