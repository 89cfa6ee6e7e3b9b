"""One member of an exactly-once consume-transform-produce application, which commits output records
and offsets in one transaction.

It has one producer per thread for all of its partitions (KIP-447), or one per input partition,
named after it, as Kafka Streams had before. It may crash, or pause and resume, at any point of its
work: see `Mishaps`.
Source: KIP-98, KIP-129, KIP-447; the template in KafkaProducer's documentation.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from kraftsim.clients.group_consumer import GroupConsumerClient, MembershipFailed
from kraftsim.clients.reader import ReadRecord
from kraftsim.clients.rules_group_member import OF_THREADS, MemberSettings
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_transaction_steps import GroupIdentity, TransactionalSettings
from kraftsim.clients.transactional_producer import AbortNeeded, ProducerFailed, TransactionalClient
from kraftsim.cluster.client_host import ClientHost
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the scenario environment)

RESTART_SECONDS = 0.5


class Variant(StrEnum):
    """The owner of a transactional id."""

    PER_THREAD = "a producer per thread"
    PER_TASK = "a producer per task"
    PROBED = "a producer per thread once every member understands it, else per task"
    """By the version that the leader of the group returns (KIP-268): see
    `MemberSettings.latest_version`.
    """


class Point(StrEnum):
    """Points at which a crash or a pause may be injected."""

    POLLED = "polled"
    BEGUN = "begun"
    SENT = "sent"
    OFFSETS_SENT = "offsets sent"
    COMMITTED = "committed"


class Crashed(RuntimeError):
    """The member crashes here: it does not leave the group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformSettings:
    """What all members of the application have in common."""

    input_topic: str
    output_topic: str
    group: MemberSettings
    variant: Variant = Variant.PER_THREAD
    transaction_timeout_ms: int = 10_000
    records_per_transaction: int = 20
    names_member: bool = True
    require_stable: bool = True
    id_prefix: str = "copy"
    producer: TransactionalSettings = field(
        default_factory=lambda: TransactionalSettings(transactional_id="")
    )


@dataclass(kw_only=True, slots=True)
class Mishaps:
    """When members crash or pause: the number of points, of a thousand passed, that end in a crash,
    or in a pause.
    """

    random: "Random"
    crashes: int = 0
    pauses: int = 0
    pause_seconds: tuple[float, float] = (1.0, 9.0)
    are_over: Callable[[], bool] = lambda: False

    def crash(self) -> bool:
        """Draw whether the member crashes here."""
        return not self.are_over() and self.random.random() * 1000 < self.crashes

    def pause(self) -> float:
        """Draw for how many seconds the member pauses here."""
        is_due = not self.are_over() and self.random.random() * 1000 < self.pauses
        return self.random.uniform(*self.pause_seconds) if is_due else 0.0


@dataclass(kw_only=True, slots=True)
class Costs:
    """Counters of what the application has opened and done so far."""

    producers: int = 0
    connections: int = 0
    transactions: int = 0
    records: int = 0


