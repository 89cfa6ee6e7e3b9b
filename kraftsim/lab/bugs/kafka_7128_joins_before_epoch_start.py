"""A replica joins the ISR as soon as it has reached the high watermark, even below the leader
epoch's start offset.

The high watermark of a new leader lags behind what its predecessor had acknowledged. A replica that
joins in between lacks acknowledged records; if the leader fails before the replica has them, the
replica is elected, and they are lost.

Source: KAFKA-7128, fixed by comparing with the leader epoch's start offset, too
(Partition.isFollowerInSync).
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.partitions.rules_leader import LeaderState
from kraftsim.partitions.rules_replica import PartitionReplica


class JoinsAtHighWatermark(LeaderState):
    """Compares with the high watermark only."""

    __slots__ = ()

    def _joins_at(self, high_watermark: int) -> int:
        # right: or where the leader's log ended when its epoch began, if that is further
        return high_watermark


class LeadsWithoutEpochStart(PartitionReplica):
    """Leads as before 2.0.1."""

    __slots__ = ()

    leader_rules = JoinsAtHighWatermark


BUG = Bug(
    name="KAFKA-7128",
    title="a replica joins the ISR before it reaches the leader epoch's start offset",
    fixed_in=("1.1.2", "2.0.1", "2.1.0"),
    swap=lambda parts: parts.replacing(partition_replica=LeadsWithoutEpochStart),
    scenario="partition_leader_failover_idempotent",
    caught_by=(
        "isr-joined-after-epoch-start",
        "partition-leader-completeness",
        "partition-high-watermark-replicated",
        "acknowledged-records-on-replicas",
        "replicas-equal",
    ),
)
