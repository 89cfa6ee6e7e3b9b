"""A partition on one broker: appends, visibility to readers, and replication.

`decide_append` validates, the caller writes the bytes, `apply_append` updates the state: a failed
write leaves no trace (KAFKA-6683). On a leader `leader_state` has the followers; on a follower
`following` has the leader. Without followers a record is below the high watermark at once (as in
Kafka, before it is flushed).
Source: kafka.cluster.Partition, UnifiedLog.append.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.partitions.rules_append import (
    ALL_REPLICAS,
    AppendDecision,
    AppendRules,
    EndMarker,
    LogPlace,
    NothingToAppend,
    UncheckedRecords,
    decide_batch,
    decide_records,
    end_marker_of,
    placed,
    refuse_acks,
    refuse_size_in_log,
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
from kraftsim.partitions.rules_replica_events import ReplicaEvents
from kraftsim.producer_state.rules_entries import Duplicate
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch
from protocol.storage.indexes import AbortedTransaction


@dataclass(frozen=True, slots=True)
class FollowerFetch:
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


NO_REMOTE_OFFSET: Final = -1
HIGH_WATERMARK: Final = -1
"""As an offset to delete up to."""


class PartitionReplica:
    """The state of one partition on one broker.

    `rules` may be replaced when the topic's configuration changes.

    `high_watermark` is the checkpointed one; None for a new log. `replica_id` is the broker's id.
    """

    __slots__ = (
        "_bound_at",
        "_events",
        "_name",
        "epochs",
        "following",
        "high_watermark",
        "is_tiered",
        "leader_epoch",
        "leader_state",
        "local_start_offset",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producer_state",
        "remote_end_offset",
        "replica_id",
        "rules",
        "topic",
    )

    leader_rules: ClassVar[type[LeaderState]] = LeaderState
    """The class of the leader's rules; bugs replace it."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        replica_id: int,
        log_start_offset: int,
        log_end_offset: int,
        epochs: LeaderEpochs,
        producer_state: ProducerStateManager,
        rules: AppendRules,
        emit: Callable[[Event], None],
        high_watermark: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.replica_id = replica_id
        self._name = f"{topic}-{partition}"
        self.log_start_offset = log_start_offset
        self.local_start_offset = log_start_offset
        """The first offset in the local log; of a tiered log, earlier records are in remote storage
        only.
        """
        self.log_end_offset = log_end_offset
        self.high_watermark = min(
            max(log_start_offset if high_watermark is None else high_watermark, log_start_offset),
            log_end_offset,
        )
        self.epochs = epochs
        self.producer_state = producer_state
        producer_state.on_high_watermark(self.high_watermark)
        self.rules = rules
        self.leader_epoch = NO_LEADER_EPOCH
        """The current leader epoch, of this or another leader."""
        self.leader_state: LeaderState | None = None
        self.following: Following | None = None
        self._bound_at: int | None = None
        """The last stable offset last emitted, while a transaction limits it."""
        self.is_tiered = False
        self.remote_end_offset = NO_REMOTE_OFFSET
        """The highest offset known to be in remote storage."""
        self._events = ReplicaEvents(topic, partition, emit)

    @property
    def is_leader(self) -> bool:
        """Whether this broker is the leader."""
        return self.leader_state is not None

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: the start of the oldest open or unreplicated transaction, or the
        high watermark.
        """
        high_watermark, unstable = self.high_watermark, self.producer_state.first_unstable_offset
        return (
            high_watermark
            if unstable is None
            else max(min(unstable, high_watermark), self.log_start_offset)
        )

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
                self._events.in_sync(former, self.leader_epoch)
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
        self._events.elected(leader_and_isr.leader_epoch, self.log_end_offset)
        self._events.in_sync(self.leader_state, self.leader_epoch)
        is_news = self.epochs.assign(leader_and_isr.leader_epoch, self.log_end_offset)
        self._emit_stable_offset()
        self.advance(now_ms)
        return is_news

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
        self._events.follows(leader_id, leader_epoch, self.log_end_offset)
        return self.following

    def resign(self) -> None:
        """Become neither leader nor follower: no appends, no fetching."""
        if self.leader_state is not None:
            self._events.leadership_lost(self.leader_epoch)
        self.leader_state = self.following = self._bound_at = None

    def advance(self, now_ms: int) -> bool:
        """Advance the leader's high watermark if possible, and return whether it moved."""
        assert self.leader_state is not None, "only a leader advances it itself"
        reached = self.leader_state.high_watermark(self.high_watermark, self.log_end_offset, now_ms)
        if reached == self.high_watermark:
            return False
        if self.leader_state.is_alone:
            self._take_high_watermark(reached)
        else:
            self._move_high_watermark(reached)
        return True

    def advance_alone(self, now_ms: int) -> None:
        """Commit an append if no other replica may be in sync, as no follower Fetch will.

        Source: maybeIncrementLeaderHW.
        """
        leader_state = self.leader_state
        if (
            leader_state is not None
            and not leader_state.is_alone
            and len(leader_state.in_sync.maximal) == 1
        ):
            self.advance(now_ms)

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
            self._events.in_sync(leader_state, self.leader_epoch)
            self.advance(now_ms)
        return after

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

    # Replication
    # ----------------------------------------------------------------------------------------------

    def append_replicated(self, batch: RecordBatch) -> AbortedTransaction | None:
        """Record a replicated batch. Returns the transaction index entry to add, if any."""
        assert batch.base_offset >= self.log_end_offset, (
            f"{batch.base_offset} is below the log end offset, {self.log_end_offset}"
        )
        aborted = self.producer_state.replay(batch)
        self.log_end_offset = batch.last_offset + 1
        self._events.replicated(batch)
        if batch.is_control:
            marker = end_marker_of(batch)
            if marker is not None:
                self._events.ended(marker, batch.last_offset, on_leader=False)
        return aborted

    def on_replicated(self, leader_high_watermark: int) -> bool:
        """Set the high watermark to the leader's, within this log, and return whether it moved.

        It may decrease with a new leader.
        """
        reached = min(max(leader_high_watermark, self.log_start_offset), self.log_end_offset)
        if reached == self.high_watermark:
            return False
        self._move_high_watermark(reached)
        return True

    def advance_log_start(self, log_start_offset: int, reason: str) -> bool:
        """Advance the log start offset, and return whether it moved; epochs and visibility follow.

        It stays within the log.
        """
        if not self.log_start_offset < log_start_offset <= self.log_end_offset:
            return False
        self.log_start_offset = log_start_offset
        self.local_start_offset = max(self.local_start_offset, log_start_offset)
        self.epochs.advance_log_start(log_start_offset)
        self._events.log_start_moved(log_start_offset, reason)
        self.producer_state.on_log_start(log_start_offset)
        self._take_high_watermark(max(self.high_watermark, log_start_offset))
        return True

    def set_local_start(self, local_start_offset: int) -> None:
        """Local segments of a tiered log were deleted: records below this offset are in remote
        storage only.
        """
        if self.is_tiered and local_start_offset > self.local_start_offset:
            self._events.local_start_moved(local_start_offset, self.log_start_offset)
        self.local_start_offset = max(self.local_start_offset, local_start_offset)

    def on_rebuilt(self, offset: int) -> None:
        """The log restarts after the end of remote storage, and so do the high watermark and the
        local start offset.
        """
        self.local_start_offset = offset
        self.remote_end_offset = max(self.remote_end_offset, offset - 1)
        self._take_high_watermark(max(self.high_watermark, offset))

    def decide_deletion(self, offset: int, *, is_deleted: bool) -> int | Refusal:
        """Return the log start offset after deleting all records below an offset (-1: below the
        high watermark), DeleteRecords.

        Fails with NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION for a topic without cleanup.policy
        delete, or OFFSET_OUT_OF_RANGE.
        """
        if self.leader_state is None:
            return Refusal(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition"
            )
        if not is_deleted:
            return Refusal(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy does not delete")
        wanted = self.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= wanted <= self.high_watermark:
            return Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset}, the high watermark is {self.high_watermark}",
            )
        return wanted

    def on_truncated(
        self, log_start_offset: int, log_end_offset: int, local_start_offset: int | None = None
    ) -> None:
        """Record that the log was truncated or restarted; the caller has truncated the epochs, and
        rebuilds the producer state.
        """
        self._events.truncated(
            self.leader_epoch, self.log_end_offset, log_end_offset, self.high_watermark
        )
        self.log_start_offset, self.log_end_offset = log_start_offset, log_end_offset
        self.local_start_offset = max(
            self.local_start_offset if local_start_offset is None else local_start_offset,
            log_start_offset,
        )
        self.high_watermark = min(max(self.high_watermark, log_start_offset), log_end_offset)
        if self.remote_end_offset >= log_end_offset:
            # remote segments above the end may have diverged: look them up again
            self.remote_end_offset = NO_REMOTE_OFFSET

    # Appends
    # ----------------------------------------------------------------------------------------------

    def decide_append(
        self, batch: RecordBatch, acks: int, now_ms: int, guard: int | None = None
    ) -> AppendDecision | Duplicate | Refusal:
        """Validate a client's batch (extracted by `client_batch`).

        `now_ms` is the wall clock, `guard` is from `begin_verification`.

        A Duplicate is acknowledged with its first offset and append time, and nothing is written. A
        Refusal has INVALID_REQUIRED_ACKS, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, a code of
        `checked_batch`, or one of producer state. Both emit events here.
        """
        decision = self._refuse_replicas(acks) or decide_batch(
            batch, self.rules, self._next_place(now_ms)
        )
        if isinstance(decision, Refusal):
            return self._refused(batch, decision)
        return self._unless_duplicate(decision, guard)

    def decide_append_of_any_format(
        self, records: UncheckedRecords, acks: int, now_ms: int
    ) -> AppendDecision | Duplicate | NothingToAppend | Refusal:
        """Validate the records of a Produce request before version 3, which are converted to format
        2. Otherwise like `decide_append`.

        Also fails with UNKNOWN_SERVER_ERROR, for records that cannot be converted.
        """
        decision = self._refuse_replicas(acks) or decide_records(
            records, self.rules, self._next_place(now_ms)
        )
        if isinstance(decision, Refusal):
            return self._refused(None, decision)
        return (
            self._unless_duplicate(decision) if isinstance(decision, AppendDecision) else decision
        )

    def _next_place(self, now_ms: int) -> LogPlace:
        return LogPlace(self.log_end_offset, self.leader_epoch, now_ms, self._name)

    def _unless_duplicate(
        self, decision: AppendDecision, guard: int | None = None
    ) -> AppendDecision | Duplicate | Refusal:
        verdict = self.producer_state.check(decision.batch, guard)
        if isinstance(verdict, Refusal):
            return self._refused(decision.batch, verdict)
        if isinstance(verdict, Duplicate):
            self._events.duplicate(decision.batch, verdict)
            return verdict
        return decision

    def decide_coordinated(
        self, batch: RecordBatch, acks: int, now_ms: int, guard: int | None = None
    ) -> AppendDecision | Refusal:
        """Validate a batch of a coordinator on this broker: its producer is checked, its sequences
        are not.

        Fails with the codes of `_refuse_replicas`, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE.
        """
        refusal = (
            self._refuse_replicas(acks)
            or refuse_size_in_log(batch, self.rules)
            or self.producer_state.check_coordinated(batch, guard)
        )
        return (
            placed(batch, self.rules, self._next_place(now_ms))
            if refusal is None
            else self._refused(batch, refusal)
        )

    def decide_marker(self, marker: EndMarker, now_ms: int) -> AppendDecision | Refusal:
        """Validate a transaction marker; one without a transaction here is written like any other.

        `now_ms` is the wall clock.

        Fails with NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED.
        """
        refusal = self._refuse_replicas(ALL_REPLICAS) or self.producer_state.check_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        if refusal is None:
            return placed(marker.batch(now_ms), self.rules, self._next_place(now_ms), marker)
        self._events.refused_marker(marker, refusal)
        return refusal

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        adds: bool = False,
    ) -> int | Refusal | None:
        """Return the guard of an append that needs verification by the coordinator; None if it does
        not.

        Also fails with NOT_LEADER_OR_FOLLOWER; otherwise like producer state.
        """
        if self.leader_state is None:
            return Refusal(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition"
            )
        return self.producer_state.begin_verification(
            producer_id, producer_epoch, base_sequence, now_ms, adds=adds
        )

    def apply_append(self, decision: AppendDecision) -> AbortedTransaction | None:
        """Record that a decided batch is written.

        Returns the transaction index entry to add, if any.
        """
        assert decision.first_offset == self.log_end_offset, (
            f"decided for {decision.first_offset}, the log ends at {self.log_end_offset}"
        )
        aborted = self._remember(decision)
        self.log_end_offset = decision.last_offset + 1
        self._events.appended(decision)
        if decision.marker is not None:
            self._events.ended(decision.marker, decision.last_offset, on_leader=True)
        assert self.leader_state is not None, "only a leader appends"
        self._take_high_watermark(
            self.log_end_offset if self.leader_state.is_alone else self.high_watermark
        )
        return aborted

    def on_snapshot_taken(self, next_offset: int) -> None:
        """Record that the producer state was written to a snapshot at an offset."""
        known = max(
            (entry.last_offset for entry in self.producer_state.entries.values()), default=-1
        )
        self._events.snapshot(next_offset, known)

    def _remember(self, decision: AppendDecision) -> AbortedTransaction | None:
        return self.producer_state.apply(
            decision.batch, decision.first_offset, decision.append_timestamp
        )

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

    def expire_producers(self, now_ms: int) -> None:
        """Expire producers without a batch for producer.id.expiration.ms.

        `now_ms` is the wall clock.
        """
        for producer_id in self.producer_state.expire(now_ms):
            self._events.expired(producer_id)

    def _refuse_replicas(self, acks: int) -> Refusal | None:
        refusal = refuse_acks(acks)
        if refusal is not None:
            return refusal
        if not self.is_leader:
            return Refusal(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition"
            )
        assert self.leader_state is not None, "only called on the leader"
        in_sync_count = len(self.leader_state.in_sync)
        if acks == ALL_REPLICAS and in_sync_count < self.rules.min_in_sync_replicas:
            return Refusal(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{in_sync_count} in sync, {self.rules.min_in_sync_replicas} are required",
            )
        return None

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

    def _move_high_watermark(self, high_watermark: int) -> None:
        self._events.high_watermark(
            self.leader_epoch, high_watermark, is_leader=self.leader_state is not None
        )
        self._take_high_watermark(high_watermark)

    def _take_high_watermark(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        if self._bound_at is not None or self.producer_state.has_transactions:
            self.producer_state.on_high_watermark(high_watermark)
            self._emit_stable_offset()

    def _emit_stable_offset(self) -> None:
        """Emit the last stable offset, if it has moved and a transaction is involved."""
        is_bound = self.producer_state.first_unstable_offset is not None
        if self.leader_state is None or not (is_bound or self._bound_at is not None):
            return
        stable = self.last_stable_offset
        if stable != self._bound_at:
            self._events.stable(self.leader_epoch, stable, self.high_watermark)
        self._bound_at = stable if is_bound else None

    def _proposed(self, proposal: IsrProposal | None) -> IsrProposal | None:
        if proposal is not None:
            self._events.isr_proposed(proposal)
        return proposal

    def _refused(self, batch: RecordBatch | None, refusal: Refusal) -> Refusal:
        self._events.refused(batch, refusal)
        return refusal