class TransformWorker:
    """One thread of the application; call `live` to run it until `is_done`.

    Each incarnation has clients of its own, named after it.
    """

    def __init__(
        self,
        client_host: ClientHost,
        settings: TransformSettings,
        *,
        mishaps: Mishaps,
        is_done: Callable[[], bool],
    ) -> None:
        self.costs = Costs()
        self.on_point: Callable[[Point, TransformWorker], None] = lambda point, transform_worker: (
            None
        )
        self._client_host = client_host
        self._settings = settings
        self._mishaps = mishaps
        self._is_done = is_done
        self._incarnation = 0
        self._consumer: GroupConsumerClient | None = None
        self._producers: dict[TopicPartition | None, TransactionalClient] = {}
        self._pauses_at: tuple[Point, float] | None = None
        self.is_paused = False

    def pause_at(self, point: Point, seconds: float) -> None:
        """Pause once, the next time that a point is passed."""
        self._pauses_at = (point, seconds)

    async def live(self) -> None:
        """Run until everything is done, restarting after each failure."""
        while not self._is_done():
            self._incarnation += 1
            try:
                await self._live_once()
                return
            except (Crashed, ProducerFailed, MembershipFailed) as end:
                await self._end(leaves=not isinstance(end, Crashed))
                if (
                    isinstance(end, MembershipFailed)
                    and end.error_code is ErrorCode.FENCED_INSTANCE_ID
                ):
                    return  # another process has its group.instance.id, and has replaced it
                await asyncio.sleep(RESTART_SECONDS)

    async def _live_once(self) -> None:
        name = f"{self._client_host.name}.{self._incarnation}"
        self._consumer = consumer = self._client_host.group_consumer(
            name, self._settings.group, require_stable=self._settings.require_stable
        )
        if self._settings.variant is Variant.PER_THREAD:
            await self._producer(None, self._id_of_thread)
        else:
            consumer.on_assigned = (
                self._open_tasks
                if self._settings.variant is Variant.PER_TASK
                else self._open_as_probed
            )
            consumer.on_released = consumer.on_lost = self._close_tasks
        await consumer.start()
        while not self._is_done():
            records = await consumer.poll()
            # Commit with the group metadata of the poll: a member that is removed later would
            # commit as an unknown member, which is not fenced.
            group = consumer.group
            await self._pass(Point.POLLED)
            for first in range(0, len(records), self._settings.records_per_transaction):
                if not await self._copy(
                    consumer, group, records[first : first + self._settings.records_per_transaction]
                ):
                    break
        await self._end(leaves=True)

    async def _copy(
        self, consumer: GroupConsumerClient, group: GroupIdentity, records: Sequence[ReadRecord]
    ) -> bool:
        """Copy records, in one transaction for each producer; return whether all went well.

        After an abort the consumer reads them again.
        """
        by_producer: dict[TopicPartition | None, list[ReadRecord]] = {}
        for record in records:
            task = (
                None if None in self._producers else TopicPartition(record.topic, record.partition)
            )
            by_producer.setdefault(task, []).append(record)
        for task, group_records in by_producer.items():
            producer = self._producers.get(task)
            if producer is None:
                return False
            try:
                await self._transaction(producer, group, group_records)
            except AbortNeeded:
                await producer.abort()
                consumer.rewind()
                return False
        return True

    async def _transaction(
        self, producer: TransactionalClient, group: GroupIdentity, records: Sequence[ReadRecord]
    ) -> None:
        await producer.begin()
        await self._pass(Point.BEGUN)
        for record in records:
            await producer.send(
                self._settings.output_topic, record.partition, record.key, record.value
            )
        await self._pass(Point.SENT)
        offsets = {
            TopicPartition(record.topic, record.partition): record.offset + 1 for record in records
        }
        await producer.send_offsets(group, offsets)
        await self._pass(Point.OFFSETS_SENT)
        await producer.commit()
        self.costs.transactions += 1
        self.costs.records += len(records)
        await self._pass(Point.COMMITTED)

    # Tasks
    # ----------------------------------------------------------------------------------------------

    async def _open_tasks(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Initialise the transactional id of each partition: its previous owner is fenced before
        committed offsets are fetched.
        """
        for where in partitions:
            if where not in self._producers:
                await self._producer(where, f"{self._settings.id_prefix}-task-{where.partition}")

    async def _open_as_probed(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Create the producers that the version of this assignment allows.

        The version decreases, too, when an older member joins.
        """
        assert self._consumer is not None, "its callback runs this"
        if self._consumer.assigned_version < OF_THREADS:
            await self._close_thread()
            await self._open_tasks(partitions)
        elif None not in self._producers:
            await self._producer(None, self._id_of_thread)

    async def _close_thread(self) -> None:
        producer = self._producers.pop(None, None)
        if producer is not None:
            self.costs.connections += producer.connections.opened_count
            await producer.close()

    @property
    def _id_of_thread(self) -> str:
        return f"{self._settings.id_prefix}-thread-{self._client_host.name}"

    async def _close_tasks(self, partitions: tuple[TopicPartition, ...]) -> None:
        for where in partitions:
            producer = self._producers.pop(where, None)
            if producer is not None:
                self.costs.connections += producer.connections.opened_count
                await producer.close()

    async def _producer(self, task: TopicPartition | None, transactional_id: str) -> None:
        self.costs.producers += 1
        producer = self._client_host.transactional_producer(
            f"{self._client_host.name}.{self._incarnation}.{self.costs.producers}",
            TransactionalSettings(
                transactional_id=transactional_id,
                transaction_timeout_ms=self._settings.transaction_timeout_ms,
                producer=self._settings.producer.producer,
                uses_implicit_adding=self._settings.producer.uses_implicit_adding,
            ),
            names_member=self._settings.names_member,
        )
        self._producers[task] = producer
        await producer.init()

    # Mishaps
    # ----------------------------------------------------------------------------------------------

    async def _pass(self, point: Point) -> None:
        self.on_point(point, self)
        if self._mishaps.crash():
            raise Crashed(point)
        seconds = self._mishaps.pause()
        if self._pauses_at is not None and self._pauses_at[0] is point:
            seconds, self._pauses_at = self._pauses_at[1], None
        if seconds:
            await self._pause(seconds)

    async def _pause(self, seconds: float) -> None:
        clients = [
            client for client in (self._consumer, *self._producers.values()) if client is not None
        ]
        for client in clients:
            client.freeze()
        self.is_paused = True
        await asyncio.sleep(seconds)
        self.is_paused = False
        for client in clients:
            client.thaw()

    async def _end(self, *, leaves: bool) -> None:
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            self.costs.connections += producer.connections.opened_count
            await producer.close()
        if self._consumer is not None:
            self.costs.connections += self._consumer.connections.opened_count
            await self._consumer.close(leaves=leaves)
            self._consumer = None
