"""What controllers tell this broker, one request after the other: decided, acted by, and answered in the order in which they came.

Source: kafka.server.KafkaApis.{handleLeaderAndIsrRequest, handleUpdateMetadataRequest, handleStopReplicaRequest} (replicaStateChangeLock).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.image import ImageChanges
from kraftsim.core.zookeeper_mode.received_metadata import ReceivedMetadata, Told, refuse_broker_epoch
from kraftsim.node.call import Answer, Call, Deferred
from kraftsim.node.large_requests import or_refused
from kraftsim.node.zookeeper_mode.config_watch import Load
from kraftsim.node.zookeeper_mode.hosting import ToldPartitions
from protocol.errors import ErrorCode
from protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.messages.k05_stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from protocol.messages.k06_update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from kraftsim.node.zookeeper_mode.broker_mode import ZookeeperMode

FIRST_VERSION_BY_TOPIC_ID = 5
Refuse = Callable[[Call, ErrorCode], Answer]


class ControlRequests:
    """`on_told` hears whenever a controller has said who it is."""

    def __init__(self, mode: "ZookeeperMode", received: ReceivedMetadata, on_told: Callable[[], None]) -> None:
        self._mode = mode
        self._received = received
        self._on_told = on_told
        self._waiting: deque[tuple[Call, Deferred, Refuse]] = deque()
        self._has_work = asyncio.Event()

    def take(self, call: Call, refuse: Refuse) -> Deferred:
        """Let a request wait for its turn."""
        later = Deferred()
        self._waiting.append((call, later, refuse))
        self._has_work.set()
        return later

    async def run(self) -> None:
        """Serve requests for ever."""
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
                return await self._appoint(call.body, call.api_version)
            case StopReplicaRequest():
                return await self._stop(call.body)
            case _:
                raise AssertionError(f"{type(call.body).__name__} is no request of a controller")

    async def _update(self, request: UpdateMetadataRequest) -> Answer:
        refusal = self._refuse_epoch(request)
        told = refusal or self._received.update(request, self._mode.image)
        if isinstance(told, Refusal):
            return UpdateMetadataResponse(error_code=told.error)
        await self._act(told)
        self._on_told()
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)

    async def _appoint(self, request: LeaderAndIsrRequest, version: int) -> Answer:
        refusal = self._refuse_epoch(request)
        told = refusal or self._received.appoint(request, self._mode.image, self._partitions.held)
        if isinstance(told, Refusal):
            return LeaderAndIsrResponse(error_code=told.error)
        await self._act(told)
        for key in told.roles:
            if self._partitions.find(*key) is None:
                told.answers[key] = ErrorCode.KAFKA_STORAGE_ERROR
        if told.keeps is not None:
            await self._partitions.keep_only(told.keeps)
        return _appointed(request, told, version)

    async def _stop(self, request: StopReplicaRequest) -> Answer:
        refusal = self._refuse_epoch(request)
        told = refusal or self._received.stop(request, self._partitions.held)
        if isinstance(told, Refusal):
            return StopReplicaResponse(error_code=told.error)
        for key, deletes in told.stopped.items():
            await self._partitions.stop_replica(key, deletes=deletes)
        rows = [
            StopReplicaPartitionError(topic_name=topic, partition_index=number, error_code=error) for (topic, number), error in told.answers.items()
        ]
        return StopReplicaResponse(partition_errors=rows)

    async def _act(self, told: Told) -> None:
        """Let the image say what was told, and act by it: only by LeaderAndIsr a broker leads or follows.

        A log that is new here goes by the configs that its topic has in ZooKeeper now.
        """
        new = dict.fromkeys(topic for topic, number in told.roles if self._partitions.find(topic, number) is None)
        async with self._mode.configs.configs_of_new_logs(new) as load_configs:
            changes = await self._load(told, load_configs)
        if changes:
            await self._mode.publish(changes)

    async def _load(self, told: Told, load_configs: Load) -> ImageChanges:
        image = self._mode.image
        for name, topic_id in told.adopted.items():
            if image.topic(name) is not None:
                image.name_topic(name, topic_id)
            await self._partitions.name_topic(name, topic_id)
        for record in told.records:
            image.load(record)
        load_configs()
        changes = image.take_changes()
        roles: dict[tuple[bytes, int], None] = {}
        for topic, number in told.roles:
            found = image.topic(topic)
            assert found is not None, "a role is one in a partition of the image"
            roles[found.topic_id, number] = None
        changes.partitions = {**self._gone(changes), **roles}
        return changes

    def _gone(self, changes: ImageChanges) -> dict[tuple[bytes, int], None]:
        """Return the partitions that are in the image no more; those that this broker holds wait for StopReplica."""
        image = self._mode.image
        held = {(hosted.topic_id, hosted.partition): None for hosted in self._partitions.hosted()}
        gone: dict[tuple[bytes, int], None] = {}
        for topic_id, number in changes.partitions:
            topic = image.topic_by_id(topic_id)
            if (topic is None or number not in topic.partitions) and (topic_id, number) not in held:
                gone[topic_id, number] = None
        return gone

    def _refuse_epoch(self, request: UpdateMetadataRequest | LeaderAndIsrRequest | StopReplicaRequest) -> Refusal | None:
        return refuse_broker_epoch(request.broker_epoch, self._mode.epoch_for(is_kraft=request.is_kraft_controller))

    @property
    def _partitions(self) -> ToldPartitions:
        partitions = self._mode.broker.partitions
        assert isinstance(partitions, ToldPartitions), "a broker in ZooKeeper mode has these"
        return partitions


def _appointed(request: LeaderAndIsrRequest, told: Told, version: int) -> LeaderAndIsrResponse:
    """Answer for each partition: by topic id, where topics have one for this version."""
    if version < FIRST_VERSION_BY_TOPIC_ID:
        rows = [
            LeaderAndIsrPartitionError(topic_name=topic, partition_index=number, error_code=error) for (topic, number), error in told.answers.items()
        ]
        return LeaderAndIsrResponse(partition_errors=rows)
    ids = {topic.topic_name: topic.topic_id for topic in request.topic_states}
    topics: dict[bytes, LeaderAndIsrTopicError] = {}
    for (name, number), error in told.answers.items():
        topic_id = ids.get(name, ZERO_UUID)
        topic = topics.setdefault(topic_id, LeaderAndIsrTopicError(topic_id=topic_id))
        topic.partition_errors.append(LeaderAndIsrPartitionError(partition_index=number, error_code=error))
    return LeaderAndIsrResponse(topics=list(topics.values()))
