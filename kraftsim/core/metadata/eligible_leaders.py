"""Replicas that left the ISR and still have everything that was ever acknowledged: they may lead when nobody in the ISR can (KIP-966).

While an ISR is smaller than min.insync.replicas nothing is acknowledged to acks=all and the high watermark stands still; so whoever left it since
then lacks nothing. A broker that comes back from an unclean shutdown may have lost what it had, and is not eligible any more.
Source: KIP-966, org.apache.kafka.controller.PartitionChangeBuilder (maybePopulateTargetElr, maybeUpdateLastKnownLeader), 4.1 and 4.4.
"""

from collections.abc import Collection
from dataclasses import dataclass

from kraftsim.core.metadata.partition_registration import PartitionRegistration
from protocol.metadata.m05_partition_change import NO_LEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibleLeaderRules:
    """`min_in_sync_replicas`: as it holds for the topic, at most its replication factor. `shut_down_uncleanly`: who lost its place just now."""

    min_in_sync_replicas: int
    shut_down_uncleanly: Collection[int] = ()

    def left_over(self, partition: PartitionRegistration, isr: tuple[int, ...]) -> tuple[int, ...]:
        """Return who is eligible beside an ISR, by id: those who were before and those who leave the ISR, while it is below the minimum."""
        if len(isr) >= self.min_in_sync_replicas:
            return ()
        candidates = {*partition.eligible_leader_replicas, *partition.isr}
        return tuple(sorted(candidates.difference(isr, self.shut_down_uncleanly)))


def last_known_leader(partition: PartitionRegistration, leader: int) -> list[int] | None:
    """Return what becomes of the last known leader when another leader is named (or none): remembered, forgotten, or as it was (None)."""
    if leader == NO_LEADER and not partition.last_known_elr:
        return [partition.leader]
    return [] if leader >= 0 and partition.last_known_elr else None
