"""kraftsim's idempotent producer: executes the decisions of `IdempotentProducer`, and emits the
events of each record.

Source: org.apache.kafka.clients.producer.{KafkaProducer, internals.Sender}.
"""

import asyncio
from collections.abc import Sequence
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
    RecordFailed,
    RecordSent,
)
from kraftsim.clients.produce_outbox import ProduceOutbox, emit_delivered, leaders_of
from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import (
    FlushAsked,
    IdentityTaken,
    OutgoingRecord,
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
from kraftsim.server.tasks import NodeTasks
from kraftsim.world.interface import World
from protocol.announced_window import announced_window
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

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
