"""Restarts a follower's log after the offsets that its leader has in remote storage only, with the
leader epochs and producer state from there.

Source: kafka.server.TierStateMachine, KIP-405.
"""

from dataclasses import dataclass

from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.rules_follower import Following
from kraftsim.producer_state.rules_entries import ProducerStateEntry, producer_digest, state_entries
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.server.outbound import PeerConnection
from kraftsim.tiered_storage.events import ProducerStateCompared, RebuiltFromRemote
from kraftsim.tiered_storage.remote_reader import RemoteReader
from kraftsim.tiered_storage.remote_store import RemoteFile
from kraftsim.tiered_storage.rules_copying import MissingAtRebuild, SnapshotRemedy
from kraftsim.tiered_storage.rules_reading import (
    LeaderBounds,
    NotThere,
    RestartBehind,
    epoch_before,
    needs_earlier_epoch,
    segment_before,
)
from kraftsim.tiered_storage.rules_segments import RemoteSegment, SegmentCatalogue
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedFile, MalformedMessage
from protocol.messages.k02_list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.storage.producer_snapshot import parse_producer_rows
from protocol.storage.text_files import parse_leader_epoch_checkpoint
from protocol.uuids import uuid_text

FIRST_VERSION_WITH_EARLIEST_LOCAL = 8


@dataclass(slots=True)
class RebuiltProducers:
    """The producer state at the end of a segment, and how many bytes were replayed to build it."""

    entries: list[ProducerStateEntry]
    replayed_bytes: int = 0


