"""The log of a replica: appends, visibility to readers, and where the log starts and ends.

`decide_append` validates, the caller writes the bytes, `apply_append` updates the state: a failed
write leaves no trace (KAFKA-6683). Without followers a record is below the high watermark at once
(as in Kafka, before it is flushed).
Source: UnifiedLog.append, kafka.cluster.Partition.appendRecordsToLeader.
"""

from collections.abc import Callable
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    DuplicateAnswered,
    LogStartMoved,
    PartitionHighWatermarkMoved,
    PartitionTruncated,
    ProduceRefused,
    ProducerSnapshotTaken,
    ProducerStateExpired,
)
from kraftsim.partitions.events_transactions import (
    LastStableOffsetMoved,
    MarkerAppended,
    MarkerRefused,
)
from kraftsim.partitions.rules_append import (
    ALL_REPLICAS,
    AppendDecision,
    AppendRules,
    LogPlace,
    NothingToAppend,
    UncheckedRecords,
    decide_batch,
    decide_records,
    placed,
    refuse_acks,
    refuse_size_in_log,
)
from kraftsim.partitions.rules_follower import Following
from kraftsim.partitions.rules_leader import LeaderState
from kraftsim.partitions.rules_log import NO_LEADER_EPOCH, LeaderEpochs
from kraftsim.producer_state.rules_entries import Duplicate
from kraftsim.producer_state.rules_manager import EndMarker, ProducerStateManager, end_marker_of
from kraftsim.tiered_storage.events import LocalLogStartMoved
from protocol.errors import ErrorCode
from protocol.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, RecordBatch
from protocol.storage.indexes import AbortedTransaction

NO_REMOTE_OFFSET: Final = -1
HIGH_WATERMARK: Final = -1
"""As an offset to delete up to."""


