"""kraftsim's idempotent producer: executes the decisions of `IdempotentProducer`, and emits the
events of each record.

Source: org.apache.kafka.clients.producer.{KafkaProducer, internals.Sender}.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import assert_never

from kraftsim.clients.cluster_connections import (
    Address,
    ClientIdentity,
    ClusterConnections,
    error_of,
)
from kraftsim.clients.events import (
    ClientInitialized,
    ClientStarted,
    ClientStopped,
    RecordAcknowledged,
    RecordFailed,
    RecordReportedDuplicate,
    RecordSent,
)
from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import (
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
    SendInitProducerId,
    SendMetadataRequest,
    SendProduce,
    Started,
    TimePassed,
    TopicPartition,
    WindowAnnounced,
)
from kraftsim.clients.rules_producer_variants import WindowedProducer
from kraftsim.clients.step_loop import StepLoop
from kraftsim.server.outbound import NoCommonVersion, PeerConnection
from kraftsim.server.tasks import NodeTasks
from kraftsim.world.interface import World
from protocol.announced_window import announced_window
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.schema import Message

# --------------------------------------------------------------------------------------------------
# How a producer's batches are sent: one queue per broker while its connection is being opened,
# which keeps the order of requests
#
# Source: org.apache.kafka.clients.producer.internals.Sender.

ACKS_ALL = -1
LAST_EXPLICIT_VERSION = 11
"""Up to this version the producer adds the partition of a transactional batch itself; later
versions let the broker add it (KIP-890).
"""
LAST_VERSION_WITH_TOPIC_NAMES = 12


class ProduceOutbox:
    """Sends the requests of the producer's state machine, and feeds it the results."""

    def __init__(
        self,
        connections: ClusterConnections,
        tasks: NodeTasks,
        *,
        client_id: str,
        timeout_ms: int,
        settle: Callable[[ProduceAnswered | ProduceLost], None],
        fail: Callable[[BaseException], None],
        transactional_id: str | None = None,
        on_window: Callable[[int, int | None], None] | None = None,
    ) -> None:
        self._connections = connections
        self._tasks = tasks
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._settle = settle
        self._fail = fail
        self._transactional_id = transactional_id
        self._on_window = on_window
        """Called after each response with the window that the broker announces (KIP-758)."""
        self.window_at_start: int | None = None
        """The window announced in the InitProducerId response: it applies to each leader that has a
        window and does not announce its size.
        """
        self._waiting: dict[int, deque[tuple[SendProduce, bool]]] = {}
        self.is_closed = False
        self._reported_by: dict[int, PeerConnection] = {}
        """The connection that announced the current window of each broker, if it is announced in
        ApiVersions.
        """

    def put(self, request: SendProduce, *, is_implicit: bool = False) -> None:
        """Send the request if there is a connection; otherwise queue it."""
        waiting = self._waiting.get(request.broker_id)
        if waiting is not None:
            waiting.append((request, is_implicit))
            return
        connection = self._connections.open_to_broker(request.broker_id)
        if connection is not None:
            self._send(connection, request, is_implicit)
        else:
            self._waiting[request.broker_id] = deque([(request, is_implicit)])
            self._tasks.spawn(
                self._connect_for(request.broker_id),
                f"{self._client_id}-connect-{request.broker_id}",
            )

    async def _connect_for(self, broker_id: int) -> None:
        try:
            connection = await self._connections.to_broker(broker_id)
        except OSError:
            for request, _ in self._waiting.pop(broker_id):
                self._settle(ProduceLost(request.request_id))
        else:
            for request, is_implicit in self._waiting.pop(broker_id):
                self._send(connection, request, is_implicit)

    def _report_offer(self, broker_id: int, connection: PeerConnection) -> None:
        """Report the window announced in a connection's ApiVersions response, once, after the
        current step.
        """
        if (
            self._on_window is None
            or self._window_of(connection) is None
            or self._reported_by.get(broker_id) is connection
        ):
            return
        self._reported_by[broker_id] = connection
        asyncio.get_running_loop().call_soon(self._report_window, broker_id, connection)

    def _window_of(self, connection: PeerConnection) -> int | None:
        """Return the window of a leader as far as it is known before a Produce response."""
        if connection.announced_window is not None:
            return connection.announced_window
        return self.window_at_start if connection.has_window else None

    def _report_window(self, broker_id: int, connection: PeerConnection) -> None:
        if self._on_window is not None and not self.is_closed and connection.is_open:
            self._on_window(broker_id, self._window_of(connection))

    def _send(self, connection: PeerConnection, request: SendProduce, is_implicit: bool) -> None:
        self._report_offer(request.broker_id, connection)

        def take(answer: Message | OSError) -> None:
            if self.is_closed:
                return
            if isinstance(answer, OSError):
                self._settle(ProduceLost(request.request_id))
            else:
                assert isinstance(answer, ProduceResponse), "the response of Produce"
                if self._on_window is not None:
                    announced = announced_window(getattr(answer, "_tags", None))
                    self._on_window(
                        request.broker_id,
                        self._window_of(connection) if announced is None else announced,
                    )
                self._settle(ProduceAnswered(request.request_id, _partition_answers(answer)))

        try:
            is_explicit = self._transactional_id is not None and not is_implicit
            version = min(
                connection.version_for(ApiKey.PRODUCE),
                LAST_EXPLICIT_VERSION if is_explicit else LAST_VERSION_WITH_TOPIC_NAMES,
            )
            connection.send(self._request(request), take, api_version=version)
        except NoCommonVersion as error:
            self._fail(error)
        except OSError:
            self._settle(ProduceLost(request.request_id))

    def _request(self, request: SendProduce) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in request.batches:
            topic = topics.setdefault(batch.where.topic, TopicProduceData(name=batch.where.topic))
            topic.partition_data.append(
                PartitionProduceData(index=batch.where.partition, records=self._bytes_of(batch))
            )
        transactional_id, timeout_ms = self._transactional_id, self._timeout_ms
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=ACKS_ALL,
            timeout_ms=timeout_ms,
            topic_data=list(topics.values()),
        )

    def _bytes_of(self, batch: OutgoingBatch) -> bytes:
        assert batch.identity is not None, "a batch in flight has an identity"
        return build_batch(
            [
                Record(offset, record.timestamp_ms, record.key.encode(), record.value, ())
                for offset, record in enumerate(batch.records)
            ],
            producer_id=batch.identity.producer_id,
            producer_epoch=batch.identity.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=self._transactional_id is not None,
        )


