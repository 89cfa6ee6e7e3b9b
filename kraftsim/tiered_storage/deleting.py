"""Deletes remote segments: announced before, confirmed after, so that the next leader completes an
interrupted deletion.

Source: RemoteLogManager (RLMExpirationTask, deleteRemoteLogSegment, deleteRemoteLogPartition).
"""

from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.tiered_storage.events import RemoteSegmentDeleted
from kraftsim.tiered_storage.metadata_log import RemoteMetadataLog
from kraftsim.tiered_storage.remote_store import RemoteStore
from kraftsim.tiered_storage.rules_copying import expired_remotely
from kraftsim.tiered_storage.rules_segments import (
    RemoteSegment,
    SegmentCatalogue,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
    update_record,
)
from kraftsim.world.interface import World
from protocol.uuids import uuid_text

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
