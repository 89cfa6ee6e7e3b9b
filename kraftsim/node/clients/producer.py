"""The own idempotent producer: carries out what `IdempotentProducer` decides, and notes what happened to each record.

Source: org.apache.kafka.clients.producer.{KafkaProducer, internals.Sender}.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import assert_never

from kraftsim.core.clients.idempotent_producer import IdempotentProducer
from kraftsim.core.clients.producer_steps import (
    AskMetadata,
    AskProducerId,
    FlushAsked,
    IdentityTaken,
    MetadataArrived,
    MetadataLost,
    OutgoingBatch,
    OutgoingRecord,
    PartitionAnswer,
    ProduceAnswered,
    ProduceLost,
    ProducerEffect,
    ProducerIdArrived,
    ProducerIdLost,
    ProducerInput,
    ProducerSettings,
    RecordDelivered,
    RecordGiven,
    RecordGivenUp,
    SendProduce,
    Started,
    TimePassed,
    TopicPartition,
)
from kraftsim.events.clients import ClientInitialized, ClientStarted, ClientStopped, RecordAcknowledged, RecordFailed, RecordSent
from kraftsim.node.clients.cluster_connections import Address, ClientIdentity, ClusterConnections, error_of
from kraftsim.node.outbound import NoCommonVersion, PeerConnection
from kraftsim.node.tasks import NodeTasks
from kraftsim.world.interface import World
from protocol.batches import build_batch
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.records import Record
from protocol.schema import Message

LIBRARY = "kraftsim"
ACKS_ALL = -1
TRANSACTION_TIMEOUT_MS = 60_000
"""Sent along by every client, also without a transactional id."""


class ProducerClient:
    """An idempotent producer with acks=all. `start`, then `send` and `flush`, then `close`."""

    def __init__(
        self,
        world: World,
        *,
        bootstrap: Sequence[Address],
        client_id: str,
        settings: ProducerSettings | None = None,
        frame_events: bool = False,
        rules: type[IdempotentProducer] = IdempotentProducer,
    ) -> None:
        self.client_id = client_id
        self._world = world
        self._settings = settings or ProducerSettings()
        self._rules = rules(self._settings)
        self._connections = ClusterConnections(
            world,
            ClientIdentity(
                client_id=client_id,
                bootstrap=tuple(bootstrap),
                request_timeout_ms=self._settings.request_timeout_ms,
                frame_events=frame_events,
            ),
        )
        self._tasks = NodeTasks(self._fail)
        self._inputs: deque[ProducerInput] = deque()
        self._is_stepping = False
        self._outboxes: dict[int, deque[SendProduce]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._armed_at_ms: int | None = None
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Obtain a producer id, with as much patience as it takes. Raises what ended the client, if anything did."""
        self._world.note(ClientStarted(client_id=self.client_id, library=LIBRARY))
        self._step(Started())
        while self._rules.identity is None:
            await self._change()

    async def send(self, topic: str, partition: int, key: str, value: bytes) -> None:
        """Hand over a record; waits only while too many are under way. Its fate is in the event log."""
        while self._rules.record_count >= self._settings.buffered_records_max:
            await self._change()
        assert not self._is_closed, "a closed producer takes no records"
        self._world.note(RecordSent(client_id=self.client_id, topic=topic, partition=partition, record_key=key))
        where = TopicPartition(topic, partition)
        self._step(RecordGiven(OutgoingRecord(where=where, key=key, value=value, timestamp_ms=self._world.clock.wall_ms())))

    async def flush(self, timeout_seconds: float) -> int:
        """Wait until every record is acknowledged or failed; return how many are still under way when the time is up."""
        self._step(FlushAsked())
        try:
            async with asyncio.timeout(timeout_seconds):
                while self._rules.record_count:
                    await self._change()
        except TimeoutError:
            pass
        return self._rules.record_count

    async def close(self) -> None:
        """End the client without waiting for what is under way: call `flush` before."""
        if self._is_closed:
            return
        self._is_closed = True
        self._world.note(ClientStopped(client_id=self.client_id, reason="closed" if self._failure is None else "failed"))
        self._disarm()
        self._connections.close()
        await self._tasks.join()
        self._world.flush_events()

    # The loop around the rules --------------------------------------------------------------------------------------------------------------------

    def _step(self, happened: ProducerInput) -> None:
        """Tell the rules what happened and carry out what they want; what happens meanwhile waits its turn."""
        self._inputs.append(happened)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._inputs and not self._is_closed:
                for effect in self._rules.step(self._inputs.popleft(), self._world.clock.monotonic_ms()):
                    self._carry_out(effect)
        finally:
            self._is_stepping = False
        self._arm()
        self._changed.set()

    def _carry_out(self, effect: ProducerEffect) -> None:
        match effect:
            case AskProducerId():
                self._tasks.spawn(self._ask_producer_id(), f"{self.client_id}-producer-id")
            case AskMetadata(topics):
                self._tasks.spawn(self._ask_metadata(topics), f"{self.client_id}-metadata")
            case SendProduce():
                self._put_out(effect)
            case IdentityTaken(identity):
                self._world.note(
                    ClientInitialized(client_id=self.client_id, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)
                )
            case RecordDelivered(record=record, offset=offset):
                self._world.note(
                    RecordAcknowledged(
                        client_id=self.client_id,
                        topic=record.where.topic,
                        partition=record.where.partition,
                        record_key=record.key,
                        offset=offset,
                    )
                )
            case RecordGivenUp(record=record, error_code=error_code, reason=reason):
                self._world.note(
                    RecordFailed(
                        client_id=self.client_id,
                        topic=record.where.topic,
                        partition=record.where.partition,
                        record_key=record.key,
                        error_code=int(error_code),
                        reason=reason,
                    )
                )
            case _:
                assert_never(effect)

    def _arm(self) -> None:
        wake_at_ms = self._rules.wake_at_ms
        if wake_at_ms == self._armed_at_ms and self._alarm is not None:
            return
        self._disarm()
        if wake_at_ms is not None and not self._is_closed:
            self._armed_at_ms = wake_at_ms
            delay_ms = max(1, wake_at_ms - self._world.clock.monotonic_ms())
            self._alarm = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        self._step(TimePassed())

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _change(self) -> None:
        """Wait until the rules took a step. Raises what ended the client, if anything did."""
        if self._failure is not None:
            raise self._failure
        self._changed.clear()
        await self._changed.wait()

    def _fail(self, failure: BaseException) -> None:
        self._failure = failure
        self._changed.set()

    # Asking ---------------------------------------------------------------------------------------------------------------------------------------

    async def _ask_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        try:
            answer = await (await self._connections.to_any()).request(request)
        except OSError:
            self._step(ProducerIdLost(None))
            return
        assert isinstance(answer, InitProducerIdResponse), "InitProducerId was asked"
        if answer.error_code == ErrorCode.NONE:
            self._step(ProducerIdArrived(answer.producer_id, answer.producer_epoch))
        else:
            self._step(ProducerIdLost(error_of(answer.error_code)))

    async def _ask_metadata(self, topics: tuple[str, ...]) -> None:
        try:
            answer = await self._connections.metadata(topics)
        except OSError:
            self._step(MetadataLost())
            return
        leaders = {
            TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
            for topic in answer.topics
            for partition in topic.partitions
            if partition.leader_id >= 0
        }
        self._step(MetadataArrived(leaders))

    # Producing ------------------------------------------------------------------------------------------------------------------------------------

    def _put_out(self, request: SendProduce) -> None:
        """Send now if there is a connection; else queue up for one, so that the order of requests is kept."""
        outbox = self._outboxes.get(request.broker_id)
        if outbox is not None:
            outbox.append(request)
            return
        connection = self._connections.open_to_broker(request.broker_id)
        if connection is not None:
            self._produce(connection, request)
        else:
            self._outboxes[request.broker_id] = deque([request])
            self._tasks.spawn(self._connect_for(request.broker_id), f"{self.client_id}-connect-{request.broker_id}")

    async def _connect_for(self, broker_id: int) -> None:
        try:
            connection = await self._connections.to_broker(broker_id)
        except OSError:
            for request in self._outboxes.pop(broker_id):
                self._step(ProduceLost(request.request_id))
        else:
            for request in self._outboxes.pop(broker_id):
                self._produce(connection, request)

    def _produce(self, connection: PeerConnection, request: SendProduce) -> None:
        def take(answer: Message | OSError) -> None:
            if self._is_closed:
                return
            if isinstance(answer, OSError):
                self._step(ProduceLost(request.request_id))
            else:
                self._step(ProduceAnswered(request.request_id, _partition_answers(answer)))

        try:
            connection.send(_produce_request(request, self._settings.request_timeout_ms), take)
        except NoCommonVersion as error:
            self._fail(error)
        except OSError:
            self._step(ProduceLost(request.request_id))


def _produce_request(request: SendProduce, timeout_ms: int) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for batch in request.batches:
        topic = topics.setdefault(batch.where.topic, TopicProduceData(name=batch.where.topic))
        topic.partition_data.append(PartitionProduceData(index=batch.where.partition, records=_batch_bytes(batch)))
    return ProduceRequest(transactional_id=None, acks=ACKS_ALL, timeout_ms=timeout_ms, topic_data=list(topics.values()))


def _batch_bytes(batch: OutgoingBatch) -> bytes:
    assert batch.identity is not None, "a batch on its way has an identity"
    return build_batch(
        [Record(offset, record.timestamp_ms, record.key.encode(), record.value, ()) for offset, record in enumerate(batch.records)],
        producer_id=batch.identity.producer_id,
        producer_epoch=batch.identity.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def _partition_answers(response: ProduceResponse) -> tuple[PartitionAnswer, ...]:
    return tuple(
        PartitionAnswer(
            where=TopicPartition(topic.name, partition.index), error_code=error_of(partition.error_code), base_offset=partition.base_offset
        )
        for topic in response.responses
        for partition in topic.partition_responses
    )