async def leaders_of(
    connections: ClusterConnections, topics: Sequence[str]
) -> MetadataArrived | MetadataLost:
    """Request the leaders of the partitions of topics from any broker."""
    try:
        answer = await connections.metadata(topics)
    except OSError:
        return MetadataLost()
    leaders = {
        TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
        for topic in answer.topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    }
    return MetadataArrived(leaders)


def _partition_answers(response: ProduceResponse) -> tuple[PartitionAnswer, ...]:
    return tuple(
        PartitionAnswer(
            where=TopicPartition(topic.name, partition.index),
            error_code=error_of(partition.error_code),
            base_offset=partition.base_offset,
        )
        for topic in response.responses
        for partition in topic.partition_responses
    )


# --------------------------------------------------------------------------------------------------
# The events of an acknowledged record
#
# Source: ProducerBatch.completeFutureAndFireCallbacks, Sender.completeBatch.


def emit_delivered(world: World, client_id: str, delivered: RecordDelivered) -> None:
    """Emit that a record was acknowledged, preceded by the sequence number of its batch if that was
    a duplicate.
    """
    record = delivered.record
    topic, partition = record.where
    if delivered.duplicate_of is not None:
        producer_id, producer_epoch = delivered.duplicate_of
        world.emit(
            RecordReportedDuplicate(
                client_id=client_id,
                topic=topic,
                partition=partition,
                record_key=record.key,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=delivered.base_sequence,
            )
        )
    acknowledged = RecordAcknowledged(
        client_id=client_id,
        topic=topic,
        partition=partition,
        record_key=record.key,
        offset=delivered.offset,
    )
    world.emit(acknowledged)


LIBRARY = "kraftsim"
TRANSACTION_TIMEOUT_MS = 60_000
"""Sent by every client, also without a transactional id."""


