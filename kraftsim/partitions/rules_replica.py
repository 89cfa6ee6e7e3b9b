"""A partition on one broker: its role and, on the leader, its followers and the ISR.

On a leader `leader_state` has the followers; on a follower `following` has the leader. What both
have, the log, is in `rules_replica_log`.
Source: kafka.cluster.Partition.
"""

from dataclasses import dataclass
from typing import ClassVar

from msgspec import Struct

from kraftsim.core.decision import Refusal
from kraftsim.partitions.events import (
    IsrChangeAsked,
    IsrChanged,
    LeaderElected,
    LeaderFollowed,
    LeadershipLost,
)
from kraftsim.partitions.rules_follower import Following
from kraftsim.partitions.rules_leader import (
    After,
    Eligible,
    IsrProposal,
    LeaderAndIsrState,
    LeaderRules,
    LeaderState,
)
from kraftsim.partitions.rules_log import NO_LEADER_EPOCH, LeaderEpochs
from kraftsim.partitions.rules_replica_log import ReplicaLog
from protocol.errors import ErrorCode


class FollowerFetch(Struct, frozen=True):
    """The effects of a follower's Fetch: whether the high watermark advanced, and the proposed ISR
    change.
    """

    has_moved: bool
    proposal: IsrProposal | None


@dataclass(frozen=True, slots=True)
class AgreedIsr:
    """The controller's response to a proposal: the current state of the partition."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class PartitionReplica(ReplicaLog):
    """The state of one partition on one broker."""

    __slots__ = ()

    leader_rules: ClassVar[type[LeaderState]] = LeaderState
    """The class of the leader's rules; bugs replace it."""

    # Roles
    # ----------------------------------------------------------------------------------------------

    def lead(
        self,
        leader_and_isr: LeaderAndIsrState,
        *,
        now_ms: int,
        rules: LeaderRules,
        eligible: Eligible,
    ) -> bool:
        """Become leader as the metadata says, and return whether the leader-epoch checkpoint must
        be rewritten. `now_ms` is the wall clock.

        In the current leader epoch the ISR or the replicas may change; older metadata is ignored.
        """
        former = self.leader_state
        if former is not None and leader_and_isr.leader_epoch == self.leader_epoch:
            former.rules = rules
            if former.learn(leader_and_isr, log_end_offset=self.log_end_offset, now_ms=now_ms):
                self._emit_in_sync(former)
            self.advance(now_ms)
            return False
        assert leader_and_isr.leader_epoch >= self.leader_epoch, (
            f"epoch {leader_and_isr.leader_epoch} after {self.leader_epoch}"
        )
        self.following = None
        self.leader_epoch = leader_and_isr.leader_epoch
        self.leader_state = self.leader_rules(
            self.replica_id,
            leader_and_isr,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
            rules=rules,
            eligible=eligible,
            followers=None if former is None else former.followers,
        )
        self._emit(
            LeaderElected(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=leader_and_isr.leader_epoch,
                next_offset=self.log_end_offset,
            )
        )
        self._emit_in_sync(self.leader_state)
        is_news = self.epochs.assign(leader_and_isr.leader_epoch, self.log_end_offset)
        self._emit_stable_offset()
        self.advance(now_ms)
        return is_news

    def epochs_after_move(self, of_records: LeaderEpochs) -> LeaderEpochs:
        """Return the leader epochs of a copy of the log that replaces it; `of_records` are those of
        the copied records.

        Epochs without records are kept, too: a follower that led one of them asks for it. Apache
        Kafka up to 4.4.0 loses them (KAFKA-20961).
        """
        return LeaderEpochs(self.epochs.starts)

    def follow(self, leader_id: int, leader_epoch: int) -> Following | None:
        """Become follower in a leader epoch; None if it already is.

        NO_LEADER (-1): there is no leader.
        """
        if (
            self.following is not None
            and self.leader_epoch == leader_epoch
            and self.following.leader_id == leader_id
        ):
            return None
        self.resign()
        assert leader_epoch >= self.leader_epoch, f"epoch {leader_epoch} after {self.leader_epoch}"
        self.leader_epoch = leader_epoch
        self.following = Following(self, leader_id=leader_id, leader_epoch=leader_epoch)
        self._emit(
            LeaderFollowed(
                topic=self.topic,
                partition=self.partition,
                leader_id=leader_id,
                leader_epoch=leader_epoch,
                log_end_offset=self.log_end_offset,
            )
        )
        return self.following

    def resign(self) -> None:
        """Become neither leader nor follower: no appends, no fetching."""
        if self.leader_state is not None:
            self._emit(
                LeadershipLost(
                    topic=self.topic, partition=self.partition, leader_epoch=self.leader_epoch
                )
            )
        self.leader_state = self.following = self._bound_at = None

    # Followers and the ISR
    # ----------------------------------------------------------------------------------------------

    def on_follower_fetch(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        *,
        now_ms: int,
        broker_epoch: int,
    ) -> FollowerFetch:
        """A follower fetched from an offset without divergence: it has all records below."""
        leader_state = self.leader_state
        assert leader_state is not None and replica_id in leader_state.followers, "validated before"
        has_advanced = leader_state.on_fetch(
            replica_id,
            fetch_offset,
            log_start_offset,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
        )
        proposal = leader_state.expansion(replica_id, self.high_watermark)
        return FollowerFetch(
            has_moved=has_advanced and self.advance(now_ms), proposal=self._proposed(proposal)
        )

    def on_same_fetch(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        *,
        now_ms: int,
        broker_epoch: int,
    ) -> bool:
        """Record that an in-sync follower fetches from the log end offset as before; False
        otherwise: call `on_follower_fetch`.
        """
        leader_state = self.leader_state
        follower = None if leader_state is None else leader_state.followers.get(replica_id)
        if (
            leader_state is None
            or follower is None
            or replica_id not in leader_state.in_sync
            or fetch_offset != self.log_end_offset
        ):
            return False
        if follower.log_end_offset != fetch_offset or follower.broker_epoch != broker_epoch:
            return False
        follower.on_fetch(
            fetch_offset,
            log_start_offset,
            leader_end_offset=fetch_offset,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
        )
        return True

    def shrinking(self, now_ms: int) -> IsrProposal | None:
        """Propose to remove followers that have lagged for too long from the ISR."""
        return (
            None
            if self.leader_state is None
            else self._proposed(self.leader_state.shrinking(self.log_end_offset, now_ms))
        )

    def on_isr_answer(
        self, proposal: IsrProposal, answer: AgreedIsr | ErrorCode, now_ms: int
    ) -> After:
        """Handle the controller's response to a proposal; with CHANGED the high watermark has
        advanced if possible.
        """
        leader_state = self.leader_state
        if leader_state is None:
            return After.NOTHING
        if isinstance(answer, ErrorCode):
            return leader_state.in_sync.on_error(proposal, answer)
        after = leader_state.in_sync.on_answer(
            proposal,
            leader_epoch=answer.leader_epoch,
            partition_epoch=answer.partition_epoch,
            isr=answer.isr,
        )
        if after is After.CHANGED:
            self._emit_in_sync(leader_state)
            self.advance(now_ms)
        return after

    def _proposed(self, proposal: IsrProposal | None) -> IsrProposal | None:
        if proposal is not None:
            self._emit(
                IsrChangeAsked(
                    topic=self.topic,
                    partition=self.partition,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    isr=",".join(str(each) for each in proposal.isr),
                )
            )
        return proposal

    def _emit_in_sync(self, leader_state: LeaderState) -> None:
        self._emit(
            IsrChanged(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=self.leader_epoch,
                partition_epoch=leader_state.in_sync.partition_epoch,
                isr=",".join(str(each) for each in leader_state.in_sync.agreed),
            )
        )

    def replicated(self, required_offset: int) -> ErrorCode | None:
        """Return the result of an acks=all append: None while it must wait.

        Done when all in-sync replicas have every record below required_offset.
        NOT_ENOUGH_REPLICAS_AFTER_APPEND: the ISR is too small by now.
        """
        if self.leader_state is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < required_offset:
            return None
        has_enough = len(self.leader_state.in_sync.maximal) >= self.leader_state.rules.min_in_sync
        return ErrorCode.NONE if has_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # Errors
    # ----------------------------------------------------------------------------------------------

    @property
    def is_high_watermark_unknown(self) -> bool:
        """Whether a new leader cannot know the high watermark yet (KIP-207)."""
        return (
            self.leader_state is not None
            and self.high_watermark < self.leader_state.epoch_start_offset
        )

    def refuse_follower(self, replica_id: int, current_leader_epoch: int) -> Refusal | None:
        """Return why a broker may not fetch from this one: it is not the leader, or the broker is
        not a replica as far as it knows.
        """
        refusal = self.refuse_epoch(current_leader_epoch)
        if refusal is not None or (
            self.leader_state is not None and replica_id in self.leader_state.followers
        ):
            return refusal
        carries_epoch = current_leader_epoch != NO_LEADER_EPOCH
        error = (
            ErrorCode.UNKNOWN_LEADER_EPOCH if carries_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        return Refusal(error, f"broker {replica_id} is not a replica in this broker's metadata")

    def refuse_epoch(
        self, current_leader_epoch: int, *, needs_leader: bool = True
    ) -> Refusal | None:
        """Return why a request with another leader epoch, or one that needs the leader, is refused.
        -1 is no epoch.
        """
        if current_leader_epoch != NO_LEADER_EPOCH and self.leader_epoch != NO_LEADER_EPOCH:
            if current_leader_epoch < self.leader_epoch:
                return Refusal(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"epoch {current_leader_epoch} is fenced, the current one is "
                    f"{self.leader_epoch}",
                )
            if current_leader_epoch > self.leader_epoch:
                return Refusal(
                    ErrorCode.UNKNOWN_LEADER_EPOCH,
                    f"epoch {current_leader_epoch} is unknown, the current one is "
                    f"{self.leader_epoch}",
                )
        if self.leader_state is not None or (self.following is not None and not needs_leader):
            return None
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
