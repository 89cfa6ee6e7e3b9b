"""One partition on this broker: its log on disk and the rules of its replica, joined.

Source: kafka.cluster.Partition.
"""

from collections.abc import Iterable

from kraftsim.core.decision import Refusal
from kraftsim.core.partitions.append_decision import AppendDecision
from kraftsim.core.partitions.end_marker import EndMarker
from kraftsim.core.partitions.following import Accept, CutTo, RestartAt
from kraftsim.core.partitions.partition_replica import NOTHING_COPIED, PartitionReplica
from kraftsim.core.partitions.record_conversion import NothingToAppend, UncheckedRecords
from kraftsim.core.producer_state.entry import ProducerStateEntry
from kraftsim.core.producer_state.verdict import Duplicate
from kraftsim.core.tiered_storage.rebuilding import RestartBehind
from kraftsim.node.broker.log_directory import LogDirectory
from kraftsim.node.broker.quiet_rows import QuietRows
from kraftsim.node.broker.topic_settings import TopicSettings
from kraftsim.node.log import PartitionLog
from kraftsim.node.producer_snapshots import ProducerSnapshots
from protocol.batches import RecordBatch, split_batches
from protocol.disk.transaction_index import AbortedTransaction
from protocol.malformed_batches import MalformedBatch


class HostedPartition:
    """A partition that this broker hosts. `replica` says whether it leads it or follows."""

    __slots__ = ("home", "is_uncleanable", "log", "partition", "quiet_rows", "replica", "settings", "snapshots", "topic", "topic_id")

    def __init__(
        self,
        topic_id: bytes,
        log: PartitionLog,
        replica: PartitionReplica,
        settings: TopicSettings,
        snapshots: ProducerSnapshots,
        home: LogDirectory,
    ) -> None:
        self.topic = log.topic
        self.partition = log.partition
        self.topic_id = topic_id
        self.log = log
        self.replica = replica
        self.settings = settings
        self.snapshots = snapshots
        self.home = home
        """The directory that it lies in."""
        self.is_uncleanable = False
        """Whether the cleaner found what it cannot read."""
        self.quiet_rows = QuietRows()

    @property
    def key(self) -> tuple[str, int]:
        """Topic and number."""
        return self.topic, self.partition

    def append(
        self, batch: RecordBatch | UncheckedRecords, acks: int, now_ms: int, guard: int | None = None
    ) -> AppendDecision | Duplicate | NothingToAppend | Refusal:
        """Append the batch of a client, or say why not. `guard`: what `begin_verification` gave.

        Raises OSError: then the log is lost and the node must not go on.
        """
        decision: AppendDecision | Duplicate | NothingToAppend | Refusal
        if isinstance(batch, RecordBatch):
            decision = self.replica.decide_append(batch, acks, now_ms, guard)
        else:
            decision = self.replica.decide_append_of_any_format(batch, acks, now_ms)
        if isinstance(decision, AppendDecision):
            self._write(decision, now_ms)
        return decision

    def append_by_coordinator(self, batch: RecordBatch, acks: int, now_ms: int, guard: int | None = None) -> AppendDecision | Refusal:
        """Append what a coordinator of this broker wrote, or say why not. Raises OSError as `append` does."""
        decision = self.replica.decide_coordinated(batch, acks, now_ms, guard)
        if isinstance(decision, AppendDecision):
            self._write(decision, now_ms)
        return decision

    def append_marker(self, marker: EndMarker, now_ms: int) -> AppendDecision | Refusal:
        """Append the end of a transaction, or say why not. Raises OSError as `append` does."""
        decision = self.replica.decide_marker(marker, now_ms)
        if isinstance(decision, AppendDecision):
            self._write(decision, now_ms)
        return decision

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int, *, adds: bool = False
    ) -> int | Refusal | None:
        """Return the guard for an append after the coordinator was asked, None if it need not be, or why nothing can be appended."""
        return self.replica.begin_verification(producer_id, producer_epoch, base_sequence, now_ms, adds=adds)

    def _write(self, decision: AppendDecision, now_ms: int) -> None:
        self.log.append(
            decision.chunks(),
            first_offset=decision.first_offset,
            last_offset=decision.last_offset,
            size_bytes=decision.batch.size_bytes,
            max_timestamp=decision.max_timestamp,
            leader_epoch=decision.leader_epoch,
        )
        self._index(self.replica.apply_append(decision))
        self.replica.advance_alone(now_ms)

    def copy(self, records: bytes | memoryview, accepted: Accept) -> bool:
        """Append what was fetched from the leader, and tell whether readers see more (or less) than before.

        Raises MalformedBatch for what is no sound batch: everything before it is in the log. Raises OSError: then the log is lost.
        """
        replica, log = self.replica, self.log
        try:
            for batch in split_batches(records):
                if not batch.crc_is_valid():
                    raise MalformedBatch(f"the batch at offset {batch.base_offset} has another checksum than it says", 0)
                if batch.base_offset < replica.log_end_offset:
                    raise MalformedBatch(f"offset {batch.base_offset} came, {replica.log_end_offset} is next", 0)
                log.append(
                    [batch.view()],
                    first_offset=batch.base_offset,
                    last_offset=batch.last_offset,
                    size_bytes=batch.size_bytes,
                    max_timestamp=batch.max_timestamp,
                    leader_epoch=batch.partition_leader_epoch,
                )
                self._index(replica.apply_copied(batch))
        finally:
            has_moved = replica.on_copied(accepted.high_watermark)
        return self.begin_at(accepted.log_start_offset, "the leader's") or has_moved

    def _index(self, aborted: AbortedTransaction | None) -> None:
        if aborted is not None:
            self.log.add_aborted(aborted)

    def begin_at(self, log_start_offset: int, reason: str) -> bool:
        """Let the log begin later, and tell whether it does. Store the log's epochs afterwards."""
        if not self.replica.begin_at(log_start_offset, reason):
            return False
        self.log.begin_at(log_start_offset)
        return True

    def delete_expired(self, now_ms: int) -> bool:
        """Delete the segments that are too old, and tell whether the log begins later now. Raises OSError."""
        has_moved = False
        replica, tiering = self.replica, self.settings.tiering
        rules = tiering.local_retention(self.settings.retention) if self.log.is_tiered and tiering.copies else self.settings.retention
        copied_offset = replica.copied_offset if self.log.is_tiered and tiering.copies else None
        if copied_offset is not None and rules.is_deleted:
            self.log.roll_expired(rules, now_ms=now_ms)
        while True:
            gone = self.log.delete_expired(rules, now_ms=now_ms, high_watermark=replica.high_watermark, copied_offset=copied_offset)
            if gone is None:
                return has_moved
            self.snapshots.remove_before(self.log.base_offsets[0])
            replica.note_local_start(self.log.local_start_offset)
            has_moved = self.begin_at(self.log.log_start_offset, gone.reason.value) or has_moved

    def tier(self, is_tiered: bool) -> bool:
        """Let a part of the log be in the remote store from now on, or none any more; tell whether that is news. Store its epochs afterwards."""
        if self.log.is_tiered is is_tiered:
            return False
        self.log.tier(is_tiered)
        self.replica.is_tiered = is_tiered
        if not is_tiered:
            self.replica.copied_offset = NOTHING_COPIED
            self.begin_at(self.log.log_start_offset, "no remote storage any more")
        return True

    def rebuild_behind(self, behind: RestartBehind, entries: Iterable[ProducerStateEntry]) -> None:
        """Begin anew behind what is in the remote store, with the producers as they were there. Store the log's epochs afterwards. Raises OSError."""
        self.log.restart_behind(behind.offset, log_start_offset=behind.log_start_offset, epochs=behind.epochs)
        self.replica.on_cut(self.log.log_start_offset, self.log.log_end_offset, self.log.local_start_offset)
        self.snapshots.restart_at(behind.offset)
        self.replica.producer_state.load(entries, now_ms=behind.now_ms)
        self.snapshots.take(self.replica.producer_state, behind.offset, is_anew=True)
        self.replica.on_rebuilt(behind.offset)

    def cut(self, step: CutTo | RestartAt) -> int:
        """Cut the log back, or begin it anew; return how many bytes went. Store the log's epochs afterwards. Raises OSError."""
        cut_bytes = self.log.truncate_to(step.offset) if isinstance(step, CutTo) else self.log.restart_at(step.offset)
        self.replica.on_cut(self.log.log_start_offset, self.log.log_end_offset, self.log.local_start_offset)
        if isinstance(step, RestartAt):
            self.replica.producer_state.load((), now_ms=0)
            self.snapshots.restart_at(step.offset)
        elif cut_bytes:
            self.snapshots.rebuild(self.replica.producer_state, self.log)
            self.replica.producer_state.on_high_watermark(self.replica.high_watermark)
        return cut_bytes

    def take_snapshot(self) -> None:
        """A segment was rolled: the producer state is as of its beginning. Raises OSError."""
        base_offset = self.log.base_offsets[-1]
        if self.snapshots.take(self.replica.producer_state, base_offset):
            self.replica.note_snapshot(base_offset)

    def seal(self) -> None:
        """Write what a clean stop leaves beside the records. Flush and give the log back afterwards. Raises OSError."""
        self.snapshots.take(self.replica.producer_state, self.log.log_end_offset)
        self.log.seal()

    async def flush(self) -> None:
        """Make everything that was appended durable, with the epochs that a recovery believes for it, and the snapshots. Raises OSError."""
        await self.snapshots.flush()
        while self.log.owes_epochs and self.log.is_open:
            await self.log.store_epochs()
        await self.log.flush()

    @property
    def copied_end_offset(self) -> int:
        """How far followers may copy: where answers have to wait for a flush, no further than what is flushed, or they could outlive it alone.

        Kafka flushes within the append, so that nobody sees what is not on disk (UnifiedLog.append).
        """
        return self.log.flushed_offset if self.owes_flush else self.log.log_end_offset

    @property
    def owes_flush(self) -> bool:
        """Whether so many records are not durable yet that answers have to wait (log.flush.interval.messages)."""
        return self.log.log_end_offset - self.log.flushed_offset >= self.settings.flush_messages
