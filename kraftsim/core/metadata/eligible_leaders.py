"""Eligible leader replicas (ELR): replicas that left the ISR with all committed records, and may
lead if the ISR is empty (KIP-966).

While an ISR is below min.insync.replicas, acks=all produces are not acknowledged and the high
watermark does not advance, so a replica that leaves the ISR then lacks nothing. After an unclean
shutdown a broker may have lost records, and is not eligible any more.
Source: KIP-966, org.apache.kafka.controller.PartitionChangeBuilder (maybePopulateTargetElr,
maybeUpdateLastKnownLeader), 4.1 and 4.4.
"""

from collections.abc import Collection
from dataclasses import dataclass

from kraftsim.core.metadata.partition_registration import PartitionRegistration
from protocol.metadata.m05_partition_change import NO_LEADER


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