class FollowerRebuild:
    """Rebuilds the followed partitions of a broker."""

    def __init__(
        self, world: World, node_id: int, reader: RemoteReader, remedy: SnapshotRemedy
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._reader = reader
        self._remedy = remedy

    async def rebuild(
        self,
        hosted: HostedPartition,
        following: Following,
        connection: PeerConnection,
        catalogue: SegmentCatalogue | None,
        log_start_offset: int,
    ) -> str | None:
        """Restart the log; return the reason if that is not possible now.

        Raises OSError of remote storage, connection, or disk.
        """
        if catalogue is None:
            return "the remote log metadata is not loaded yet"
        bounds = await self._bounds(hosted, following, connection, log_start_offset)
        if isinstance(bounds, str):
            return bounds
        leader_epoch = bounds.local_start_epoch
        if needs_earlier_epoch(bounds):
            earlier = await self._earlier_epoch(hosted, following, connection, bounds)
            if isinstance(earlier, str):
                return earlier
            leader_epoch = epoch_before(bounds, *earlier)
        segment = segment_before(catalogue, bounds, leader_epoch)
        if isinstance(segment, NotThere):
            return segment.why
        checkpoint = await self._reader.file(segment, RemoteFile.LEADER_EPOCHS)
        rebuilt = await self._producers(hosted, segment, catalogue)
        if checkpoint is None or isinstance(rebuilt, str):
            return (
                rebuilt if isinstance(rebuilt, str) else "the remote segment has no leader epochs"
            )
        if hosted.replica.following is not following or not hosted.log.is_open:
            return None  # the leader has changed in the meantime
        try:
            epochs = tuple(
                each
                for each in parse_leader_epoch_checkpoint(checkpoint)
                if each.start_offset <= segment.end_offset
            )
        except MalformedMessage as malformed:
            return str(malformed)
        behind = RestartBehind(
            offset=segment.end_offset + 1,
            log_start_offset=bounds.log_start_offset,
            epochs=epochs,
            now_ms=self._world.clock.wall_ms(),
        )
        hosted.rebuild_behind(behind, rebuilt.entries)
        self._world.emit(
            RebuiltFromRemote(
                topic=hosted.topic,
                partition=hosted.partition,
                segment_id=uuid_text(segment.segment_id),
                next_offset=behind.offset,
                producer_count=len(hosted.replica.producer_state.entries),
                replayed_bytes=rebuilt.replayed_bytes,
                remedy=self._remedy.name,
            )
        )
        known = hosted.replica.producer_state.entries
        self._world.emit(
            ProducerStateCompared(
                topic=hosted.topic,
                partition=hosted.partition,
                next_offset=behind.offset,
                producer_count=len(known),
                digest=producer_digest(known.values()),
                promised=self._remedy.promises_equal_state and len(known) == len(rebuilt.entries),
            )
        )
        await hosted.home.lower_recovery_point(hosted.key, hosted.log.flushed_offset)
        await hosted.log.store_epochs()
        return None

    # Requests to the leader
    # ----------------------------------------------------------------------------------------------

    async def _bounds(
        self,
        hosted: HostedPartition,
        following: Following,
        connection: PeerConnection,
        log_start_offset: int,
    ) -> LeaderBounds | str:
        asked = ListOffsetsPartition(
            partition_index=hosted.partition,
            current_leader_epoch=following.leader_epoch,
            timestamp=EARLIEST_LOCAL_TIMESTAMP,
        )
        if connection.version_for(ApiKey.LIST_OFFSETS) < FIRST_VERSION_WITH_EARLIEST_LOCAL:
            return "the leader does not support EARLIEST_LOCAL_TIMESTAMP"
        request = ListOffsetsRequest(
            replica_id=self._node_id,
            topics=[ListOffsetsTopic(name=hosted.topic, partitions=[asked])],
        )
        answer = await connection.request(request)
        assert isinstance(answer, ListOffsetsResponse), "the response of ListOffsets"
        row = answer.topics[0].partitions[0]
        if row.error_code:
            return ErrorCode(row.error_code).name
        return LeaderBounds(
            local_start_offset=row.offset,
            local_start_epoch=row.leader_epoch,
            log_start_offset=max(log_start_offset, 0),
        )

    async def _earlier_epoch(
        self,
        hosted: HostedPartition,
        following: Following,
        connection: PeerConnection,
        bounds: LeaderBounds,
    ) -> tuple[int, int] | str:
        asked = OffsetForLeaderPartition(
            partition=hosted.partition,
            current_leader_epoch=following.leader_epoch,
            leader_epoch=bounds.local_start_epoch - 1,
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._node_id,
            topics=[OffsetForLeaderTopic(topic=hosted.topic, partitions=[asked])],
        )
        answer = await connection.request(request)
        assert isinstance(answer, OffsetForLeaderEpochResponse), (
            "the response of OffsetForLeaderEpoch"
        )
        row = answer.topics[0].partitions[0]
        return (
            ErrorCode(row.error_code).name if row.error_code else (row.leader_epoch, row.end_offset)
        )

    # Producers
    # ----------------------------------------------------------------------------------------------

    async def _producers(
        self, hosted: HostedPartition, segment: RemoteSegment, catalogue: SegmentCatalogue
    ) -> RebuiltProducers | str:
        """Return the producer state at the end of a segment, or why it is not available."""
        state = hosted.replica.producer_state
        entries = await self._snapshot(segment, state)
        if entries is not None:
            return entries if isinstance(entries, str) else RebuiltProducers(entries)
        match self._remedy.at_rebuild:
            case MissingAtRebuild.REQUIRE:
                return "the remote segment has no producer snapshot"
            case MissingAtRebuild.BEGIN_EMPTY:
                return RebuiltProducers([])
            case MissingAtRebuild.REPLAY_ALL:
                return await self._replayed(segment, catalogue, state, oldest_ms=None)
            case MissingAtRebuild.REPLAY_YOUNGER:
                return await self._replayed(
                    segment,
                    catalogue,
                    state,
                    oldest_ms=self._world.clock.wall_ms() - state.expiration_ms,
                )

    async def _snapshot(
        self, segment: RemoteSegment, state: ProducerStateManager
    ) -> list[ProducerStateEntry] | str | None:
        written = await self._reader.file(segment, RemoteFile.PRODUCERS)
        if written is None:
            return None
        try:
            entries = list(state_entries(parse_producer_rows(written), state.entry_class))
        except MalformedFile as malformed:
            return str(malformed)
        later = [entry for entry in entries if entry.last_offset > segment.end_offset]
        return "the producer snapshot is of a later segment" if later else entries

    async def _replayed(
        self,
        segment: RemoteSegment,
        catalogue: SegmentCatalogue,
        state: ProducerStateManager,
        *,
        oldest_ms: int | None,
    ) -> RebuiltProducers | str:
        """Go back to a segment with a snapshot, to the first that is older than the limit, or to
        the first of all; then replay forward.
        """
        chain: list[RemoteSegment] = []
        entries: list[ProducerStateEntry] = []
        at: RemoteSegment | None = segment
        while at is not None and (oldest_ms is None or at.max_timestamp_ms >= oldest_ms):
            chain.append(at)
            earlier = self._before(at, catalogue)
            found = None if earlier is None else await self._snapshot(earlier, state)
            if isinstance(found, str):
                return found
            if found is not None:
                entries = found
                break
            at = earlier
        replaying = state.empty_copy()
        replaying.load(entries, self._world.clock.wall_ms())
        replayed_bytes = 0
        for each in reversed(chain):
            async for batch in self._reader.batches(each, each.start_offset):
                replaying.replay(batch)
            replayed_bytes += each.size_bytes
        return RebuiltProducers(list(replaying.entries.values()), replayed_bytes)

    def _before(self, segment: RemoteSegment, catalogue: SegmentCatalogue) -> RemoteSegment | None:
        """Return the segment that ends where this one starts, of the same or an earlier leader
        epoch.
        """
        first_epoch = segment.leader_epochs[0].leader_epoch
        for leader_epoch in (
            each for each in reversed(catalogue.leader_epochs) if each <= first_epoch
        ):
            found = catalogue.holding(leader_epoch, segment.start_offset - 1)
            if found is not None:
                return found
        return None
