"""A partition on the broker that leads it: what may be appended, at which offset, and how far readers see.

`decide_append` looks, the shell writes the bytes, `apply_append` moves the state: a failed write leaves nothing behind (KAFKA-6683).
For now the leader is the only replica, so what is appended is below the high watermark at once (as in Kafka, before it is flushed).
Source: kafka.cluster.Partition, UnifiedLog.append.
"""

from collections.abc import Callable
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.partitions.batch_rules import ALL_REPLICAS, AppendRules, refuse_acks, refuse_batch
from kraftsim.core.partitions.leader_epochs import NO_LEADER_EPOCH, LeaderEpochs
from kraftsim.core.partitions.read_bounds import (
    NOTHING_FOUND,
    Diverging,
    OffsetAnswer,
    ReadBounds,
    SearchMaxTimestamp,
    SearchTimestamp,
)
from kraftsim.core.partitions.record_conversion import LogPlace, NothingToAppend, UncheckedRecords, converted, recompressed
from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.core.producer_state.verdict import Duplicate
from kraftsim.events.event import Event
from kraftsim.events.partitions import BatchAppended, DuplicateAnswered, LeaderElected, LeadershipLost, ProduceRefused, ProducerStateExpired
from protocol.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, RecordBatch
from protocol.errors import ErrorCode
from protocol.messages import k02_list_offsets as list_offsets

IN_SYNC_COUNT: Final = 1
"""The leader itself: partitions have one replica for now."""

FIRST_VERSION_OF_SPECIAL_TIMESTAMP: Final = {
    list_offsets.LATEST_TIMESTAMP: 0,
    list_offsets.EARLIEST_TIMESTAMP: 0,
    list_offsets.MAX_TIMESTAMP: 7,
    list_offsets.EARLIEST_LOCAL_TIMESTAMP: 8,
    list_offsets.LATEST_TIERED_TIMESTAMP: 9,
}
"""ListOffsets versions.   Source: KIP-734, KIP-405, KIP-1005."""


