"""One partition on this broker: its log on disk, and the state machine of its replica.

Source: kafka.cluster.Partition.
"""

import asyncio
from collections.abc import Callable, Iterable

from msgspec import Struct

from kraftsim.core.decision import Refusal
from kraftsim.metadata.topic_settings import TopicSettings
from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_directory import LogDirectory
from kraftsim.partitions.producer_snapshots import ProducerSnapshots
from kraftsim.partitions.rules_append import AppendDecision, NothingToAppend, UncheckedRecords
from kraftsim.partitions.rules_follower import Accept, RestartAt, TruncateTo
from kraftsim.partitions.rules_leader import LeaderState
from kraftsim.partitions.rules_replica import PartitionReplica
from kraftsim.partitions.rules_replica_log import NO_REMOTE_OFFSET
from kraftsim.producer_state.rules_entries import Duplicate, ProducerStateEntry
from kraftsim.producer_state.rules_manager import EndMarker
from kraftsim.tiered_storage.rules_reading import RestartBehind
from protocol.malformed import MalformedMessage
from protocol.messages.k01_fetch import FetchPartition, PartitionData
from protocol.records.batches import RecordBatch, split_batches
from protocol.records.record import MalformedBatch

# --------------------------------------------------------------------------------------------------
# A cache of unchanged fetch rows: followers fetch every partition again and again, and most of the
# time nothing has changed.
#
# A follower of a thousand partitions sends only changed ones, but every Fetch covers all of them.
# Source: KIP-227 defines "unchanged".


class _UnchangedRow(Struct, frozen=True):
    asked: FetchPartition
    leader_state: LeaderState
    row: PartitionData


