"""A partition on one broker: what may be appended, at which offset, how far readers see, and what of it is replicated.

`decide_append` looks, the shell writes the bytes, `apply_append` moves the state: a failed write leaves nothing behind (KAFKA-6683). Where a replica
leads, its `reign` knows the followers; where it follows, its `following` knows the leader. Without followers what is appended is below the high
watermark at once (as in Kafka, before it is flushed).
Source: kafka.cluster.Partition, UnifiedLog.append.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from kraftsim.core.decision import Refusal
from kraftsim.core.partitions.append_decision import AppendDecision
from kraftsim.core.partitions.batch_rules import ALL_REPLICAS, AppendRules, refuse_acks, refuse_batch, refuse_size_in_log
from kraftsim.core.partitions.end_marker import EndMarker, end_marker_of
from kraftsim.core.partitions.following import Following
from kraftsim.core.partitions.in_sync_replicas import After, IsrProposal
from kraftsim.core.partitions.leader_epochs import NO_LEADER_EPOCH, LeaderEpochs
from kraftsim.core.partitions.record_conversion import LogPlace, NothingToAppend, UncheckedRecords, converted, recompressed
from kraftsim.core.partitions.reign import Appointment, Eligible, Reign, ReignRules
from kraftsim.core.partitions.replica_notes import ReplicaNotes
from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.core.producer_state.verdict import Duplicate
from kraftsim.events.event import Event
from protocol.batches import RecordBatch
from protocol.disk.transaction_index import AbortedTransaction
from protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class FollowerFetch:
    """What a follower's Fetch changed: whether the high watermark moved, and what the controller is to be asked."""

    has_moved: bool
    proposal: IsrProposal | None


