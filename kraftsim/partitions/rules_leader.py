"""A leader's side of replication: the progress of its followers, the ISR, and the high watermark;
and which follower a consumer should read from.

Source: KIP-392, KIP-497, KIP-966, kafka.cluster.{Partition, Replica, CommittedPartitionState,
PendingExpandIsr, PendingShrinkIsr}.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from protocol.errors import ErrorCode

UNCHECKED_BROKER_EPOCH: Final = -1

TAKEN_BACK: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller did not change the ISR, and will not: the leader reverts to the committed set."""
SETTLED_BY_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller's state differs, and the metadata will have it: until then the proposal stays
pending, as it may have been accepted.
"""


# --------------------------------------------------------------------------------------------------
# The ISR: the committed set, and one pending change
#
# A replica that is being added counts at once for the high watermark, as the controller may have
# accepted already. One that is being removed counts until the controller has accepted: no record is
# committed that a leader elected meanwhile could lack.
# Source: Partition.{prepareIsrExpand, handleAlterPartitionError}.


class After(Enum):
    """The next step after the controller's response."""

    NOTHING = auto()
    RETRY = auto()
    CHANGED = auto()
    """The committed ISR changed: the high watermark may advance."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """The AlterPartition request: this ISR, in this order, if the partition is still at these
    epochs.

    `broker_epochs` correspond to `isr`.
    """

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class InSyncReplicas:
    """The ISR of one leader epoch."""

    __slots__ = ("agreed", "leader_epoch", "partition_epoch", "proposal")

    def __init__(self, isr: Iterable[int], *, leader_epoch: int, partition_epoch: int) -> None:
        self.agreed = tuple(isr)
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.proposal: IsrProposal | None = None

    def __contains__(self, replica_id: int) -> bool:
        return replica_id in self.agreed

    def __len__(self) -> int:
        return len(self.agreed)

    @property
    def maximal(self) -> tuple[int, ...]:
        """The maximal ISR: all replicas that may be in the ISR by now."""
        return (
            self.agreed
            if self.proposal is None
            else (*self.agreed, *(each for each in self.proposal.isr if each not in self.agreed))
        )

    def propose(self, isr: Iterable[int], broker_epochs: Iterable[int]) -> IsrProposal:
        """Propose another ISR. One change at a time."""
        assert self.proposal is None, f"{self.proposal} is pending"
        self.proposal = IsrProposal(
            tuple(isr), tuple(broker_epochs), self.leader_epoch, self.partition_epoch
        )
        return self.proposal

    def take(self, isr: Iterable[int], partition_epoch: int) -> bool:
        """Apply the ISR of the metadata; older states are ignored. Return whether it changed."""
        if partition_epoch < self.partition_epoch or (
            partition_epoch == self.partition_epoch and self.proposal is None
        ):
            return False
        self.agreed, self.partition_epoch, self.proposal = tuple(isr), partition_epoch, None
        return True

    def on_answer(
        self, proposal: IsrProposal, *, leader_epoch: int, partition_epoch: int, isr: Iterable[int]
    ) -> After:
        """The controller accepted: the current epochs and ISR."""
        if (
            self.proposal is not proposal
            or leader_epoch != self.leader_epoch
            or partition_epoch < self.partition_epoch
        ):
            return After.NOTHING
        self.agreed, self.partition_epoch, self.proposal = tuple(isr), partition_epoch, None
        return After.CHANGED

    def on_error(self, proposal: IsrProposal, error: ErrorCode) -> After:
        """The controller refused, or is not reachable."""
        if self.proposal is not proposal or error in SETTLED_BY_METADATA:
            return After.NOTHING
        if error in TAKEN_BACK:
            self.proposal = None
            return After.NOTHING
        return After.RETRY


# --------------------------------------------------------------------------------------------------
# One follower: its log end offset, and when it was last caught up
#
# A follower is caught up when it fetches from the log end offset. It remains so while it keeps
# fetching from the end as of its previous Fetch, as the end of a growing log is never reached.

UNKNOWN_OFFSET: Final = -1
NO_BROKER_EPOCH: Final = -1
NEVER_MS: Final = 0


class FollowerProgress:
    """One follower, for one leader epoch. Times are the leader's wall clock in milliseconds."""

    __slots__ = (
        "_fetched_at_ms",
        "_leader_end_offset",
        "broker_epoch",
        "caught_up_ms",
        "log_end_offset",
        "log_start_offset",
        "replica_id",
    )

    def __init__(
        self, replica_id: int, *, now_ms: int, leader_end_offset: int, is_in_sync: bool
    ) -> None:
        self.replica_id = replica_id
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.caught_up_ms = NEVER_MS
        self._leader_end_offset = leader_end_offset
        self._fetched_at_ms = NEVER_MS
        self.begin_epoch(now_ms=now_ms, leader_end_offset=leader_end_offset, is_in_sync=is_in_sync)

    def begin_epoch(self, *, now_ms: int, leader_end_offset: int, is_in_sync: bool) -> None:
        """A new leader epoch of the same leader: an in-sync follower counts as just caught up."""
        self.caught_up_ms = self._fetched_at_ms = now_ms if is_in_sync else NEVER_MS
        self._leader_end_offset = leader_end_offset

    def on_fetch(
        self,
        fetch_offset: int,
        log_start_offset: int,
        *,
        leader_end_offset: int,
        now_ms: int,
        broker_epoch: int,
    ) -> None:
        """The follower fetched from an offset: it has all records below."""
        if fetch_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif fetch_offset >= self._leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_at_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._leader_end_offset = max(leader_end_offset, self._leader_end_offset)
        self._fetched_at_ms = now_ms

    def has_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """Return whether it is caught up, or was within the lag time."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_max_ms


Eligible = Callable[[int, int], bool]
"""(replica, the broker epoch of its fetches) -> whether the metadata allows it to join: unfenced,
not in controlled shutdown, same incarnation.
"""


# --------------------------------------------------------------------------------------------------
# The leader of one epoch
#
# The high watermark is the lowest end offset of the maximal ISR and of caught-up replicas about to
# join: all records below it are on all of them. It never decreases, and since 3.7 it does not
# advance while the ISR is below min.insync.replicas (KIP-966).
# Source: Partition.{makeLeader, updateFollowerFetchState, maybeExpandIsr, maybeShrinkIsr,
# maybeIncrementLeaderHW, isUnderMinIsr}.


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRules:
    """`lag_max_ms`: replica.lag.time.max.ms.

    `min_in_sync`: effective for this partition. `waits_for_min_in_sync`: the rule since 3.7.
    """

    lag_max_ms: int = 30_000
    min_in_sync: int = 1
    waits_for_min_in_sync: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrState:
    """The state of a partition in the metadata, for its leader."""

    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class LeaderState:
    """From becoming leader until another leader is elected.

    A new leader epoch of the same leader keeps the followers.
    """

    __slots__ = ("_eligible", "_own_id", "epoch_start_offset", "followers", "in_sync", "rules")

    def __init__(
        self,
        own_id: int,
        leader_and_isr: LeaderAndIsrState,
        *,
        log_end_offset: int,
        now_ms: int,
        rules: LeaderRules,
        eligible: Eligible,
        followers: Mapping[int, FollowerProgress] | None = None,
    ) -> None:
        self._own_id = own_id
        self._eligible = eligible
        self.rules = rules
        self.epoch_start_offset = log_end_offset
        """The log end offset at the start of this leader epoch: a follower must reach it to join
        the ISR.
        """
        self.in_sync = InSyncReplicas(
            leader_and_isr.isr,
            leader_epoch=leader_and_isr.leader_epoch,
            partition_epoch=leader_and_isr.partition_epoch,
        )
        self.followers: dict[int, FollowerProgress] = {}
        for replica_id in leader_and_isr.replicas:
            if replica_id == own_id:
                continue
            known = (followers or {}).get(replica_id)
            is_in_sync = replica_id in leader_and_isr.isr
            if known is None:
                known = FollowerProgress(
                    replica_id,
                    now_ms=now_ms,
                    leader_end_offset=log_end_offset,
                    is_in_sync=is_in_sync,
                )
            else:
                known.begin_epoch(
                    now_ms=now_ms, leader_end_offset=log_end_offset, is_in_sync=is_in_sync
                )
            self.followers[replica_id] = known

    @property
    def is_alone(self) -> bool:
        """Whether there is no follower and the ISR suffices: appends are committed at once."""
        return not self.followers and len(self.in_sync.agreed) >= self.rules.min_in_sync

    @property
    def is_under_min_in_sync(self) -> bool:
        """Whether the ISR is below min.insync.replicas: acks=all is refused."""
        return len(self.in_sync) < self.rules.min_in_sync

    def learn(self, leader_and_isr: LeaderAndIsrState, *, log_end_offset: int, now_ms: int) -> bool:
        """Apply the metadata of this leader epoch: another ISR or other replicas.

        Return whether the ISR changed.
        """
        if leader_and_isr.partition_epoch < self.in_sync.partition_epoch:
            return False
        for replica_id in leader_and_isr.replicas:
            if replica_id != self._own_id and replica_id not in self.followers:
                is_in_sync = replica_id in leader_and_isr.isr
                self.followers[replica_id] = FollowerProgress(
                    replica_id,
                    now_ms=now_ms,
                    leader_end_offset=log_end_offset,
                    is_in_sync=is_in_sync,
                )
        for replica_id in [each for each in self.followers if each not in leader_and_isr.replicas]:
            del self.followers[replica_id]
        return self.in_sync.take(leader_and_isr.isr, leader_and_isr.partition_epoch)

    def on_fetch(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        *,
        log_end_offset: int,
        now_ms: int,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> bool:
        """A follower fetched from an offset.

        Return whether its end offset changed, so that the high watermark may advance.

        The replica is one of `followers`; others were refused before (NOT_LEADER_OR_FOLLOWER or
        UNKNOWN_LEADER_EPOCH).
        """
        follower = self.followers[replica_id]
        former_end_offset = follower.log_end_offset
        follower.on_fetch(
            fetch_offset,
            log_start_offset,
            leader_end_offset=log_end_offset,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
        )
        return follower.log_end_offset != former_end_offset

    def high_watermark(self, present: int, log_end_offset: int, now_ms: int) -> int:
        """Return the current high watermark; never below `present`."""
        if self.rules.waits_for_min_in_sync and self.is_under_min_in_sync:
            return present
        reached = log_end_offset
        maximal = self.in_sync.maximal
        for follower in self.followers.values():
            if follower.log_end_offset >= reached:
                continue
            if follower.replica_id in maximal or self._is_about_to_join(
                follower, log_end_offset, now_ms
            ):
                reached = follower.log_end_offset
        return max(present, reached)

    def low_watermark(self, own_log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """Return the lowest log start offset of the live replicas: DeleteRecords is complete when
        it reaches the requested offset.
        """
        starts = [
            follower.log_start_offset
            for follower in self.followers.values()
            if is_alive(follower.replica_id)
        ]
        return min([own_log_start_offset, *starts])

    def replicas_having(self, offset: int) -> int:
        """Return how many in-sync replicas, the leader included, are known to have all records
        below an offset.
        """
        return 1 + sum(
            follower.log_end_offset >= offset
            for follower in self.followers.values()
            if follower.replica_id in self.in_sync
        )

    # ISR
    # ----------------------------------------------------------------------------------------------

    def expansion(self, replica_id: int, high_watermark: int) -> IsrProposal | None:
        """Propose to add a follower that has reached the high watermark and the start of this
        leader epoch.
        """
        follower = self.followers.get(replica_id)
        if follower is None or self.in_sync.proposal is not None or replica_id in self.in_sync:
            return None
        has_enough = follower.log_end_offset >= self._joins_at(high_watermark)
        if not has_enough or not self._eligible(replica_id, follower.broker_epoch):
            return None
        return self._propose((*self.in_sync.agreed, replica_id))

    def shrinking(self, log_end_offset: int, now_ms: int) -> IsrProposal | None:
        """Propose to remove the followers that have lagged for too long.

        Called every half of replica.lag.time.max.ms.
        """
        if self.in_sync.proposal is not None:
            return None
        late = {
            replica_id
            for replica_id, follower in self.followers.items()
            if replica_id in self.in_sync
            and not follower.has_caught_up(log_end_offset, now_ms, self.rules.lag_max_ms)
        }
        return (
            self._propose(tuple(each for each in self.in_sync.agreed if each not in late))
            if late
            else None
        )

    def _joins_at(self, high_watermark: int) -> int:
        """Return the end offset that a follower must reach to join.

        Source: KAFKA-7128, Partition.isFollowerInSync.
        """
        return max(high_watermark, self.epoch_start_offset)

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        return self.in_sync.propose(isr, (self._epoch_of(each) for each in isr))

    def _epoch_of(self, replica_id: int) -> int:
        """Return the broker epoch of a follower's last fetch; the caller sets the leader's own."""
        follower = self.followers.get(replica_id)
        return NO_BROKER_EPOCH if follower is None else follower.broker_epoch

    def _is_about_to_join(
        self, follower: FollowerProgress, log_end_offset: int, now_ms: int
    ) -> bool:
        has_caught_up = follower.log_end_offset != UNKNOWN_OFFSET and follower.has_caught_up(
            log_end_offset, now_ms, self.rules.lag_max_ms
        )
        return has_caught_up and self._eligible(follower.replica_id, follower.broker_epoch)


# --------------------------------------------------------------------------------------------------
# The preferred read replica of a consumer: one in its own rack that has the offset (KIP-392)
#
# Source: RackAwareReplicaSelector, kafka.server.ReplicaManager.findPreferredReadReplica.

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def nearest_replica(
    leader_state: LeaderState,
    *,
    own_rack: str | None,
    client_rack: str,
    rack_of: Callable[[int], str | None],
    fetch_offset: int,
    now_ms: int,
) -> int | None:
    """Return the follower that a consumer should read from; None for the leader.

    Only in-sync followers with the offset are candidates: the one with the highest end offset, then
    the one caught up last, then the one with the highest id.
    """
    if not client_rack or own_rack == client_rack:
        return None
    near = [
        (follower.log_end_offset, follower.caught_up_ms - now_ms, replica_id)
        for replica_id, follower in leader_state.followers.items()
        if replica_id in leader_state.in_sync
        and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        and rack_of(replica_id) == client_rack
    ]
    return max(near)[2] if near else None