class UnchangedRows:
    """The cached rows of one partition, by follower."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, _UnchangedRow] = {}

    def keep(
        self, follower_id: int, asked: FetchPartition, replica: PartitionReplica, row: PartitionData
    ) -> None:
        """Cache a row without records and without an error."""
        if replica.leader_state is not None:
            self._rows[follower_id] = _UnchangedRow(asked, replica.leader_state, row)

    def find(
        self, follower_id: int, asked: FetchPartition, replica: PartitionReplica
    ) -> PartitionData | None:
        """Return the cached row if the same fetch would still have the same response."""
        cached = self._rows.get(follower_id)
        if (
            cached is None
            or cached.asked is not asked
            or cached.leader_state is not replica.leader_state
            or follower_id not in cached.leader_state.followers
        ):
            return None
        row = cached.row
        is_same = (
            asked.fetch_offset == replica.log_end_offset
            and row.high_watermark == replica.high_watermark
            and row.log_start_offset == replica.log_start_offset
        )
        return row if is_same else None


class HostedPartition:
    """A partition that this broker hosts. `replica` has its leader or follower state."""

    __slots__ = (
        "home",
        "is_uncleanable",
        "log",
        "partition",
        "replica",
        "settings",
        "snapshots",
        "topic",
        "topic_id",
        "unchanged_rows",
    )

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
        """The log directory that hosts it."""
        self.is_uncleanable = False
        """Whether the cleaner found an unreadable batch."""
        self.unchanged_rows = UnchangedRows()

    @property
    def key(self) -> tuple[str, int]:
        """Topic and number."""
        return self.topic, self.partition

    def append(
        self, batch: RecordBatch, acks: int, now_ms: int, guard: int | None = None
    ) -> AppendDecision | Duplicate | Refusal:
        """Append the batch of a client, or return the error.

        `guard`: the verification guard that `begin_verification` returned.

        Raises OSError: then the log is lost and its directory must be failed.
        """
        decision = self.replica.decide_append(batch, acks, now_ms, guard)
        if isinstance(decision, AppendDecision):
            self._write(decision, now_ms)
        return decision

    def append_of_any_format(
        self, records: UncheckedRecords, acks: int, now_ms: int
    ) -> AppendDecision | Duplicate | NothingToAppend | Refusal:
        """Append the records of a Produce request before version 3. Otherwise like `append`."""
        decision = self.replica.decide_append_of_any_format(records, acks, now_ms)
        if isinstance(decision, AppendDecision):
            self._write(decision, now_ms)
        return decision

    def append_by_coordinator(
        self, batch: RecordBatch, acks: int, now_ms: int, guard: int | None = None
    ) -> AppendDecision | Refusal:
        """Append the batch of a coordinator on this broker, or return the error.

        Raises OSError as `append` does.
        """
        decision = self.replica.decide_coordinated(batch, acks, now_ms, guard)
        if isinstance(decision, AppendDecision):
            self._write(decision, now_ms)
        return decision

    def append_marker(self, marker: EndMarker, now_ms: int) -> AppendDecision | Refusal:
        """Append a transaction marker, or return the error. Raises OSError as `append` does."""
        decision = self.replica.decide_marker(marker, now_ms)
        if isinstance(decision, AppendDecision):
            self._write(decision, now_ms)
        return decision

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        adds: bool = False,
    ) -> int | Refusal | None:
        """Return the verification guard for an append after verification, None if none is required,
        or the error of the append.
        """
        return self.replica.begin_verification(
            producer_id, producer_epoch, base_sequence, now_ms, adds=adds
        )

    def _write(self, decision: AppendDecision, now_ms: int) -> None:
        self.log.append(
            decision.chunks,
            first_offset=decision.first_offset,
            last_offset=decision.last_offset,
            size_bytes=decision.batch.size_bytes,
            max_timestamp=decision.max_timestamp,
            leader_epoch=decision.leader_epoch,
        )
        aborted = self.replica.apply_append(decision)
        if aborted is not None:
            self.log.add_aborted(aborted)
        self.replica.advance_alone(now_ms)

    def copy(self, records: bytes | memoryview, accepted: Accept) -> bool:
        """Append fetched records, and return whether the range visible to consumers has changed.

        Raises MalformedBatch for an invalid batch: all batches before it are in the log. Raises
        OSError: then the log is lost.
        """
        replica, log = self.replica, self.log
        try:
            for batch in split_batches(records):
                if not batch.crc_is_valid():
                    raise MalformedBatch(
                        f"the batch at offset {batch.base_offset} has an invalid checksum", 0
                    )
                if batch.base_offset < replica.log_end_offset:
                    raise MalformedBatch(
                        f"received offset {batch.base_offset}, expected {replica.log_end_offset}", 0
                    )
                log.append(
                    [batch.view()],
                    first_offset=batch.base_offset,
                    last_offset=batch.last_offset,
                    size_bytes=batch.size_bytes,
                    max_timestamp=batch.max_timestamp,
                    leader_epoch=batch.partition_leader_epoch,
                )
                aborted = replica.append_replicated(batch)
                if aborted is not None:
                    log.add_aborted(aborted)
        finally:
            has_moved = replica.on_replicated(accepted.high_watermark)
        return self.advance_log_start(accepted.log_start_offset, "the leader's") or has_moved

    def advance_log_start(self, log_start_offset: int, reason: str) -> bool:
        """Advance the log start offset, and return whether it has changed.

        Store the log's leader epochs afterwards.
        """
        if not self.replica.advance_log_start(log_start_offset, reason):
            return False
        self.log.advance_log_start(log_start_offset)
        return True

    def delete_expired(self, now_ms: int) -> bool:
        """Delete expired segments, and return whether the log start offset has advanced.

        Raises OSError.
        """
        has_moved = False
        replica, tiering = self.replica, self.settings.tiering
        rules = (
            tiering.local_retention(self.settings.retention)
            if self.log.is_tiered and tiering.copies
            else self.settings.retention
        )
        remote_end = replica.remote_end_offset if self.log.is_tiered and tiering.copies else None
        if remote_end is not None and rules.is_deleted:
            self.log.roll_expired(rules, now_ms=now_ms)
        while True:
            gone = self.log.delete_expired(
                rules,
                now_ms=now_ms,
                high_watermark=replica.high_watermark,
                remote_end_offset=remote_end,
            )
            if gone is None:
                return has_moved
            self.snapshots.remove_before(self.log.base_offsets[0])
            replica.set_local_start(self.log.local_start_offset)
            has_moved = (
                self.advance_log_start(self.log.log_start_offset, gone.reason.value) or has_moved
            )

    def tier(self, is_tiered: bool) -> bool:
        """Enable or disable remote storage for the log, and return whether that is a change.

        Store its leader epochs afterwards.
        """
        if self.log.is_tiered is is_tiered:
            return False
        self.log.tier(is_tiered)
        self.replica.is_tiered = is_tiered
        if not is_tiered:
            self.replica.remote_end_offset = NO_REMOTE_OFFSET
            self.advance_log_start(self.log.log_start_offset, "remote storage disabled")
        return True

    def rebuild_behind(self, behind: RestartBehind, entries: Iterable[ProducerStateEntry]) -> None:
        """Restart the log after the remote segments, with the producer state of their end.

        Store its leader epochs afterwards. Raises OSError.
        """
        self.log.restart_behind(
            behind.offset, log_start_offset=behind.log_start_offset, epochs=behind.epochs
        )
        self.replica.on_truncated(
            self.log.log_start_offset, self.log.log_end_offset, self.log.local_start_offset
        )
        self.snapshots.restart_at(behind.offset)
        self.replica.producer_state.load(entries, now_ms=behind.now_ms)
        self.snapshots.take(self.replica.producer_state, behind.offset, is_replaced=True)
        self.replica.on_rebuilt(behind.offset)

    def truncate(self, step: TruncateTo | RestartAt) -> int:
        """Truncate or restart the log; return the number of bytes removed.

        Store its leader epochs afterwards. Raises OSError.
        """
        truncated_bytes = (
            self.log.truncate_to(step.offset)
            if isinstance(step, TruncateTo)
            else self.log.restart_at(step.offset)
        )
        self.replica.on_truncated(
            self.log.log_start_offset, self.log.log_end_offset, self.log.local_start_offset
        )
        if isinstance(step, RestartAt):
            self.replica.producer_state.load((), now_ms=0)
            self.snapshots.restart_at(step.offset)
        elif truncated_bytes:
            self.snapshots.rebuild(self.replica.producer_state, self.log)
            self.replica.producer_state.on_high_watermark(self.replica.high_watermark)
        return truncated_bytes

    def take_snapshot(self) -> None:
        """Take a producer snapshot at the base offset of the segment that was just rolled.

        Raises OSError.
        """
        base_offset = self.log.base_offsets[-1]
        if self.snapshots.take(self.replica.producer_state, base_offset):
            self.replica.on_snapshot_taken(base_offset)

    def seal(self) -> None:
        """Write the files of a clean shutdown beside the records.

        Flush and close the log afterwards. Raises OSError.
        """
        self.snapshots.take(self.replica.producer_state, self.log.log_end_offset)
        self.log.seal()

    async def flush(self) -> None:
        """Flush all appended records, the snapshots, and the leader epochs that recovery relies on.

        Raises OSError.
        """
        await self.snapshots.flush()
        while self.log.owes_epochs and self.log.is_open:
            await self.log.store_epochs()
        await self.log.flush()

    @property
    def follower_end_offset(self) -> int:
        """The end offset for follower fetches: the flushed offset while responses must wait for a
        flush, or a follower's records could survive those of the leader.

        Kafka flushes within the append, so that no record is visible before it is on disk
        (UnifiedLog.append).
        """
        return self.log.flushed_offset if self.owes_flush else self.log.log_end_offset

    @property
    def owes_flush(self) -> bool:
        """Whether so many records are unflushed that responses must wait
        (log.flush.interval.messages).
        """
        return self.log.log_end_offset - self.log.flushed_offset >= self.settings.flush_messages


# --------------------------------------------------------------------------------------------------
# Loads a coordinator partition: reads the whole log, one buffer at a time, and yields to other
# tasks in between
#
# Source: kafka.coordinator.group.GroupMetadataManager.doLoadGroupsAndOffsets,
# TransactionStateManager.loadTransactionMetadata.


async def read_back(
    hosted: HostedPartition,
    *,
    buffer_size: int,
    is_wanted: Callable[[], bool],
    replay: Callable[[RecordBatch], None],
) -> int:
    """Replay a log from its start to its end, and return the next offset. Raises OSError.

    Markers can be appended during loading: when this returns, everything in the log has been
    replayed. A batch that cannot be read ends the loading, and the batches before it are kept, as
    in Kafka; loading also ends when `is_wanted` returns False.
    """
    log = hosted.log
    offset = log.log_start_offset
    try:
        while offset < log.log_end_offset and is_wanted():
            read = log.read(offset, buffer_size, log.log_end_offset)
            next_offset = offset
            for batch in split_batches(read):
                replay(batch)
                next_offset = batch.next_offset
            if next_offset == offset:
                break
            offset = next_offset
            await asyncio.sleep(0)
    except MalformedMessage:
        pass
    return offset
