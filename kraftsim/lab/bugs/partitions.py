"""Bugs of replication, and of what readers of a partition see.

A record is safe once all in-sync replicas have it: so a follower may truncate only what its leader
does not have, and a replica may join the ISR only once it has all that was acknowledged. A reader
may see what is below the high watermark, and a read_committed one what is below the last stable
offset, together with the transactions that were aborted there.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.partitions.fetch_responses import AbortedLists
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.rules_follower import FetchWish, Following, OffsetWish, TruncateTo
from kraftsim.partitions.rules_leader import LeaderState
from kraftsim.partitions.rules_log import NO_LEADER_EPOCH, LeaderEpochs
from kraftsim.partitions.rules_replica import PartitionReplica
from protocol.messages.k01_fetch import AbortedTransaction

KAFKA_1211 = Bug(
    name="KAFKA-1211",
    title="followers truncate to the high watermark instead of by leader epochs",
    about="""A follower truncates its log to its own high watermark whenever it gets a new
        leader, instead of asking where the logs diverge.

        Its high watermark lags one Fetch behind the leader's. An in-sync replica has an
        acknowledged record, truncates it to fetch it again, and is elected before it has done so.

        Source: KAFKA-1211, fixed by leader epochs in the log (KIP-101); KIP-279.
        """,
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


KAFKA_7128 = Bug(
    name="KAFKA-7128",
    title="a replica joins the ISR before it reaches the leader epoch's start offset",
    about="""A replica joins the ISR as soon as it has reached the high watermark, even below
        the leader epoch's start offset.

        The high watermark of a new leader lags behind what its predecessor had acknowledged. A
        replica that joins in between lacks acknowledged records; if the leader fails before the
        replica has them, the replica is elected, and they are lost.

        Source: KAFKA-7128, fixed by comparing with the leader epoch's start offset, too
        (Partition.isFollowerInSync).
        """,
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


KAFKA_5376 = Bug(
    name="KAFKA-5376",
    title="a delayed fetch returns no aborted transactions",
    about="""A delayed fetch is answered without the list of aborted transactions.

        A read_committed consumer waits at the end of a partition; a transaction is aborted, and its
        records are returned without the aborted transaction that would make the consumer skip them.

        Source: KAFKA-5376, fixed by returning the list when a delayed fetch completes
        (DelayedFetch).
        """,
    fixed_in=("0.11.0.0",),
    swap=lambda parts: parts.replacing(aborted_lists=OmittedAfterDelay),
    scenario="exactly_once_under_faults",
    caught_by=("read-committed-isolation", "transactions-atomic"),
)


class OmittedAfterDelay(AbortedLists):
    """Returns aborted transactions only for fetches that complete at once."""

    __slots__ = ()

    def of(
        self, hosted: HostedPartition, first_offset: int, end_offset: int, *, has_waited: bool
    ) -> list[AbortedTransaction] | None:
        """Return the aborted transactions if the fetch was not delayed."""
        return (
            []
            if has_waited
            else super().of(hosted, first_offset, end_offset, has_waited=has_waited)
        )


KAFKA_9807 = Bug(
    name="KAFKA-9807",
    title="the last stable offset is computed from two reads of the high watermark",
    about="""The last stable offset is computed from two reads of the high watermark, which may
        advance past an open transaction in between.

        The first read finds no open transaction below it, the second one is returned:
        read_committed consumers see undecided records.

        Source: KAFKA-9807, fixed by reading once (UnifiedLog.fetchLastStableOffsetMetadata).
        """,
    fixed_in=("2.5.0", "2.6.0"),
    swap=lambda parts: parts.replacing(partition_replica=ReadsTwice),
    scenario="exactly_once_under_faults",
    caught_by=("last-stable-offset-before-open-transactions", "read-committed-isolation"),
)


class ReadsTwice(PartitionReplica):
    """Compares with the high watermark that was read earlier, and returns the current one."""

    __slots__ = ("_read_before",)

    _read_before: int

    @property
    def last_stable_offset(self) -> int:
        """The end offset for read_committed consumers."""
        before, now = getattr(self, "_read_before", self.high_watermark), self.high_watermark
        self._read_before = now
        unstable = self.producer_state.first_unstable_offset
        return (
            now if unstable is None or unstable >= before else max(unstable, self.log_start_offset)
        )  # right: compare with `now`


KAFKA_20961 = Bug(
    name="KAFKA-20961",
    title="a replica that moves to another log directory loses leader epochs without records",
    about="""The log in the new directory has the leader epochs of its records only.

        No record was written in the last epochs. A follower that led one of them asks the leader
        for it, gets OFFSET_OUT_OF_RANGE, and retries until a record is written: it is not in
        sync, and must not be elected.

        Source: KAFKA-20961, KAFKA-15608; present in Apache Kafka 4.4.0 (docs/replayed-bugs.md),
        where the future replica's epochs are those that LeaderEpochFileCache.assign gets from
        appended batches (ReplicaAlterLogDirsThread).
        """,
    fixed_in=("after 4.4.0",),
    swap=lambda parts: parts.replacing(partition_replica=MovesEpochsOfRecords),
    scenario="quiet_replicas_move",
    caught_by=("recovers-after-heal",),
)


class MovesEpochsOfRecords(PartitionReplica):
    """Copies no epochs besides those of records."""

    __slots__ = ()

    def epochs_after_move(self, of_records: LeaderEpochs) -> LeaderEpochs:
        """Return the epochs of records; right: all of them."""
        return of_records


BUGS = (
    KAFKA_1211,
    KAFKA_7128,
    KAFKA_5376,
    KAFKA_9807,
    KAFKA_20961,
)
