"""A follower truncates its log to its own high watermark whenever it gets a new leader, instead of
asking where the logs diverge.

Its high watermark lags one Fetch behind the leader's. An in-sync replica has an acknowledged
record, truncates it to fetch it again, and is elected before it has done so.

Source: KAFKA-1211, fixed by leader epochs in the log (KIP-101); KIP-279.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.partitions.rules_follower import FetchWish, Following, OffsetWish, TruncateTo
from kraftsim.partitions.rules_log import NO_LEADER_EPOCH
from kraftsim.partitions.rules_replica import PartitionReplica


class TruncatesToHighWatermark(Following):
    """Ignores epochs."""

    __slots__ = ()

    def begin(self) -> TruncateTo | None:
        """Truncate everything above the high watermark."""
        return (
            TruncateTo(self._log.high_watermark)
            if self._log.log_end_offset > self._log.high_watermark
            else None
        )  # right: ask for the epoch's end

    def wish(self) -> FetchWish | OffsetWish | None:
        """Fetch without an epoch, so that the leader does not check for divergence."""
        wish = super().wish()
        if not isinstance(wish, FetchWish):
            return wish
        return FetchWish(
            fetch_offset=wish.fetch_offset,
            last_fetched_epoch=NO_LEADER_EPOCH,
            leader_epoch=wish.leader_epoch,
            log_start_offset=wish.log_start_offset,
        )


class FollowsWithoutEpochs(PartitionReplica):
    """Follows as before 0.11."""

    __slots__ = ()

    def follow(self, leader_id: int, leader_epoch: int) -> Following | None:
        """Follow a leader without OffsetsForLeaderEpoch."""
        if super().follow(leader_id, leader_epoch) is None:
            return None
        self.following = TruncatesToHighWatermark(
            self, leader_id=leader_id, leader_epoch=leader_epoch
        )
        return self.following


BUG = Bug(
    name="KAFKA-1211",
    title="followers truncate to the high watermark instead of by leader epochs",
    fixed_in=("0.11.0.0",),
    swap=lambda parts: parts.replacing(partition_replica=FollowsWithoutEpochs),
    scenario="partition_leader_failover_idempotent",
    caught_by=(
        "partition-leader-completeness",
        "partition-log-matching",
        "partition-high-watermark-replicated",
        "acknowledged-records-on-replicas",
        "replicas-equal",
    ),
)
