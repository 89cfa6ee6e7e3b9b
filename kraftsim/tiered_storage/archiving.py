"""Copies inactive segments of a led partition to remote storage, oldest first, and deletes remote
segments; both are announced before and confirmed after, so that the next leader completes them.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.producer_state.rules_entries import producer_digest, state_entries
from kraftsim.server.rules_quotas import SteadyRate
from kraftsim.tiered_storage.events import (
    EmptySnapshotWritten,
    ProducerStateCompared,
    RemoteCopyFailed,
    RemoteCopyFinished,
    RemoteCopyStarted,
    RemoteSegmentDeleted,
)
from kraftsim.tiered_storage.metadata_log import RemoteMetadataLog
from kraftsim.tiered_storage.remote_store import RemoteFile, RemoteStore
from kraftsim.tiered_storage.rules_copying import (
    CopyCandidate,
    MissingAtUpload,
    SnapshotRemedy,
    candidates,
    epochs_before,
    epochs_within,
    expired_remotely,
)
from kraftsim.tiered_storage.rules_segments import (
    RemoteSegment,
    SegmentCatalogue,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
    segment_record,
    update_record,
)
from kraftsim.world.interface import Chunk, Clock, File, FileSlice, World, YieldPoint
from protocol.storage.file_names import (
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
)
from protocol.storage.producer_snapshot import parse_producer_rows
from protocol.storage.text_files import build_leader_epoch_checkpoint
from protocol.uuids import uuid_text

# --------------------------------------------------------------------------------------------------
# Deletes remote segments: announced before, confirmed after, so that the next leader completes an
# interrupted deletion
#
# Source: RemoteLogManager (RLMExpirationTask, deleteRemoteLogSegment, deleteRemoteLogPartition).

TOPIC_DELETED = "topic deleted"
COPY_FAILED = "copy failed"


class RemoteDeletion:
    """Deletes the remote segments that a broker is responsible for."""

    def __init__(
        self, world: World, node_id: int, store: RemoteStore, metadata: RemoteMetadataLog
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._store = store
        self._metadata = metadata

    async def delete(self, segment: RemoteSegment, reason: str = COPY_FAILED) -> None:
        """Delete one segment in any state. Raises OSError."""
        if segment.state is not SegmentState.DELETE_SEGMENT_STARTED:
            await self._publish(segment, SegmentState.DELETE_SEGMENT_STARTED)
        await self._store.delete(segment)
        await self._publish(segment, SegmentState.DELETE_SEGMENT_FINISHED)
        self._world.emit(
            RemoteSegmentDeleted(
                topic=segment.owner.topic,
                partition=segment.owner.partition,
                segment_id=uuid_text(segment.segment_id),
                first_offset=segment.start_offset,
                last_offset=segment.end_offset,
                reason=reason,
            )
        )

    async def delete_expired(
        self, hosted: HostedPartition, catalogue: SegmentCatalogue
    ) -> int | None:
        """Delete the expired segments of a led partition; return the new log start offset, None if
        it is unchanged.

        Raises OSError.
        """
        replica, log = hosted.replica, hosted.log
        if not hosted.settings.retention.is_deleted:
            return None
        expiry = expired_remotely(
            catalogue.segments,
            hosted.settings.retention,
            epochs=log.epochs.starts,
            now_ms=self._world.clock.wall_ms(),
            log_start_offset=replica.log_start_offset,
            log_end_offset=replica.log_end_offset,
            local_only_bytes=sum(
                each.size_bytes
                for each in log.segments
                if each.base_offset > replica.remote_end_offset
            ),
        )
        moved = (
            expiry.log_start_offset if expiry.log_start_offset > replica.log_start_offset else None
        )
        if moved is not None:
            hosted.advance_log_start(min(moved, replica.high_watermark), "remote retention")
        for each in expiry.going:
            if replica.leader_state is None:
                break
            await self.delete(each.segment, each.reason)
        return moved

    async def delete_all(
        self, owner: TopicIdPartition, catalogue: SegmentCatalogue, reason: str = TOPIC_DELETED
    ) -> None:
        """Delete every segment of a partition. Raises OSError."""
        for segment in catalogue.segments:
            await self.delete(segment, reason)

    async def _publish(self, segment: RemoteSegment, state: SegmentState) -> None:
        update = SegmentUpdate(
            segment_id=segment.segment_id,
            owner=segment.owner,
            broker_id=self._node_id,
            event_timestamp_ms=self._world.clock.wall_ms(),
            state=state,
        )
        await self._metadata.publish(segment.owner, update_record(update))


# --------------------------------------------------------------------------------------------------
# Quotas for copies to remote storage and for consumers' reads from it; both are dynamic configs
#
# A copy over the quota waits; the whole segment is recorded before its copy starts. A read over the
# quota returns no records for now; it is recorded afterwards.
# Source: KIP-956, org.apache.kafka.server.log.remote.quota.RLMQuotaManager, RemoteLogManager (3.9).

COPY: Final = "remote.log.manager.copy.max.bytes.per.second"
FETCH: Final = "remote.log.manager.fetch.max.bytes.per.second"
LOOK_MS: Final = 1000
"""The longest wait before the quota is checked again, because it may have been raised
(RemoteLogManager.quotaTimeout).
"""


class RemoteQuota:
    """One of the two quotas. `settings()` returns the current broker configuration."""

    def __init__(
        self,
        key: str,
        *,
        windows: int,
        window_seconds: int,
        settings: Callable[[], BrokerSettings],
        clock: Clock,
    ) -> None:
        self._key = key
        self._settings = settings
        self._clock = clock
        self._rate = SteadyRate(windows, window_seconds * 1000)

    def pause_ms(self) -> int:
        """Return the time until the rate is below the quota; 0 if it is."""
        limit = self._limit
        return 0 if limit is None else self._rate.pause_ms(limit, self._clock.monotonic_ms())

    def record(self, size_bytes: int) -> None:
        """Record transferred bytes."""
        self._rate.record(size_bytes, self._clock.monotonic_ms())

    async def wait(self) -> None:
        """Wait until the rate is below the quota."""
        while pause_ms := self.pause_ms():
            await asyncio.sleep(min(pause_ms, LOOK_MS) / 1000)

    @property
    def _limit(self) -> int | None:
        """Bytes per second; None in releases before 3.8, which do not have the config and ignore it
        in properties.
        """
        settings = self._settings()
        limit = settings.value(self._key) if self._key in settings.tables.broker_defaults else None
        return None if limit is None else int(limit)


# --------------------------------------------------------------------------------------------------
# Copies inactive segments of a led partition to remote storage, oldest first; the copy is announced
# before and confirmed after
#
# A missing producer snapshot is handled by a replaceable component (`rules_copying.REMEDIES`).
# Source: RemoteLogManager.RLMCopyTask.

PIECE_BYTES = 8 << 20
NO_SNAPSHOT = "the segment has no producer snapshot behind it"
UUID_BYTES = 16


class CopyFailed(Exception):
    """A segment cannot be copied now; it is retried in the next run."""

    def __init__(self, why: str, *, was_announced: bool) -> None:
        super().__init__(why)
        self.was_announced = was_announced


class SegmentCopier:
    """Copies the segments of the partitions that a broker leads."""

    def __init__(
        self,
        world: World,
        node_id: int,
        store: RemoteStore,
        metadata: RemoteMetadataLog,
        remedy: SnapshotRemedy,
        deletion: RemoteDeletion,
        quota: RemoteQuota,
        *,
        custom_metadata_max_bytes: int,
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._store = store
        self._metadata = metadata
        self._remedy = remedy
        self._custom_metadata_max_bytes = custom_metadata_max_bytes
        self._deletion = deletion
        self._quota = quota
        self._ids = world.random("remote segment ids")

    async def copy_due(self, hosted: HostedPartition) -> int:
        """Copy the segments that are due, and return how many were copied."""
        replica = hosted.replica
        due = candidates(
            hosted.log.segments,
            remote_end_offset=replica.remote_end_offset,
            log_start_offset=replica.log_start_offset,
            last_stable_offset=replica.last_stable_offset,
        )
        if self._remedy.at_archive is MissingAtUpload.HOLD and any(
            each.next_offset not in hosted.snapshots.offsets for each in due
        ):
            return 0
        truncation_count = hosted.log.truncation_count
        for count, each in enumerate(due):
            await self._quota.wait()
            if (
                replica.leader_state is None
                or not hosted.log.is_open
                or hosted.log.truncation_count != truncation_count
            ):
                return count
            self._quota.record(each.segment.size_bytes)
            try:
                await self._copy(hosted, each)
            except (CopyFailed, OSError) as failure:
                self._world.emit(
                    RemoteCopyFailed(
                        topic=hosted.topic,
                        partition=hosted.partition,
                        first_offset=each.segment.base_offset,
                        last_offset=each.next_offset - 1,
                        was_announced=failure.was_announced
                        if isinstance(failure, CopyFailed)
                        else True,
                        reason=str(failure),
                    )
                )
                return count
        return len(due)

    async def _copy(self, hosted: HostedPartition, candidate: CopyCandidate) -> None:
        had_snapshot = candidate.next_offset in hosted.snapshots.offsets
        if not self._remedy.announces_before_looking:
            self._require_snapshot(hosted, candidate, was_announced=False)
        segment, truncation_count = self._describe(hosted, candidate), hosted.log.truncation_count
        await self._metadata.publish(segment.owner, segment_record(segment))
        self._emit_started(hosted, segment)
        if self._remedy.announces_before_looking:
            self._require_snapshot(hosted, candidate, was_announced=True)
        files = self._files(hosted, candidate)
        try:
            custom_metadata = await self._store.copy(segment, files)
        except OSError:
            await self._deletion.delete(segment)
            raise
        if custom_metadata is not None and len(custom_metadata) > self._custom_metadata_max_bytes:
            await self._deletion.delete(segment)
            raise CopyFailed(
                f"{len(custom_metadata)} bytes of custom metadata exceed the limit",
                was_announced=True,
            )
        await self._world.yield_point(YieldPoint.SEGMENT_UPLOADED)
        finished = SegmentUpdate(
            segment_id=segment.segment_id,
            owner=segment.owner,
            broker_id=self._node_id,
            event_timestamp_ms=self._world.clock.wall_ms(),
            state=SegmentState.COPY_SEGMENT_FINISHED,
            custom_metadata=custom_metadata,
        )
        producer_count = (
            self._emit_producers(hosted, candidate, is_ours=had_snapshot)
            if RemoteFile.PRODUCERS in files
            else -1
        )
        self._world.emit(
            RemoteCopyFinished(
                topic=hosted.topic,
                partition=hosted.partition,
                segment_id=uuid_text(segment.segment_id),
                first_offset=segment.start_offset,
                last_offset=segment.end_offset,
                producer_count=producer_count,
            )
        )
        await self._metadata.publish(segment.owner, update_record(finished))
        if (
            hosted.log.truncation_count == truncation_count
        ):  # otherwise the copied offset is determined by the leader epochs
            hosted.replica.remote_end_offset = max(
                hosted.replica.remote_end_offset, segment.end_offset
            )

    def _describe(self, hosted: HostedPartition, candidate: CopyCandidate) -> RemoteSegment:
        segment = candidate.segment
        transactions = hosted.log.file_of_segment(segment.base_offset, TRANSACTION_INDEX)
        return RemoteSegment(
            segment_id=self._ids.randbytes(UUID_BYTES),
            owner=TopicIdPartition(hosted.topic_id, hosted.partition, hosted.topic),
            start_offset=segment.base_offset,
            end_offset=candidate.next_offset - 1,
            max_timestamp_ms=segment.max_timestamp,
            broker_id=self._node_id,
            event_timestamp_ms=self._world.clock.wall_ms(),
            size_bytes=segment.size_bytes,
            leader_epochs=epochs_within(
                hosted.log.epochs.starts, segment.base_offset, candidate.next_offset
            ),
            is_transaction_index_empty=transactions is None,
        )

    def _emit_started(self, hosted: HostedPartition, segment: RemoteSegment) -> None:
        self._world.emit(
            RemoteCopyStarted(
                topic=hosted.topic,
                partition=hosted.partition,
                segment_id=uuid_text(segment.segment_id),
                first_offset=segment.start_offset,
                last_offset=segment.end_offset,
                size_bytes=segment.size_bytes,
                leader_epoch=hosted.replica.leader_epoch,
            )
        )

    def _require_snapshot(
        self, hosted: HostedPartition, candidate: CopyCandidate, *, was_announced: bool
    ) -> None:
        """Ensure that there is a snapshot at the end of the segment, as the remedy allows.

        Raises CopyFailed if it cannot be copied.
        """
        next_offset = candidate.next_offset
        if next_offset in hosted.snapshots.offsets:
            return
        match self._remedy.at_archive:
            case MissingAtUpload.WRITE_EMPTY:
                hosted.snapshots.add(hosted.replica.producer_state.empty_copy(), next_offset)
                self._world.emit(
                    EmptySnapshotWritten(
                        topic=hosted.topic, partition=hosted.partition, next_offset=next_offset
                    )
                )
            case MissingAtUpload.REPLAY_LOCALLY:
                state = hosted.replica.producer_state.empty_copy()
                hosted.log.replay(
                    state.replay, first_offset=hosted.log.local_start_offset, end_offset=next_offset
                )
                hosted.snapshots.add(state, next_offset)
            case MissingAtUpload.LEAVE_OUT:
                return
            case _:
                raise CopyFailed(NO_SNAPSHOT, was_announced=was_announced)

    def _files(
        self, hosted: HostedPartition, candidate: CopyCandidate
    ) -> Mapping[RemoteFile, Sequence[Chunk | FileSlice]]:
        base_offset, next_offset = candidate.segment.base_offset, candidate.next_offset
        log = hosted.log
        files: dict[RemoteFile, Sequence[Chunk | FileSlice]] = {
            RemoteFile.RECORDS: list(
                pieces_of(log.records_file(base_offset), candidate.segment.size_bytes)
            ),
            RemoteFile.OFFSETS: [log.file_of_segment(base_offset, OFFSET_INDEX) or b""],
            RemoteFile.TIMES: [log.file_of_segment(base_offset, TIME_INDEX) or b""],
            RemoteFile.LEADER_EPOCHS: [
                build_leader_epoch_checkpoint(epochs_before(log.epochs.starts, next_offset))
            ],
        }
        transactions = log.file_of_segment(base_offset, TRANSACTION_INDEX)
        if transactions is not None:
            files[RemoteFile.TRANSACTIONS] = [transactions]
        snapshot = log.file_of_segment(next_offset, PRODUCER_SNAPSHOT)
        if snapshot is not None and self._remedy.archives_snapshots:
            files[RemoteFile.PRODUCERS] = [snapshot]
        return files

    def _emit_producers(
        self, hosted: HostedPartition, candidate: CopyCandidate, *, is_ours: bool
    ) -> int:
        """Emit an event with the snapshot's producers, unless a remedy wrote it; return their
        number.
        """
        next_offset, state = candidate.next_offset, hosted.replica.producer_state
        written = hosted.log.file_of_segment(next_offset, PRODUCER_SNAPSHOT)
        entries = (
            []
            if written is None
            else list(state_entries(parse_producer_rows(written), state.entry_class))
        )
        if is_ours:
            self._world.emit(
                ProducerStateCompared(
                    topic=hosted.topic,
                    partition=hosted.partition,
                    next_offset=next_offset,
                    producer_count=len(entries),
                    digest=producer_digest(entries),
                    promised=True,
                )
            )
        return len(entries)


def pieces_of(file: File, size_bytes: int) -> Iterator[Chunk | FileSlice]:
    """Yield the slices of a file; each is read when it is uploaded."""
    assert LOG in file.path, "only records are uploaded in slices"
    for position in range(0, size_bytes, PIECE_BYTES):
        yield file.slice(position, min(PIECE_BYTES, size_bytes - position))