@dataclass(frozen=True, slots=True)
class AgreedIsr:
    """What the controller answered to a proposal: the partition as it is now."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


NOTHING_COPIED: Final = -1
HIGH_WATERMARK: Final = -1
"""As an offset to delete up to."""


class PartitionReplica:
    """The state of one partition on one broker. `rules` may be replaced when the topic's configuration changes.

    `high_watermark` is what the last run knew of it; None for a log that is as new as its partition. `replica_id` is the broker's own.
    """

    __slots__ = (
        "_bound_at",
        "_name",
        "_tell",
        "copied_offset",
        "epochs",
        "following",
        "high_watermark",
        "is_tiered",
        "leader_epoch",
        "local_start_offset",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producer_state",
        "reign",
        "replica_id",
        "rules",
        "topic",
    )

    leader_rules: ClassVar[type[Reign]] = Reign
    """The rules of a leader; a bug has others."""

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
        note: Callable[[Event], None],
        high_watermark: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.replica_id = replica_id
        self._name = f"{topic}-{partition}"
        self.log_start_offset = log_start_offset
        self.local_start_offset = log_start_offset
        """The first offset that is here; of a tiered log, what lies before it is in the remote store only."""
        self.log_end_offset = log_end_offset
        self.high_watermark = min(max(log_start_offset if high_watermark is None else high_watermark, log_start_offset), log_end_offset)
        self.epochs = epochs
        self.producer_state = producer_state
        producer_state.on_high_watermark(self.high_watermark)
        self.rules = rules
        self.leader_epoch = NO_LEADER_EPOCH
        """The epoch of the leader that is known here, whoever it is."""
        self.reign: Reign | None = None
        self.following: Following | None = None
        self._bound_at: int | None = None
        """The last stable offset as it was told last, while a transaction binds it."""
        self.is_tiered = False
        self.copied_offset = NOTHING_COPIED
        """The last offset that is known to be in the remote store."""
        self._tell = ReplicaNotes(topic, partition, note)

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition now."""
        return self.reign is not None

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed data end: the oldest transaction that is not over on all replicas in sync, or the high watermark."""
        high_watermark, unstable = self.high_watermark, self.producer_state.first_unstable_offset
        return high_watermark if unstable is None else max(min(unstable, high_watermark), self.log_start_offset)

    # Roles ---------------------------------------------------------------------------------------------------------------------------------

    def lead(self, appointment: Appointment, *, now_ms: int, rules: ReignRules, eligible: Eligible) -> bool:
        """Lead as the metadata says, and tell whether the leader-epoch checkpoint must be written anew. `now_ms` is the wall clock.

        Within the leader epoch that is known here it may say that others are in sync, or other replicas there; older metadata says nothing.
        """
        former = self.reign
        if former is not None and appointment.leader_epoch == self.leader_epoch:
            former.rules = rules
            if former.learn(appointment, log_end_offset=self.log_end_offset, now_ms=now_ms):
                self._tell.in_sync(former, self.leader_epoch)
            self.advance(now_ms)
            return False
        assert appointment.leader_epoch >= self.leader_epoch, f"epoch {appointment.leader_epoch} after {self.leader_epoch}"
        self.following = None
        self.leader_epoch = appointment.leader_epoch
        self.reign = self.leader_rules(
            self.replica_id,
            appointment,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
            rules=rules,
            eligible=eligible,
            followers=None if former is None else former.followers,
        )
        self._tell.elected(appointment.leader_epoch, self.log_end_offset)
        self._tell.in_sync(self.reign, self.leader_epoch)
        is_news = self.epochs.assign(appointment.leader_epoch, self.log_end_offset)
        self._tell_stable()
        self.advance(now_ms)
        return is_news

    def follow(self, leader_id: int, leader_epoch: int) -> Following | None:
        """Follow another broker in its leader epoch; None if that is what this replica does already. NO_LEADER (-1) leads nowhere."""
        if self.following is not None and self.leader_epoch == leader_epoch and self.following.leader_id == leader_id:
            return None
        self.resign()
        assert leader_epoch >= self.leader_epoch, f"epoch {leader_epoch} after {self.leader_epoch}"
        self.leader_epoch = leader_epoch
        self.following = Following(self, leader_id=leader_id, leader_epoch=leader_epoch)
        self._tell.follows(leader_id, leader_epoch, self.log_end_offset)
        return self.following

    def resign(self) -> None:
        """Lead and follow no longer: from now on nothing is appended here, and nothing read from a leader."""
        if self.reign is not None:
            self._tell.lost(self.leader_epoch)
        self.reign = self.following = self._bound_at = None

    def advance(self, now_ms: int) -> bool:
        """Move the leader's high watermark as far as it may go, and tell whether it moved."""
        assert self.reign is not None, "only a leader moves it by itself"
        reached = self.reign.high_watermark(self.high_watermark, self.log_end_offset, now_ms)
        if reached == self.high_watermark:
            return False
        if self.reign.is_alone:
            self._take_high_watermark(reached)
        else:
            self._move_high_watermark(reached)
        return True

    def advance_alone(self, now_ms: int) -> None:
        """Commit what was appended just now, if nobody else may be in sync: no Fetch of a follower will do it.   Source: maybeIncrementLeaderHW."""
        reign = self.reign
        if reign is not None and not reign.is_alone and len(reign.in_sync.maximal) == 1:
            self.advance(now_ms)

    def on_follower_fetch(self, replica_id: int, fetch_offset: int, log_start_offset: int, *, now_ms: int, broker_epoch: int) -> FollowerFetch:
        """A follower asked for a record, and was not told that its log parts from this one: it has everything before that."""
        reign = self.reign
        assert reign is not None and replica_id in reign.followers, "refused before"
        has_advanced = reign.on_fetch(
            replica_id, fetch_offset, log_start_offset, log_end_offset=self.log_end_offset, now_ms=now_ms, broker_epoch=broker_epoch
        )
        proposal = reign.expansion(replica_id, self.high_watermark)
        return FollowerFetch(has_moved=has_advanced and self.advance(now_ms), proposal=self._told(proposal))

    def on_same_fetch(self, replica_id: int, fetch_offset: int, log_start_offset: int, *, now_ms: int, broker_epoch: int) -> bool:
        """Note that a follower in sync asked again for the end of the log, as before; False if it is otherwise: see `on_follower_fetch`."""
        reign = self.reign
        follower = None if reign is None else reign.followers.get(replica_id)
        if reign is None or follower is None or replica_id not in reign.in_sync or fetch_offset != self.log_end_offset:
            return False
        if follower.log_end_offset != fetch_offset or follower.broker_epoch != broker_epoch:
            return False
        follower.on_fetch(fetch_offset, log_start_offset, leader_end_offset=fetch_offset, now_ms=now_ms, broker_epoch=broker_epoch)
        return True

    def shrinking(self, now_ms: int) -> IsrProposal | None:
        """Propose that followers leave the in-sync replicas that have been behind for too long."""
        return None if self.reign is None else self._told(self.reign.shrinking(self.log_end_offset, now_ms))

    def on_isr_answer(self, proposal: IsrProposal, answer: AgreedIsr | ErrorCode, now_ms: int) -> After:
        """The controller answered a proposal; with CHANGED the high watermark has moved as far as it may."""
        reign = self.reign
        if reign is None:
            return After.NOTHING
        if isinstance(answer, ErrorCode):
            return reign.in_sync.on_error(proposal, answer)
        after = reign.in_sync.on_answer(proposal, leader_epoch=answer.leader_epoch, partition_epoch=answer.partition_epoch, isr=answer.isr)
        if after is After.CHANGED:
            self._tell.in_sync(reign, self.leader_epoch)
            self.advance(now_ms)
        return after

    def replicated(self, required_offset: int) -> ErrorCode | None:
        """Say what an acks=all append waits for: None while it must wait; else how it ended.

        Everything before required_offset is on all that are in sync. NOT_ENOUGH_REPLICAS_AFTER_APPEND: they are too few by now.
        """
        if self.reign is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < required_offset:
            return None
        has_enough = len(self.reign.in_sync.maximal) >= self.reign.rules.min_in_sync
        return ErrorCode.NONE if has_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # Copying -------------------------------------------------------------------------------------------------------------------------------

    def apply_copied(self, batch: RecordBatch) -> AbortedTransaction | None:
        """Take note that a batch of the leader's is in this log, as it was in the leader's; what its transaction index is to say of it comes back."""
        assert batch.base_offset >= self.log_end_offset, f"{batch.base_offset} is not behind the end, {self.log_end_offset}"
        aborted = self.producer_state.replay(batch)
        self.log_end_offset = batch.last_offset + 1
        self._tell.copied(batch)
        if batch.is_control:
            marker = end_marker_of(batch)
            if marker is not None:
                self._tell.ended(marker, batch.last_offset, on_leader=False)
        return aborted

    def on_copied(self, leader_high_watermark: int) -> bool:
        """Take the leader's high watermark as far as this log goes, and tell whether it moved. It may go back, under a leader that knows less."""
        reached = min(max(leader_high_watermark, self.log_start_offset), self.log_end_offset)
        if reached == self.high_watermark:
            return False
        self._move_high_watermark(reached)
        return True

    def begin_at(self, log_start_offset: int, reason: str) -> bool:
        """Let the log begin later, and tell whether it does; its epochs and what readers see follow. What is not in the log cannot begin it."""
        if not self.log_start_offset < log_start_offset <= self.log_end_offset:
            return False
        self.log_start_offset = log_start_offset
        self.local_start_offset = max(self.local_start_offset, log_start_offset)
        self.epochs.begin_at(log_start_offset)
        self._tell.begins_at(log_start_offset, reason)
        self.producer_state.on_log_start(log_start_offset)
        self._take_high_watermark(max(self.high_watermark, log_start_offset))
        return True

    def note_local_start(self, local_start_offset: int) -> None:
        """Local segments of a tiered log went: what lies before this is in the remote store only."""
        if self.is_tiered and local_start_offset > self.local_start_offset:
            self._tell.local_start(local_start_offset, self.log_start_offset)
        self.local_start_offset = max(self.local_start_offset, local_start_offset)

    def on_rebuilt(self, offset: int) -> None:
        """The log goes on behind what is in the remote store, and so does all that readers see."""
        self.local_start_offset = offset
        self.copied_offset = max(self.copied_offset, offset - 1)
        self._take_high_watermark(max(self.high_watermark, offset))

    def decide_deletion(self, offset: int, *, is_deleted: bool) -> int | Refusal:
        """Say where the log begins once everything below an offset is deleted (-1: below the high watermark), DeleteRecords.

        Comes back with NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION for a topic that is only compacted, or OFFSET_OUT_OF_RANGE.
        """
        if self.reign is None:
            return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
        if not is_deleted:
            return Refusal(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy does not delete")
        wanted = self.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= wanted <= self.high_watermark:
            return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}, the high watermark is {self.high_watermark}")
        return wanted

    def on_cut(self, log_start_offset: int, log_end_offset: int, local_start_offset: int | None = None) -> None:
        """Take note that the log was cut, or begun anew; its epochs are cut already, and the producer state is rebuilt by whoever cut it."""
        self._tell.cut(self.leader_epoch, self.log_end_offset, log_end_offset, self.high_watermark)
        self.log_start_offset, self.log_end_offset = log_start_offset, log_end_offset
        self.local_start_offset = max(self.local_start_offset if local_start_offset is None else local_start_offset, log_start_offset)
        self.high_watermark = min(max(self.high_watermark, log_start_offset), log_end_offset)
        if self.copied_offset >= log_end_offset:
            self.copied_offset = NOTHING_COPIED  # what was copied behind the cut is of another history: what of it is this log's is looked up again

    # Appending -----------------------------------------------------------------------------------------------------------------------------

    def decide_append(self, batch: RecordBatch, acks: int, now_ms: int, guard: int | None = None) -> AppendDecision | Duplicate | Refusal:
        """Judge the batch of a client (`client_batch` has taken it out of the request). `now_ms` is the wall clock, `guard` of `begin_verification`.

        A Duplicate is answered without error, with its first offset and its append time, and nothing is written. A Refusal comes back with
        INVALID_REQUIRED_ACKS, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, a code of `refuse_batch`, or one of producer state. Both are noted here.
        """
        refusal = self._refuse_replicas(acks) or refuse_batch(batch, self.rules, now_ms, self._name)
        if refusal is not None:
            return self._refused(batch, refusal)
        if self.rules.compression is not None and self.rules.recompresses(batch):
            rebuilt = recompressed(batch, self.rules, self._next_place(now_ms))
            if isinstance(rebuilt, Refusal):
                return self._refused(batch, rebuilt)
            batch = rebuilt
        return self._decide_place(batch, now_ms, guard)

    def decide_append_of_any_format(
        self, records: UncheckedRecords, acks: int, now_ms: int
    ) -> AppendDecision | Duplicate | NothingToAppend | Refusal:
        """Judge the records of a Produce request before version 3, which are converted to format 2. All else is as in `decide_append`.

        Comes back with UNKNOWN_SERVER_ERROR, too, for records that no batch can be built of.
        """
        outcome = self._refuse_replicas(acks) or converted(records, self.rules, self._next_place(now_ms))
        match outcome:
            case Refusal():
                return self._refused(None, outcome)
            case RecordBatch():
                return self._decide_place(outcome, now_ms)
            case _:
                return outcome

    def _next_place(self, now_ms: int) -> LogPlace:
        return LogPlace(base_offset=self.log_end_offset, leader_epoch=self.leader_epoch, now_ms=now_ms, topic_partition=self._name)

    def _decide_place(self, batch: RecordBatch, now_ms: int, guard: int | None = None) -> AppendDecision | Duplicate | Refusal:
        verdict = self.producer_state.check(batch, guard)
        if isinstance(verdict, Refusal):
            return self._refused(batch, verdict)
        if isinstance(verdict, Duplicate):
            self._tell.duplicate(batch, verdict)
            return verdict
        return self._placed(batch, now_ms)

    def _placed(self, batch: RecordBatch, now_ms: int, marker: EndMarker | None = None) -> AppendDecision:
        return AppendDecision(batch, self.log_end_offset, self.leader_epoch, now_ms if self.rules.keeps_append_time else None, marker)

    def decide_coordinated(self, batch: RecordBatch, acks: int, now_ms: int, guard: int | None = None) -> AppendDecision | Refusal:
        """Judge a batch that a coordinator of this broker wrote: its producer is looked at, its sequences are none.

        Comes back with the codes of `_refuse_replicas`, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE.
        """
        refusal = self._refuse_replicas(acks) or refuse_size_in_log(batch, self.rules) or self.producer_state.check_coordinated(batch, guard)
        return self._placed(batch, now_ms) if refusal is None else self._refused(batch, refusal)

    def decide_marker(self, marker: EndMarker, now_ms: int) -> AppendDecision | Refusal:
        """Judge the end of a transaction; one that ends nothing here is written like any other. `now_ms` is the wall clock.

        Comes back with NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        refusal = self._refuse_replicas(ALL_REPLICAS) or self.producer_state.check_marker(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version
        )
        if refusal is None:
            return self._placed(marker.batch(now_ms), now_ms, marker)
        self._tell.refused_marker(marker, refusal)
        return refusal

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int, *, adds: bool = False
    ) -> int | Refusal | None:
        """Return the guard to append with once the coordinator has said that this partition is in the transaction; None if it need not be asked.

        Comes back with NOT_LEADER_OR_FOLLOWER, too; all else is as in the producer state.
        """
        if self.reign is None:
            return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
        return self.producer_state.begin_verification(producer_id, producer_epoch, base_sequence, now_ms, adds=adds)

    def apply_append(self, decision: AppendDecision) -> AbortedTransaction | None:
        """Take note that the bytes of a decision are in the log; what its transaction index is to say of them comes back."""
        assert decision.first_offset == self.log_end_offset, f"decided for {decision.first_offset}, the log ends at {self.log_end_offset}"
        aborted = self._remember(decision)
        self.log_end_offset = decision.last_offset + 1
        self._tell.appended(decision)
        if decision.marker is not None:
            self._tell.ended(decision.marker, decision.last_offset, on_leader=True)
        assert self.reign is not None, "only a leader appends"
        self._take_high_watermark(self.log_end_offset if self.reign.is_alone else self.high_watermark)
        return aborted

    def note_snapshot(self, next_offset: int) -> None:
        """Note that the producers were written down as they are before an offset."""
        known = max((entry.last_offset for entry in self.producer_state.entries.values()), default=-1)
        self._tell.snapshot(next_offset, known)

    def _remember(self, decision: AppendDecision) -> AbortedTransaction | None:
        return self.producer_state.apply(decision.batch, decision.first_offset, decision.append_timestamp)

    # Refusing ------------------------------------------------------------------------------------------------------------------------------

    @property
    def knows_too_little(self) -> bool:
        """Whether this leader is so new that it cannot tell yet how far the log was replicated before it (KIP-207)."""
        return self.reign is not None and self.high_watermark < self.reign.epoch_start_offset

    def refuse_follower(self, replica_id: int, current_leader_epoch: int) -> Refusal | None:
        """Return why a broker may not copy from this one: it leads no longer, or the asker is none of the replicas as far as it knows."""
        refusal = self.refuse_epoch(current_leader_epoch)
        if refusal is not None or (self.reign is not None and replica_id in self.reign.followers):
            return refusal
        carries_epoch = current_leader_epoch != NO_LEADER_EPOCH
        error = ErrorCode.UNKNOWN_LEADER_EPOCH if carries_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return Refusal(error, f"broker {replica_id} is not a replica as far as this one knows")

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that were silent for producer.id.expiration.ms. `now_ms` is the wall clock."""
        for producer_id in self.producer_state.expire(now_ms):
            self._tell.expired(producer_id)

    def _refuse_replicas(self, acks: int) -> Refusal | None:
        refusal = refuse_acks(acks)
        if refusal is not None:
            return refusal
        if not self.is_leader:
            return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
        assert self.reign is not None, "it leads"
        in_sync_count = len(self.reign.in_sync)
        if acks == ALL_REPLICAS and in_sync_count < self.rules.min_in_sync_replicas:
            return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, f"{in_sync_count} in sync, {self.rules.min_in_sync_replicas} are demanded")
        return None

    def refuse_epoch(self, current_leader_epoch: int, *, needs_leader: bool = True) -> Refusal | None:
        """Return why a request of another leader epoch, or one that needs the leader, is not served. An epoch that it does not carry is -1."""
        if current_leader_epoch != NO_LEADER_EPOCH and self.leader_epoch != NO_LEADER_EPOCH:
            if current_leader_epoch < self.leader_epoch:
                return Refusal(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {current_leader_epoch} is over, this is {self.leader_epoch}")
            if current_leader_epoch > self.leader_epoch:
                return Refusal(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {current_leader_epoch} is not known here yet, this is {self.leader_epoch}")
        if self.reign is not None or (self.following is not None and not needs_leader):
            return None
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")

    def _move_high_watermark(self, high_watermark: int) -> None:
        self._tell.high_watermark(self.leader_epoch, high_watermark, is_leader=self.reign is not None)
        self._take_high_watermark(high_watermark)

    def _take_high_watermark(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        if self._bound_at is not None or self.producer_state.has_transactions:
            self.producer_state.on_high_watermark(high_watermark)
            self._tell_stable()

    def _tell_stable(self) -> None:
        """Say where readers of committed data end, if that has moved and a transaction has to do with it."""
        is_bound = self.producer_state.first_unstable_offset is not None
        if self.reign is None or not (is_bound or self._bound_at is not None):
            return
        stable = self.last_stable_offset
        if stable != self._bound_at:
            self._tell.stable(self.leader_epoch, stable, self.high_watermark)
        self._bound_at = stable if is_bound else None

    def _told(self, proposal: IsrProposal | None) -> IsrProposal | None:
        if proposal is not None:
            self._tell.asked(proposal)
        return proposal

    def _refused(self, batch: RecordBatch | None, refusal: Refusal) -> Refusal:
        self._tell.refused(batch, refusal)
        return refusal