class ProducerIdRefused(OSError):
    """InitProducerId returned an error that is not retriable."""


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
        self._loop: StepLoop[ProducerInput, ProducerEffect] = StepLoop(
            world, self._rules, self._carry_out, TimePassed()
        )
        self._tasks = NodeTasks(self._loop.fail)
        self._outbox = ProduceOutbox(
            self._connections,
            self._tasks,
            client_id=client_id,
            timeout_ms=self._settings.request_timeout_ms,
            settle=self._loop.take,
            fail=self._loop.fail,
            on_window=self._on_window if isinstance(self._rules, WindowedProducer) else None,
        )

    async def start(self) -> None:
        """Obtain a producer id; retries without limit.

        Raises ProducerIdRefused, and the failure of the client, if there is one.
        """
        self._world.emit(ClientStarted(client_id=self.client_id, library=LIBRARY))
        self._loop.take(Started())
        while self._rules.identity is None:
            if self._rules.refusal is not None:
                raise ProducerIdRefused(f"InitProducerId returned {self._rules.refusal.name}")
            await self._loop.change()

    async def send(self, topic: str, partition: int, key: str, value: bytes) -> None:
        """Send a record; waits only while the buffer is full. The result is emitted as an event."""
        while self._rules.record_count >= self._settings.buffered_records_max:
            await self._loop.change()
        assert not self._loop.is_over, "send on a closed producer"
        self._world.emit(
            RecordSent(client_id=self.client_id, topic=topic, partition=partition, record_key=key)
        )
        where = TopicPartition(topic, partition)
        self._loop.take(
            RecordGiven(
                OutgoingRecord(
                    where=where, key=key, value=value, timestamp_ms=self._world.clock.wall_ms()
                )
            )
        )

    async def flush(self, timeout_seconds: float) -> int:
        """Wait until every record is acknowledged or failed; return how many are still in flight
        after the timeout.
        """
        self._loop.take(FlushAsked())
        try:
            async with asyncio.timeout(timeout_seconds):
                while self._rules.record_count:
                    await self._loop.change()
        except TimeoutError:
            pass
        return self._rules.record_count

    async def close(self) -> None:
        """Stop the client without waiting for records in flight: call `flush` before."""
        if self._loop.is_over:
            return
        self._loop.end()
        self._outbox.is_closed = True
        self._world.emit(
            ClientStopped(
                client_id=self.client_id,
                reason="closed" if self._loop.failure is None else "failed",
            )
        )
        self._connections.close()
        await self._tasks.join()
        self._world.flush_events()

    def _on_window(self, broker_id: int, sequences: int | None) -> None:
        self._loop.take(WindowAnnounced(broker_id, sequences))

    # Effects
    # ----------------------------------------------------------------------------------------------

    def _carry_out(self, effect: ProducerEffect) -> None:
        match effect:
            case SendInitProducerId():
                self._tasks.spawn(self._ask_producer_id(), f"{self.client_id}-producer-id")
            case SendMetadataRequest(topics):
                self._tasks.spawn(self._ask_metadata(topics), f"{self.client_id}-metadata")
            case SendProduce():
                self._outbox.put(effect)
            case IdentityTaken(identity):
                self._world.emit(
                    ClientInitialized(
                        client_id=self.client_id,
                        producer_id=identity.producer_id,
                        producer_epoch=identity.producer_epoch,
                    )
                )
            case RecordDelivered():
                emit_delivered(self._world, self.client_id, effect)
            case RecordGivenUp(record=record, error_code=error_code, reason=reason):
                self._world.emit(
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

    # Requests
    # ----------------------------------------------------------------------------------------------

    async def _ask_producer_id(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        try:
            answer = await (await self._connections.to_any()).request(request)
        except OSError:
            self._loop.take(ProducerIdLost(None))
            return
        assert isinstance(answer, InitProducerIdResponse), "the response of InitProducerId"
        if answer.error_code == ErrorCode.NONE:
            self._outbox.window_at_start = announced_window(getattr(answer, "_tags", None))
            self._loop.take(ProducerIdArrived(answer.producer_id, answer.producer_epoch))
        else:
            self._loop.take(ProducerIdLost(error_of(answer.error_code)))

    async def _ask_metadata(self, topics: tuple[str, ...]) -> None:
        self._loop.take(await leaders_of(self._connections, topics))