class ReplicaLog:
    """The log of one partition on one broker. `PartitionReplica` adds its roles.

    `rules` may be replaced when the topic's configuration changes.

    `high_watermark` is the checkpointed one; None for a new log. `replica_id` is the broker's id.
    """

    __slots__ = (
        "_bound_at",
        "_emit",
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
        self._emit = emit

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
        self._emit(
            MarkerRefused(
                topic=self.topic,
                partition=self.partition,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_commit=marker.is_commit,
                error_code=refusal.error,
                reason=refusal.why,
            )
        )
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

    def _next_place(self, now_ms: int) -> LogPlace:
        return LogPlace(self.log_end_offset, self.leader_epoch, now_ms, self._name)

    def _unless_duplicate(
        self, decision: AppendDecision, guard: int | None = None
    ) -> AppendDecision | Duplicate | Refusal:
        batch = decision.batch
        self.producer_state.is_new_log = self.log_end_offset == 0
        verdict = self.producer_state.check(batch, guard)
        if isinstance(verdict, Refusal):
            return self._refused(batch, verdict)
        if isinstance(verdict, Duplicate):
            self._emit(
                DuplicateAnswered(
                    topic=self.topic,
                    partition=self.partition,
                    first_offset=verdict.first_offset,
                    producer_id=batch.producer_id,
                    producer_epoch=batch.producer_epoch,
                    base_sequence=batch.base_sequence,
                    last_sequence=batch.last_sequence,
                )
            )
            return verdict
        return decision

    def _refuse_replicas(self, acks: int) -> Refusal | None:
        refusal = refuse_acks(acks)
        if refusal is not None:
            return refusal
        if not self.is_leader:
            return Refusal(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition"
            )
        assert self.leader_state is not None, "only called on the leader"
        in_sync_count = len(self.leader_state.in_sync.agreed)
        if acks == ALL_REPLICAS and in_sync_count < self.rules.min_in_sync_replicas:
            return Refusal(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{in_sync_count} in sync, {self.rules.min_in_sync_replicas} are required",
            )
        return None

    def _refused(self, batch: RecordBatch | None, refusal: Refusal) -> Refusal:
        self._emit(
            ProduceRefused(
                topic=self.topic,
                partition=self.partition,
                error_code=refusal.error,
                reason=refusal.why,
                producer_id=NO_PRODUCER_ID if batch is None else batch.producer_id,
                producer_epoch=NO_PRODUCER_EPOCH if batch is None else batch.producer_epoch,
                base_sequence=NO_SEQUENCE if batch is None else batch.base_sequence,
            )
        )
        return refusal

    def apply_append(self, decision: AppendDecision) -> AbortedTransaction | None:
        """Record that a decided batch is written.

        Returns the transaction index entry to add, if any.
        """
        assert decision.first_offset == self.log_end_offset, (
            f"decided for {decision.first_offset}, the log ends at {self.log_end_offset}"
        )
        batch, marker = decision.batch, decision.marker
        aborted = self._remember(decision)
        self.log_end_offset = decision.last_offset + 1
        self._emit(
            BatchAppended(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=decision.leader_epoch,
                first_offset=decision.first_offset,
                last_offset=decision.last_offset,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                last_sequence=batch.last_sequence,
                record_count=batch.record_count,
                size_bytes=batch.size_bytes,
                crc=decision.crc,
                is_transactional=batch.is_transactional,
            )
        )
        if marker is not None:
            self._emit(
                MarkerAppended(
                    topic=self.topic,
                    partition=self.partition,
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    coordinator_epoch=marker.coordinator_epoch,
                    is_commit=marker.is_commit,
                    offset=decision.last_offset,
                    on_leader=True,
                )
            )
        assert self.leader_state is not None, "only a leader appends"
        self._take_high_watermark(
            self.log_end_offset if self.leader_state.is_alone else self.high_watermark
        )
        return aborted

    def _remember(self, decision: AppendDecision) -> AbortedTransaction | None:
        return self.producer_state.apply(
            decision.batch, decision.first_offset, decision.append_timestamp
        )

    def append_replicated(self, batch: RecordBatch) -> AbortedTransaction | None:
        """Record a replicated batch. Returns the transaction index entry to add, if any."""
        assert batch.base_offset >= self.log_end_offset, (
            f"{batch.base_offset} is below the log end offset, {self.log_end_offset}"
        )
        aborted = self.producer_state.replay(batch)
        self.log_end_offset = batch.last_offset + 1
        self._emit(
            BatchReplicated(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=batch.partition_leader_epoch,
                first_offset=batch.base_offset,
                last_offset=batch.last_offset,
                crc=batch.crc,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                is_transactional=batch.is_transactional,
            )
        )
        if batch.is_control:
            marker = end_marker_of(batch)
            if marker is not None:
                self._emit(
                    MarkerAppended(
                        topic=self.topic,
                        partition=self.partition,
                        producer_id=marker.producer_id,
                        producer_epoch=marker.producer_epoch,
                        coordinator_epoch=marker.coordinator_epoch,
                        is_commit=marker.is_commit,
                        offset=batch.last_offset,
                        on_leader=False,
                    )
                )
        return aborted

    # Visibility
    # ----------------------------------------------------------------------------------------------

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

    def on_replicated(self, leader_high_watermark: int) -> bool:
        """Set the high watermark to the leader's, within this log, and return whether it moved.

        It may decrease with a new leader.
        """
        reached = min(max(leader_high_watermark, self.log_start_offset), self.log_end_offset)
        if reached == self.high_watermark:
            return False
        self._move_high_watermark(reached)
        return True

    def _move_high_watermark(self, high_watermark: int) -> None:
        self._emit(
            PartitionHighWatermarkMoved(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=self.leader_epoch,
                high_watermark=high_watermark,
                is_leader=self.leader_state is not None,
            )
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
            self._emit(
                LastStableOffsetMoved(
                    topic=self.topic,
                    partition=self.partition,
                    leader_epoch=self.leader_epoch,
                    offset=stable,
                    high_watermark=self.high_watermark,
                )
            )
        self._bound_at = stable if is_bound else None

    # The start and the end of the log
    # ----------------------------------------------------------------------------------------------

    def advance_log_start(self, log_start_offset: int, reason: str) -> bool:
        """Advance the log start offset, and return whether it moved; epochs and visibility follow.

        It stays within the log.
        """
        if not self.log_start_offset < log_start_offset <= self.log_end_offset:
            return False
        self.log_start_offset = log_start_offset
        self.local_start_offset = max(self.local_start_offset, log_start_offset)
        self.epochs.advance_log_start(log_start_offset)
        self._emit(
            LogStartMoved(
                topic=self.topic,
                partition=self.partition,
                log_start_offset=log_start_offset,
                reason=reason,
            )
        )
        self.producer_state.on_log_start(log_start_offset)
        self._take_high_watermark(max(self.high_watermark, log_start_offset))
        return True

    def set_local_start(self, local_start_offset: int) -> None:
        """Local segments of a tiered log were deleted: records below this offset are in remote
        storage only.
        """
        if self.is_tiered and local_start_offset > self.local_start_offset:
            self._emit(
                LocalLogStartMoved(
                    topic=self.topic,
                    partition=self.partition,
                    local_start_offset=local_start_offset,
                    log_start_offset=self.log_start_offset,
                )
            )
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
        self._emit(
            PartitionTruncated(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=self.leader_epoch,
                former_end_offset=self.log_end_offset,
                log_end_offset=log_end_offset,
                high_watermark=self.high_watermark,
            )
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

    # Producers
    # ----------------------------------------------------------------------------------------------

    def on_snapshot_taken(self, next_offset: int) -> None:
        """Record that the producer state was written to a snapshot at an offset."""
        known = max(
            (entry.last_offset for entry in self.producer_state.entries.values()), default=-1
        )
        self._emit(
            ProducerSnapshotTaken(
                topic=self.topic,
                partition=self.partition,
                next_offset=next_offset,
                last_offset=known,
            )
        )

    def expire_producers(self, now_ms: int) -> None:
        """Expire producers without a batch for producer.id.expiration.ms.

        `now_ms` is the wall clock.
        """
        for producer_id in self.producer_state.expire(now_ms):
            self._emit(
                ProducerStateExpired(
                    topic=self.topic, partition=self.partition, producer_id=producer_id
                )
            )
