"""The remote log manager of a broker: periodically copies and deletes segments of led partitions,
and follows the metadata of others.

Source: kafka.log.remote.RemoteLogManager, KIP-405.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_reading import FoundRecord
from kraftsim.partitions.rules_follower import Following
from kraftsim.server.outbound import PeerConnection, VersionRange
from kraftsim.server.shell import NodeShell
from kraftsim.tiered_storage.archiving import (
    COPY,
    FETCH,
    TOPIC_DELETED,
    RemoteDeletion,
    RemoteQuota,
    SegmentCopier,
)
from kraftsim.tiered_storage.events import RemoteRead
from kraftsim.tiered_storage.follower_rebuild import FollowerRebuild
from kraftsim.tiered_storage.metadata_log import RemoteMetadataLog
from kraftsim.tiered_storage.remote_reader import RemoteReader, RemoteRecords
from kraftsim.tiered_storage.remote_store import RemoteStore, store_location
from kraftsim.tiered_storage.rules_copying import SnapshotRemedy, highest_remote_offset
from kraftsim.tiered_storage.rules_segments import SegmentCatalogue, TopicIdPartition
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k01_fetch import AbortedTransaction, PartitionData
from protocol.records.record import MalformedBatch

DELETION_ATTEMPTS = 20
REMOTE_STORAGE_DISABLED = "remote storage disabled"


class TieredStorage:
    """The tiered storage of a broker with `remote.log.storage.system.enable`."""

    def __init__(
        self,
        shell: NodeShell,
        image: Callable[[], MetadataImage],
        hosted: Callable[[], list[HostedPartition]],
        settings: Callable[[], BrokerSettings],
        remedy: SnapshotRemedy,
        *,
        own_versions: Mapping[int, VersionRange],
        create_topic: Callable[[], None],
        on_changed: Callable[[tuple[str, int]], None],
    ) -> None:
        self._shell = shell
        self._config = shell.config
        self._image = image
        self._hosted = hosted
        self._on_changed = on_changed
        self.remedy = remedy
        location, client_settings = store_location(shell.config)
        store = RemoteStore(shell.world.objects(location, client_settings))
        node_id = shell.config.node_id
        self.metadata = RemoteMetadataLog(
            shell, image, own_versions=own_versions, create_topic=create_topic
        )
        self._deletion = RemoteDeletion(shell.world, node_id, store, self.metadata)
        clock, config = shell.world.clock, shell.config
        copy_quota = RemoteQuota(
            COPY,
            windows=config.remote_log_manager_copy_quota_window_num,
            window_seconds=config.remote_log_manager_copy_quota_window_size_seconds,
            settings=settings,
            clock=clock,
        )
        self._read_quota = RemoteQuota(
            FETCH,
            windows=config.remote_log_manager_fetch_quota_window_num,
            window_seconds=config.remote_log_manager_fetch_quota_window_size_seconds,
            settings=settings,
            clock=clock,
        )
        self._copier = SegmentCopier(
            shell.world,
            node_id,
            store,
            self.metadata,
            remedy,
            self._deletion,
            copy_quota,
            custom_metadata_max_bytes=shell.config.remote_log_metadata_custom_metadata_max_bytes,
        )
        self._reader = RemoteReader(shell.world, store, self.catalogue_of)
        self._rebuild = FollowerRebuild(shell.world, node_id, self._reader, remedy)
        self._busy: dict[tuple[str, int], None] = {}
        """Partitions with a task that runs or waits for a slot."""
        self._slots = asyncio.Semaphore(shell.config.remote_log_manager_thread_pool_size)
        self._pending_reads = 0

    # Startup and shutdown
    # ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the periodic task for all partitions."""
        self._shell.tasks.spawn(self._run(), "tiered storage")

    def close(self) -> None:
        """Close all connections."""
        self.metadata.close()

    def abort(self) -> None:
        """Close every connection at once, like a killed process."""
        self.metadata.abort()

    async def _run(self) -> None:
        while True:
            self.metadata.start_readers()
            for hosted in self._hosted():
                if hosted.log.is_tiered and hosted.key not in self._busy:
                    self._busy[hosted.key] = None
                    self._shell.tasks.spawn(
                        self._run_task(hosted), f"tiering of {hosted.topic}-{hosted.partition}"
                    )
            await asyncio.sleep(self._config.remote_log_manager_task_interval_ms / 1000)

    async def _run_task(self, hosted: HostedPartition) -> None:
        try:
            async with self._slots:
                await self._tier(hosted)
        except OSError:
            return  # remote storage or a metadata leader is not available: retried in the next run
        finally:
            del self._busy[hosted.key]

    async def _tier(self, hosted: HostedPartition) -> None:
        catalogue = self.catalogue_of(hosted)
        if catalogue is None or not hosted.log.is_open:
            return
        replica = hosted.replica
        highest = highest_remote_offset(catalogue, hosted.log.epochs.starts, replica.log_end_offset)
        replica.remote_end_offset = max(replica.remote_end_offset, highest)
        if not replica.is_leader:
            return
        if hosted.settings.tiering.copies:
            await self._copier.copy_due(hosted)
        if replica.is_leader and await self._deletion.delete_expired(hosted, catalogue) is not None:
            await hosted.log.store_epochs()
            self._on_changed(hosted.key)

    # Used by others
    # ----------------------------------------------------------------------------------------------

    def catalogue_of(self, hosted: HostedPartition) -> SegmentCatalogue | None:
        """Return the known remote segments of a partition; None while they are not loaded."""
        return self.metadata.catalogue(owner_of(hosted))

    async def read(
        self,
        hosted: HostedPartition,
        offset: int,
        bytes_max: int,
        *,
        at_least_one: bool,
        reads_committed: bool,
    ) -> RemoteRecords | Refusal | None:
        """Read for a consumer, for at most remote.fetch.max.wait.ms; None on timeout."""
        if self._pending_reads >= self._config.remote_log_reader_max_pending_tasks:
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "too many pending remote reads")
        self._pending_reads += 1
        try:
            async with asyncio.timeout(self._config.remote_fetch_max_wait_ms / 1000):
                while self.catalogue_of(hosted) is None:
                    await asyncio.sleep(0.05)
                await self._read_quota.wait()
                found = await self._reader.read(
                    hosted,
                    offset,
                    bytes_max,
                    at_least_one=at_least_one,
                    reads_committed=reads_committed,
                )
        except TimeoutError:
            found = None
        except MalformedBatch as malformed:
            found = Refusal(malformed.error_code, malformed.reason)
        except (OSError, MalformedMessage) as failure:
            found = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, str(failure))
        finally:
            self._pending_reads -= 1
        size_bytes = len(found.records) if isinstance(found, RemoteRecords) else 0
        self._read_quota.record(size_bytes)
        reason = (
            found.why if isinstance(found, Refusal) else "" if found is not None else "time out"
        )
        self._shell.world.emit(
            RemoteRead(
                topic=hosted.topic,
                partition=hosted.partition,
                fetch_offset=offset,
                size_bytes=size_bytes,
                reason=reason,
            )
        )
        return found

    async def find_timestamp(self, hosted: HostedPartition, timestamp: int) -> FoundRecord | None:
        """Return the first remote record at or after a timestamp.

        Raises OSError, and MalformedMessage for damaged objects.
        """
        return await self._reader.find_timestamp(hosted, timestamp)

    async def rebuild(
        self,
        hosted: HostedPartition,
        following: Following,
        connection: PeerConnection,
        log_start_offset: int,
    ) -> str | None:
        """Restart a follower's log after the leader's remote-only offsets; return the reason if
        that is not possible now.

        Raises OSError.
        """
        return await self._rebuild.rebuild(
            hosted, following, connection, self.catalogue_of(hosted), log_start_offset
        )

    def refuse_topic(self, topic: str) -> Refusal | None:
        """Return why remote storage cannot be enabled for a topic, by the replicas on this broker
        and if the remedy checks it at all.
        """
        if not self.remedy.refuses_topics:
            return None
        for hosted in self._hosted():
            bases = hosted.log.base_offsets[1:] if hosted.topic == topic else []
            if any(base_offset not in hosted.snapshots.offsets for base_offset in bases):
                return Refusal(
                    ErrorCode.INVALID_CONFIG,
                    f"Partition {hosted.partition} has segments without producer snapshots",
                )
        return None

    def on_tiering(self, hosted: HostedPartition) -> None:
        """Remote storage was enabled or disabled, or the topic deleted: in the last two cases the
        leader deletes the remote segments.
        """
        topic = self._image().topic_by_id(hosted.topic_id)
        if topic is not None:
            self._shell.tasks.spawn(
                self._store_epochs(hosted), f"epochs of {hosted.topic}-{hosted.partition}"
            )
        is_over = hosted.log.is_tiered if topic is None else not hosted.log.is_tiered
        if is_over and hosted.replica.is_leader:
            reason = TOPIC_DELETED if topic is None else REMOTE_STORAGE_DISABLED
            self._shell.tasks.spawn(
                self._delete_all(owner_of(hosted), reason),
                f"remote deletion of {hosted.topic}-{hosted.partition}",
            )

    async def _store_epochs(self, hosted: HostedPartition) -> None:
        """Store the leader epochs of a log with a new local start; an I/O error is handled by the
        next write.
        """
        try:
            await hosted.log.store_epochs()
        except OSError:
            return

    async def _delete_all(self, owner: TopicIdPartition, reason: str) -> None:
        for _ in range(DELETION_ATTEMPTS):
            catalogue = self.metadata.catalogue(owner)
            if catalogue is not None:
                try:
                    await self._deletion.delete_all(owner, catalogue, reason)
                    return
                except OSError:
                    pass  # retried
            await asyncio.sleep(self._config.remote_log_manager_task_interval_ms / 1000)