class AppendDecision:
    """A batch with the place it gets in the log. Write `chunks()`, then call `apply_append`; nothing may come in between."""

    __slots__ = ("append_timestamp", "batch", "first_offset", "last_offset", "leader_epoch")

    def __init__(self, batch: RecordBatch, first_offset: int, leader_epoch: int, append_timestamp: int | None) -> None:
        self.batch = batch
        self.first_offset = first_offset
        self.last_offset = first_offset + batch.last_offset_delta
        self.leader_epoch = leader_epoch
        self.append_timestamp = append_timestamp
        """The broker's wall clock where the topic keeps the time of the append, else None."""

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp of the batch as it goes into the log."""
        return self.batch.max_timestamp if self.append_timestamp is None else self.append_timestamp

    def chunks(self) -> list[bytes | memoryview]:
        """Return the bytes that go into the log."""
        if self.append_timestamp is None:
            return self.batch.with_base_offset(self.first_offset, self.leader_epoch)
        return self.batch.with_log_append_time(self.first_offset, self.leader_epoch, self.append_timestamp)


class LeaderReplica:
    """The state of one partition on its leader. `rules` may be replaced when the topic's configuration changes."""

    __slots__ = (
        "_name",
        "_note",
        "epoch_start_offset",
        "epochs",
        "high_watermark",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producer_state",
        "rules",
        "topic",
    )

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        log_start_offset: int,
        log_end_offset: int,
        epochs: LeaderEpochs,
        producer_state: ProducerStateManager,
        rules: AppendRules,
        note: Callable[[Event], None],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._name = f"{topic}-{partition}"
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_end_offset
        self.epochs = epochs
        self.producer_state = producer_state
        self.rules = rules
        self.leader_epoch = NO_LEADER_EPOCH
        self.epoch_start_offset = log_end_offset
        self._note = note

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition now."""
        return self.leader_epoch != NO_LEADER_EPOCH

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed data end: the oldest open transaction, or the high watermark."""
        unstable = self.producer_state.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def lead(self, leader_epoch: int) -> bool:
        """Enter a reign, and tell whether the leader-epoch checkpoint must be written anew. The epoch of the present reign changes nothing."""
        if leader_epoch == self.leader_epoch:
            return False
        assert leader_epoch > self.leader_epoch, f"epoch {leader_epoch} after {self.leader_epoch}"
        self.leader_epoch = leader_epoch
        self.epoch_start_offset = self.log_end_offset
        self._note(LeaderElected(topic=self.topic, partition=self.partition, leader_epoch=leader_epoch, next_offset=self.log_end_offset))
        return self.epochs.assign(leader_epoch, self.log_end_offset)

    def resign(self) -> None:
        """Lead no longer: from now on nothing is appended or read here."""
        if self.is_leader:
            self._note(LeadershipLost(topic=self.topic, partition=self.partition, leader_epoch=self.leader_epoch))
            self.leader_epoch = NO_LEADER_EPOCH

    def decide_append(self, batch: RecordBatch, acks: int, now_ms: int) -> AppendDecision | Duplicate | Refusal:
        """Judge the batch of a client (`client_batch` has taken it out of the request). `now_ms` is the wall clock.

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
        return self._decide_place(batch, now_ms)

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

    def _decide_place(self, batch: RecordBatch, now_ms: int) -> AppendDecision | Duplicate | Refusal:
        verdict = self.producer_state.check(batch)
        if isinstance(verdict, Refusal):
            return self._refused(batch, verdict)
        if isinstance(verdict, Duplicate):
            self._note_duplicate(batch, verdict)
            return verdict
        return AppendDecision(batch, self.log_end_offset, self.leader_epoch, now_ms if self.rules.keeps_append_time else None)

    def apply_append(self, decision: AppendDecision) -> None:
        """Take note that the bytes of a decision are in the log."""
        assert decision.first_offset == self.log_end_offset, f"decided for {decision.first_offset}, the log ends at {self.log_end_offset}"
        batch = decision.batch
        self.producer_state.apply(batch, decision.first_offset, decision.append_timestamp)
        self.log_end_offset = self.high_watermark = decision.last_offset + 1
        self._note(
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
                crc=batch.crc,
            )
        )

    def decide_read(
        self,
        fetch_offset: int,
        *,
        current_leader_epoch: int = NO_LEADER_EPOCH,
        last_fetched_epoch: int = NO_LEADER_EPOCH,
        reads_committed: bool = False,
    ) -> ReadBounds | Diverging | Refusal:
        """Say how far a consumer may read. Epochs that the request does not carry are -1.

        Comes back with FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER or OFFSET_OUT_OF_RANGE.
        """
        refusal = self._refuse_epoch(current_leader_epoch)
        if refusal is not None:
            return refusal
        if last_fetched_epoch != NO_LEADER_EPOCH:
            leader_epoch, end_offset = self.epochs.end_offset_for(last_fetched_epoch, self.log_end_offset)
            if leader_epoch == NO_LEADER_EPOCH or fetch_offset < self.log_start_offset:
                return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {last_fetched_epoch} or offset {fetch_offset} is not in this log")
            if leader_epoch < last_fetched_epoch or end_offset < fetch_offset:
                return Diverging(leader_epoch=leader_epoch, end_offset=end_offset)
        if not self.log_start_offset <= fetch_offset <= self.log_end_offset:
            return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {fetch_offset}, the log has {self.log_start_offset} to {self.log_end_offset}")
        visible_end = self.last_stable_offset if reads_committed else self.high_watermark
        return ReadBounds(
            first_offset=fetch_offset,
            end_offset=max(visible_end, fetch_offset),
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
        )

    def decide_list_offset(
        self, timestamp: int, *, api_version: int, current_leader_epoch: int = NO_LEADER_EPOCH, reads_committed: bool = False
    ) -> OffsetAnswer | SearchTimestamp | SearchMaxTimestamp | Refusal:
        """Answer ListOffsets for a timestamp or one of the special ones (-1 to -5), or say what to look for in the segments.

        Comes back with the errors of leader epochs, or UNSUPPORTED_VERSION for a special timestamp that the version does not have.
        """
        refusal = self._refuse_epoch(current_leader_epoch)
        if refusal is not None:
            return refusal
        if timestamp < 0 and api_version < FIRST_VERSION_OF_SPECIAL_TIMESTAMP.get(timestamp, api_version + 1):
            return Refusal(ErrorCode.UNSUPPORTED_VERSION, f"ListOffsets {api_version} has no timestamp {timestamp}")
        visible_end = self.last_stable_offset if reads_committed else self.high_watermark
        match timestamp:
            case list_offsets.LATEST_TIMESTAMP:
                return OffsetAnswer(offset=visible_end, timestamp=-1, leader_epoch=self.leader_epoch)
            case list_offsets.EARLIEST_TIMESTAMP | list_offsets.EARLIEST_LOCAL_TIMESTAMP:
                epoch = self.epochs.epoch_at(self.log_start_offset)
                return OffsetAnswer(offset=self.log_start_offset, timestamp=-1, leader_epoch=NO_LEADER_EPOCH if epoch is None else epoch)
            case list_offsets.MAX_TIMESTAMP:
                return SearchMaxTimestamp(end_offset=visible_end)
            case list_offsets.LATEST_TIERED_TIMESTAMP:
                return NOTHING_FOUND  # nothing is tiered
            case _:
                return SearchTimestamp(timestamp=timestamp, end_offset=visible_end)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that were silent for producer.id.expiration.ms. `now_ms` is the wall clock."""
        for producer_id in self.producer_state.expire(now_ms):
            self._note(ProducerStateExpired(topic=self.topic, partition=self.partition, producer_id=producer_id))

    def _refuse_replicas(self, acks: int) -> Refusal | None:
        refusal = refuse_acks(acks)
        if refusal is not None:
            return refusal
        if not self.is_leader:
            return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
        if acks == ALL_REPLICAS and self.rules.min_in_sync_replicas > IN_SYNC_COUNT:
            return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, f"{IN_SYNC_COUNT} in sync, {self.rules.min_in_sync_replicas} are demanded")
        return None

    def _refuse_epoch(self, current_leader_epoch: int) -> Refusal | None:
        if current_leader_epoch != NO_LEADER_EPOCH and self.is_leader:
            if current_leader_epoch < self.leader_epoch:
                return Refusal(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {current_leader_epoch} is over, this is {self.leader_epoch}")
            if current_leader_epoch > self.leader_epoch:
                return Refusal(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {current_leader_epoch} is not known here yet, this is {self.leader_epoch}")
        return None if self.is_leader else Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")

    def _refused(self, batch: RecordBatch | None, refusal: Refusal) -> Refusal:
        self._note(
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

    def _note_duplicate(self, batch: RecordBatch, duplicate: Duplicate) -> None:
        self._note(
            DuplicateAnswered(
                topic=self.topic,
                partition=self.partition,
                first_offset=duplicate.first_offset,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                last_sequence=batch.last_sequence,
            )
        )
