"""Controller requests in ZooKeeper mode: decided, applied and answered one at a time, in the order
of arrival.

Source: kafka.server.KafkaApis.{handleLeaderAndIsrRequest, handleUpdateMetadataRequest,
handleStopReplicaRequest} (replicaStateChangeLock).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage
from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_directory import PartitionKey
from kraftsim.partitions.partitions import Partitions
from kraftsim.partitions.replication import Replication
from kraftsim.server.call import Answer, Call, Deferred
from kraftsim.server.large_requests import or_refused
from kraftsim.zookeeper.config_watch import ConfigWatch, Load
from kraftsim.zookeeper.rules_received_metadata import (
    LocalPartition,
    MetadataUpdate,
    ReceivedMetadata,
    refuse_broker_epoch,
)
from protocol.errors import ErrorCode
from protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.messages.k05_stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from protocol.messages.k06_update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from protocol.storage.file_names import partition_directory_name
from protocol.uuids import ZERO_UUID

# --------------------------------------------------------------------------------------------------
# Partition hosting in ZooKeeper mode: the controller's requests decide which replicas the broker
# holds, not the metadata log
#
# The controller's requests are meant for this incarnation: requests with another broker epoch are
# refused earlier. A stopped replica stays on disk unless the request deletes it.
# Source: kafka.server.ReplicaManager.{stopReplicas, becomeLeaderOrFollower, updateStrayLogs},
# kafka.cluster.Partition.isReplicaIsrEligible.

STRAY_SUFFIX = "-stray"
NO_LEADER_EPOCH = -1


class ControlledPartitions(Partitions):
    """`Partitions` with the operations that LeaderAndIsr and StopReplica need."""

    def held(self, topic: str, partition: int) -> LocalPartition | None:
        """Return the local state of a partition; None if it is neither hosted nor offline."""
        if self.is_offline(topic, partition):
            return LocalPartition(leader_epoch=NO_LEADER_EPOCH, topic_id=None, is_offline=True)
        hosted = self.find(topic, partition)
        if hosted is None:
            owner = self._owner(topic, partition)
            return (
                None
                if owner is None
                else LocalPartition(leader_epoch=NO_LEADER_EPOCH, topic_id=owner)
            )
        return LocalPartition(leader_epoch=hosted.replica.leader_epoch, topic_id=hosted.topic_id)

    def _owner(self, topic: str, partition: int) -> bytes | None:
        """Return the topic id of a log left by an earlier run; None if there is no log, or it has
        no topic id.
        """
        for home in self.directories.online:
            if home.world.disk.list(partition_directory_name(topic, partition)):
                owner = PartitionLog(home.world, topic, partition).stored_topic_id()
                if owner is not None:
                    return owner
        return None

    async def name_topic(self, topic: str, topic_id: bytes) -> None:
        """Persist the topic id of a log that had none."""
        for hosted in self.hosted():
            if hosted.topic == topic:
                hosted.topic_id = topic_id
                await self._in(hosted.home, "write", partial(hosted.log.store_topic_id, topic_id))

    async def stop_replica(self, key: PartitionKey, *, deletes: bool) -> None:
        """Stop serving a partition; with `deletes` delete its log, even if it was not opened in
        this run.
        """
        async with self._following:
            hosted = self._hosted.get(key)
            if not deletes:
                if hosted is not None:
                    self._replication.leave(key)
                return
            if hosted is not None:
                await self._delete(hosted)
            directory = partition_directory_name(*key)
            for home in self.directories.online:
                if home.world.disk.list(directory):
                    await self._delete_files(home, directory)

    async def keep_only(self, keys: Collection[PartitionKey]) -> None:
        """Rename replicas that a full LeaderAndIsr request does not contain: their topics were
        deleted while this broker was offline.
        """
        async with self._following:
            for hosted in self.hosted():
                if hosted.key not in keys:
                    self._stand_down(hosted)
                    await self.moves.cancel(hosted.key)
                    async with hosted.log.gate:
                        hosted.log.abort()
                        del self._hosted[hosted.key]
                        hosted.home.forget(hosted.key)
                        hosted.home.world.disk.move_directory(
                            hosted.log.directory, f"{hosted.log.directory}{STRAY_SUFFIX}"
                        )
                    self._on_changed(hosted.key)

    def _is_meant(self, image: MetadataImage) -> bool:
        """All assignments are meant for this incarnation."""
        return True


class ControlledReplication(Replication):
    """`Replication` without knowledge of broker epochs: every live broker may join the ISR."""

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a follower may join the ISR."""
        return self._image().broker(broker_id) is not None