def owner_of(hosted: HostedPartition) -> TopicIdPartition:
    """Return the identity of a partition in remote storage."""
    return TopicIdPartition(hosted.topic_id, hosted.partition, hosted.topic)


class TieredBroker(Protocol):
    """A broker that may have tiered storage."""

    @property
    def tiered(self) -> TieredStorage | None:
        """The remote log manager; None if tiered storage is disabled."""
        ...


# --------------------------------------------------------------------------------------------------
# The part of a Fetch response that is read from remote storage
#
# Source: kafka.server.DelayedRemoteFetch, RemoteLogReader.

NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class RemoteWish:
    """A read from an offset on with a size limit; its records go into the response row of the
    partition.
    """

    hosted: HostedPartition
    answer: PartitionData
    offset: int
    bytes_max: int
    reads_committed: bool


async def fill_from_remote(broker: TieredBroker, wish: RemoteWish, *, at_least_one: bool) -> int:
    """Read the records into the response, and return their size; 0 if the read timed out."""
    assert broker.tiered is not None, "a tiered log exists only if remote storage is enabled"
    found = await broker.tiered.read(
        wish.hosted,
        wish.offset,
        wish.bytes_max,
        at_least_one=at_least_one,
        reads_committed=wish.reads_committed,
    )
    answer = wish.answer
    if isinstance(found, Refusal):
        answer.error_code = found.error
        answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = NO_OFFSET
        answer.aborted_transactions = None
        return 0
    if found is None:
        return 0
    answer.records = found.records
    if wish.reads_committed:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in found.aborted
        ]
    return len(found.records)
