"""Workload clients over librdkafka (confluent-kafka): the client that drives scenarios in process
mode.

librdkafka has threads of its own; its callbacks are served from the scenario's event loop, so that
all events are emitted in one thread.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import confluent_kafka

from kraftsim.clients.events import (
    ClientStarted,
    ClientStopped,
    RecordAcknowledged,
    RecordFailed,
    RecordRead,
    RecordSent,
)
from kraftsim.clients.reader import ReadRecord
from kraftsim.world.interface import World

LIBRARY = f"librdkafka {confluent_kafka.libversion()[0]}"
SERVE_SECONDS = 0.01
UNKNOWN_OFFSET = -1
READ_LIMIT_SECONDS = 60.0
_QUIET = {
    "log_level": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2000,
}


class LibrdkafkaProducer:
    """An idempotent producer, acks=all, with librdkafka's own batching and retries."""

    def __init__(self, bootstrap: str, client_id: str, world: World, in_flight_max: int) -> None:
        self._client_id = client_id
        self._world = world
        self._producer = confluent_kafka.Producer(
            {
                **_QUIET,
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "enable.idempotence": True,
                "max.in.flight": in_flight_max,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
            }
        )
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start serving callbacks; librdkafka requests its producer id on its own."""
        self._world.emit(ClientStarted(client_id=self._client_id, library=LIBRARY))
        self._serving = asyncio.get_running_loop().create_task(
            self._serve(), name=f"serve {self._client_id}"
        )

    async def send(self, topic: str, partition: int, key: str, value: bytes) -> None:
        """Enqueue a record; waits while librdkafka's queue is full."""

        def delivered(
            error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
        ) -> None:
            if error is None:
                self._emit_acknowledged(topic, partition, key, message.offset())
            else:
                self._emit_failed(topic, partition, key, error)

        self._world.emit(
            RecordSent(client_id=self._client_id, topic=topic, partition=partition, record_key=key)
        )
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery=delivered)
                return
            except BufferError:
                await asyncio.sleep(SERVE_SECONDS)

    async def flush(self, timeout_seconds: float) -> int:
        """Wait until no record is in flight, or the time is over."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_seconds
        while len(self._producer) and loop.time() < give_up_at:
            await asyncio.sleep(SERVE_SECONDS)
        return len(self._producer)

    async def close(self) -> None:
        """Stop serving; records in flight are dropped."""
        if self._serving is not None:
            self._serving.cancel()
            with suppress(asyncio.CancelledError):
                await self._serving
        self._world.emit(ClientStopped(client_id=self._client_id, reason="done"))
        self._world.flush_events()

    def _emit_acknowledged(self, topic: str, partition: int, key: str, offset: int | None) -> None:
        known = UNKNOWN_OFFSET if offset is None else offset
        self._world.emit(
            RecordAcknowledged(
                client_id=self._client_id,
                topic=topic,
                partition=partition,
                record_key=key,
                offset=known,
            )
        )

    def _emit_failed(
        self, topic: str, partition: int, key: str, error: confluent_kafka.KafkaError
    ) -> None:
        self._world.emit(
            RecordFailed(
                client_id=self._client_id,
                topic=topic,
                partition=partition,
                record_key=key,
                error_code=error.code(),
                reason=error.str(),
            )
        )

    async def _serve(self) -> None:
        while True:
            self._producer.poll(0)
            self._world.flush_events()
            await asyncio.sleep(SERVE_SECONDS)


class LibrdkafkaReader:
    """A consumer with assigned partitions, without a group."""

    def __init__(
        self, bootstrap: str, client_id: str, world: World, *, read_committed: bool = False
    ) -> None:
        self._client_id = client_id
        self._world = world
        self._read_committed = read_committed
        self._consumer = confluent_kafka.Consumer(
            {
                **_QUIET,
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "group.id": f"unused-{client_id}",
                "enable.auto.commit": False,
                "check.crcs": True,
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            }
        )

    async def read_all(self, topic: str, partitions: Sequence[int]) -> list[ReadRecord]:
        """Return every record up to the high watermarks that the partitions have now."""
        ends = {partition: await self._end_of(topic, partition) for partition in partitions}
        waiting = {partition for partition in partitions if ends[partition] > 0}
        self._consumer.assign(
            [
                confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)
                for partition in partitions
            ]
        )
        records: list[ReadRecord] = []
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + READ_LIMIT_SECONDS
        while waiting and loop.time() < give_up_at:
            for message in await asyncio.to_thread(self._consumer.consume, 500, 0.2):
                error, place, offset = message.error(), message.partition(), message.offset()
                assert place is not None and offset is not None, (
                    "a message has a partition and an offset"
                )
                if error is None:
                    records.append(self._read_record(message))
                    offset += 1
                elif error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                    continue
                if offset >= ends[place]:
                    waiting.discard(place)
        if waiting:
            raise TimeoutError(
                f"{self._client_id} did not reach the end of {topic} partitions "
                f"{sorted(waiting)} within {READ_LIMIT_SECONDS:g} s"
            )
        return records

    async def _end_of(self, topic: str, partition: int) -> int:
        """Return the high watermark of a partition.

        The broker asked may have just lost leadership: the library raises then, and does not retry.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + READ_LIMIT_SECONDS
        while True:
            place = confluent_kafka.TopicPartition(topic, partition)
            try:
                _, end_offset = await asyncio.to_thread(
                    self._consumer.get_watermark_offsets, place, timeout=READ_LIMIT_SECONDS
                )
            except confluent_kafka.KafkaException:
                if loop.time() > give_up_at:
                    raise
                await asyncio.sleep(SERVE_SECONDS)
            else:
                return end_offset

    async def close(self) -> None:
        """End the client."""
        await asyncio.to_thread(self._consumer.close)
        self._world.emit(ClientStopped(client_id=self._client_id, reason="done"))
        self._world.flush_events()

    def _read_record(self, message: confluent_kafka.Message) -> ReadRecord:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None and partition is not None and offset is not None, (
            "a record that was read has a partition and an offset"
        )
        key = (message.key() or b"").decode()
        self._world.emit(
            RecordRead(
                client_id=self._client_id,
                topic=topic,
                partition=partition,
                record_key=key,
                offset=offset,
                is_read_committed=self._read_committed,
            )
        )
        return ReadRecord(
            topic=topic, partition=partition, offset=offset, key=key, value=message.value() or b""
        )