FIRST_VERSION_BY_TOPIC_ID = 5
Refuse = Callable[[Call, ErrorCode], Answer]


class ReceivingMode(Protocol):
    """The mode of the broker that receives the requests."""

    @property
    def image(self) -> MetadataImage:
        """The metadata image that requests are applied to."""
        ...

    @property
    def configs(self) -> ConfigWatch:
        """The configs of topics in ZooKeeper."""
        ...

    def epoch_for(self, *, is_kraft: bool) -> int:
        """Return the epoch by which a controller knows this broker."""
        ...

    async def publish(self, changes: ImageChanges) -> None:
        """Publish changes of the image to the broker."""
        ...


class ControlRequests:
    """`on_controller_request` is called whenever a request has identified the controller."""

    def __init__(
        self,
        mode: ReceivingMode,
        received: ReceivedMetadata,
        partitions: Callable[[], Partitions],
        on_controller_request: Callable[[], None],
    ) -> None:
        self._mode = mode
        self._received = received
        self._hosted = partitions
        self._on_controller_request = on_controller_request
        self._waiting: deque[tuple[Call, Deferred, Refuse]] = deque()
        self._has_work = asyncio.Event()

    def take(self, call: Call, refuse: Refuse) -> Deferred:
        """Queue a request."""
        later = Deferred()
        self._waiting.append((call, later, refuse))
        self._has_work.set()
        return later

    async def run(self) -> None:
        """Serve requests until cancelled."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._waiting:
                call, later, refuse = self._waiting.popleft()
                await or_refused(self._answer(call, later), later, call, refuse)

    async def _answer(self, call: Call, later: Deferred) -> None:
        later.complete(await self._serve(call))

    async def _serve(self, call: Call) -> Answer:
        match call.body:
            case UpdateMetadataRequest():
                return await self._update(call.body)
            case LeaderAndIsrRequest():
                return await self._become_leader_or_follower(call.body, call.api_version)
            case StopReplicaRequest():
                return await self._stop(call.body)
            case _:
                raise AssertionError(f"{type(call.body).__name__} is not a controller request")

    async def _update(self, request: UpdateMetadataRequest) -> Answer:
        refusal = self._refuse_epoch(request)
        result = refusal or self._received.update(request, self._mode.image)
        if isinstance(result, Refusal):
            return UpdateMetadataResponse(error_code=result.error)
        await self._apply(result)
        self._on_controller_request()
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)

    async def _become_leader_or_follower(
        self, request: LeaderAndIsrRequest, version: int
    ) -> Answer:
        refusal = self._refuse_epoch(request)
        result = refusal or self._received.apply_leader_and_isr(
            request, self._mode.image, self._partitions.held
        )
        if isinstance(result, Refusal):
            return LeaderAndIsrResponse(error_code=result.error)
        await self._apply(result)
        for key in result.roles:
            if self._partitions.find(*key) is None:
                result.answers[key] = ErrorCode.KAFKA_STORAGE_ERROR
        if result.keeps is not None:
            await self._partitions.keep_only(result.keeps)
        return _leader_and_isr_response(request, result, version)

    async def _stop(self, request: StopReplicaRequest) -> Answer:
        refusal = self._refuse_epoch(request)
        result = refusal or self._received.stop(request, self._partitions.held)
        if isinstance(result, Refusal):
            return StopReplicaResponse(error_code=result.error)
        for key, deletes in result.stopped.items():
            await self._partitions.stop_replica(key, deletes=deletes)
        rows = [
            StopReplicaPartitionError(topic_name=topic, partition_index=number, error_code=error)
            for (topic, number), error in result.answers.items()
        ]
        return StopReplicaResponse(partition_errors=rows)

    async def _apply(self, result: MetadataUpdate) -> None:
        """Apply a request to the image and act on it: only LeaderAndIsr makes this broker a leader
        or follower.

        A new log uses the configs that its topic currently has in ZooKeeper.
        """
        new = dict.fromkeys(
            topic for topic, number in result.roles if self._partitions.find(topic, number) is None
        )
        async with self._mode.configs.configs_of_new_logs(new) as load_configs:
            changes = await self._load(result, load_configs)
        if changes:
            await self._mode.publish(changes)

    async def _load(self, result: MetadataUpdate, load_configs: Load) -> ImageChanges:
        image = self._mode.image
        for name, topic_id in result.adopted.items():
            if image.topic(name) is not None:
                image.name_topic(name, topic_id)
            await self._partitions.name_topic(name, topic_id)
        for record in result.records:
            image.load(record)
        load_configs()
        changes = image.take_changes()
        roles: dict[tuple[bytes, int], None] = {}
        for topic, number in result.roles:
            found = image.topic(topic)
            assert found is not None, "a role is one in a partition of the image"
            roles[found.topic_id, number] = None
        changes.partitions = {**self._removed(changes), **roles}
        return changes

    def _removed(self, changes: ImageChanges) -> dict[tuple[bytes, int], None]:
        """Return the partitions that were removed from the image; those hosted by this broker wait
        for StopReplica.
        """
        image = self._mode.image
        held = {(hosted.topic_id, hosted.partition): None for hosted in self._partitions.hosted()}
        gone: dict[tuple[bytes, int], None] = {}
        for topic_id, number in changes.partitions:
            topic = image.topic_by_id(topic_id)
            if (topic is None or number not in topic.partitions) and (topic_id, number) not in held:
                gone[topic_id, number] = None
        return gone

    def _refuse_epoch(
        self, request: UpdateMetadataRequest | LeaderAndIsrRequest | StopReplicaRequest
    ) -> Refusal | None:
        return refuse_broker_epoch(
            request.broker_epoch, self._mode.epoch_for(is_kraft=request.is_kraft_controller)
        )

    @property
    def _partitions(self) -> ControlledPartitions:
        partitions = self._hosted()
        assert isinstance(partitions, ControlledPartitions), "a broker in ZooKeeper mode has these"
        return partitions


def _leader_and_isr_response(
    request: LeaderAndIsrRequest, result: MetadataUpdate, version: int
) -> LeaderAndIsrResponse:
    """Build the response for each partition, with topic ids if this version has them."""
    if version < FIRST_VERSION_BY_TOPIC_ID:
        rows = [
            LeaderAndIsrPartitionError(topic_name=topic, partition_index=number, error_code=error)
            for (topic, number), error in result.answers.items()
        ]
        return LeaderAndIsrResponse(partition_errors=rows)
    ids = {topic.topic_name: topic.topic_id for topic in request.topic_states}
    topics: dict[bytes, LeaderAndIsrTopicError] = {}
    for (name, number), error in result.answers.items():
        topic_id = ids.get(name, ZERO_UUID)
        topic = topics.setdefault(topic_id, LeaderAndIsrTopicError(topic_id=topic_id))
        topic.partition_errors.append(
            LeaderAndIsrPartitionError(partition_index=number, error_code=error)
        )
    return LeaderAndIsrResponse(topics=list(topics.values()))
