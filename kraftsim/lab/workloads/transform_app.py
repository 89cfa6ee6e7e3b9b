"""The exactly-once workload: writers fill an input topic, members of a group copy it in
transactions, and a reader checks the output.

A scenario adds faults and administrative actions. The output keeps keys and partitions, so that a
reader can match it with the input.
Source: KIP-98, KIP-447; org.apache.kafka.tools.TransactionalMessageCopier.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kraftsim.clients.events_transactions import CopiesCounted, CopyExpected, CopyRead
from kraftsim.clients.group_consumer import GroupConsumerClient, MembershipFailed
from kraftsim.clients.reader import ReadRecord
from kraftsim.clients.rules_group_member import OF_THREADS
from kraftsim.clients.rules_member_steps import (
    COOPERATIVE_STICKY,
    RANGE,
    GroupProtocol,
    MemberSettings,
)
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_transaction_steps import GroupIdentity, TransactionalSettings
from kraftsim.clients.transactional_producer import AbortNeeded, ProducerFailed, TransactionalClient
from kraftsim.cluster.scenario import (
    ClientHost,
    LivenessLost,
    ProducerSettings,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.lab.workloads.phases import CALLS_SECONDS, transactions_settle
from kraftsim.lab.workloads.replication_workload import UNDER_ANY_CLOCK
from kraftsim.lab.workloads.worn_sequences import producer_of
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the scenario environment)


# --------------------------------------------------------------------------------------------------
# One member of an exactly-once consume-transform-produce application, which commits output records
# and offsets in one transaction
#
# It has one producer per thread for all of its partitions (KIP-447), or one per input partition,
# named after it, as Kafka Streams had before. It may crash, or pause and resume, at any point of
# its work: see `Mishaps`.
# Source: KIP-98, KIP-129, KIP-447; the template in KafkaProducer's documentation.

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


class Departed(RuntimeError):
    """The member ends in order: it leaves the group, and comes back."""


class OutputRecord(NamedTuple):
    """What a member produces to the output topic."""

    partition: int
    key: str
    value: bytes


class Transformation(Protocol):
    """What becomes of input records; by default a copy of each."""

    async def outputs(self, records: Sequence[ReadRecord]) -> Sequence[OutputRecord]:
        """Return the output of the next records, in one transaction."""
        ...

    def forget(self) -> None:
        """Drop all state: the last transaction was not committed."""
        ...


class Copying:
    """Copies each record, with its key and partition."""

    async def outputs(self, records: Sequence[ReadRecord]) -> Sequence[OutputRecord]:
        """Return a copy of each record."""
        return [OutputRecord(record.partition, record.key, record.value) for record in records]

    def forget(self) -> None:
        """There is no state."""


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

    def id_of_task(self, where: TopicPartition) -> str:
        """Return the transactional id of a partition, which no other partition has: a member that
        reads several topics would fence itself.
        """
        of_topic = "" if where.topic == self.input_topic else f"{where.topic}-"
        return f"{self.id_prefix}-task-{of_topic}{where.partition}"


@dataclass(kw_only=True, slots=True)
class Mishaps:
    """When members crash, leave or pause: how many points, of a thousand passed, end so."""

    random: "Random"
    crashes: int = 0
    departures: int = 0
    pauses: int = 0
    pause_seconds: tuple[float, float] = (1.0, 9.0)
    are_over: Callable[[], bool] = lambda: False

    def crash(self) -> bool:
        """Draw whether the member crashes here."""
        return not self.are_over() and self.random.random() * 1000 < self.crashes

    def depart(self) -> bool:
        """Draw whether the member leaves its group here."""
        is_possible = self.departures > 0 and not self.are_over()
        return is_possible and self.random.random() * 1000 < self.departures

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
        transformation: Transformation | None = None,
    ) -> None:
        self.costs = Costs()
        self._transformation = transformation or Copying()
        self.on_point: Callable[[Point, TransformWorker], None] = lambda point, transform_worker: (
            None
        )
        self._client_host = client_host
        self._settings = settings
        self._mishaps = mishaps
        self._is_done = is_done
        self.group_of: Callable[[int], MemberSettings] = lambda incarnation: settings.group
        """The settings of the consumer of each incarnation."""
        self._incarnation = 0
        self._consumer: GroupConsumerClient | None = None
        self._producers: dict[TopicPartition | None, TransactionalClient] = {}
        self._pauses_at: tuple[Point, float] | None = None
        self.is_paused = False

    def resubscribe(self, topics: tuple[str, ...], expression: str | None) -> None:
        """Change the subscription, if there is a member of a consumer group."""
        if (
            self._consumer is not None
            and self.group_of(self._incarnation).group_protocol is GroupProtocol.CONSUMER
        ):
            self._consumer.subscribe(topics, expression)

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
            except (Crashed, Departed, ProducerFailed, MembershipFailed) as end:
                await self._end(leaves=not isinstance(end, Crashed))
                if (
                    isinstance(end, MembershipFailed)
                    and end.error_code is ErrorCode.FENCED_INSTANCE_ID
                ):
                    return  # another process has its group.instance.id, and has replaced it
                await asyncio.sleep(RESTART_SECONDS)

    async def _live_once(self) -> None:
        self._transformation.forget()
        name = f"{self._client_host.name}.{self._incarnation}"
        self._consumer = consumer = self._client_host.group_consumer(
            name, self.group_of(self._incarnation), require_stable=self._settings.require_stable
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
                self._transformation.forget()
                return False
        return True

    async def _transaction(
        self, producer: TransactionalClient, group: GroupIdentity, records: Sequence[ReadRecord]
    ) -> None:
        outputs = await self._transformation.outputs(records)
        await producer.begin()
        await self._pass(Point.BEGUN)
        for output in outputs:
            await producer.send(
                self._settings.output_topic, output.partition, output.key, output.value
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

        A partition of another topic, where members subscribe to several, has its own id: with that
        of the input's partition of the same number the two would fence each other for ever.
        """
        for where in partitions:
            if where not in self._producers:
                await self._producer(where, self._settings.id_of_task(where))

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
        if self._mishaps.depart():
            raise Departed(point)
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


__all__ = [
    "COOPERATIVE_STICKY",
    "RANGE",
    "Mishaps",
    "Point",
    "TransformApp",
    "TransformWorker",
    "Variant",
]

COPY = "copy"
INPUT = f"{COPY}-in"
OFFSETS_TOPIC = "__consumer_offsets"
WORKLOAD = {
    "copiers": 3,
    "writers": 2,
    "records_per_writer": 100,
    "pause_ms": 30,
    "crashes": 0,
    "pauses": 0,
}
"""The workload parameters of a scenario with this application; crashes and pauses are per thousand
points passed.
"""
SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    **UNDER_ANY_CLOCK,
    "transactional.id.expiration.ms": str(2**31 - 1),
    "offsets.topic.num.partitions": "3",
    "offsets.retention.minutes": str(2**30),
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "200",
}
PATIENT = ProducerSettings(delivery_timeout_ms=20_000, request_timeout_ms=4000)
"""Request time-outs that are short enough for several attempts within a transaction."""
MUST_EXERCISE = (
    "each-input-processed-once",
    "transactions-atomic",
    "read-committed-isolation",
    "recovers-after-heal",
)
"""Invariants that every scenario with this application must exercise."""


@dataclass(kw_only=True, slots=True)
class TransformApp:
    """One consume-transform-produce application.

    `transform_workers` are its members by number, once they run.
    """

    name: str = COPY
    partitions: int = 4
    replicas: int = 3
    variant: Variant = Variant.PER_THREAD
    assignor: str = RANGE
    session_timeout_ms: int = 6000
    transaction_timeout_ms: int = 6000
    records_per_transaction: int = 20
    uses_implicit_adding: bool = True
    producer: ProducerSettings = PATIENT
    old_members: tuple[int, ...] = ()
    """Members that are pre-KIP-447 clients: they commit offsets without member metadata, and do not
    require stable offsets.
    """
    instance_ids: Mapping[int, str] = field(default_factory=dict)
    """Static members: number -> group.instance.id."""
    rebalance_timeout_ms: int | None = None
    """None: as long as a session."""
    departures: int = 0
    """How many of a thousand points end with a member that leaves, and comes back."""
    group_of: Callable[[int, MemberSettings, int], MemberSettings] | None = None
    """The settings of a member's consumer, by its number, the usual ones, and its incarnation."""
    transform_workers: dict[int, TransformWorker] = field(default_factory=dict)
    is_awaited: Callable[[], bool] = lambda: False
    """Whether the members stay after everything is copied: another member has yet to rejoin the
    group.
    """
    last_may_be_written: asyncio.Event | None = None
    """What the writers wait for before the last record of each partition; None: nothing."""
    _is_filled: bool = False
    _is_done: bool = False

    @property
    def input_topic(self) -> str:
        """The topic that the members consume."""
        return f"{self.name}-in"

    @property
    def output_topic(self) -> str:
        """The topic that the members produce to."""
        return f"{self.name}-out"

    @property
    def group_id(self) -> str:
        """The consumer group of the members."""
        return f"{self.name}-group"

    @property
    def is_done(self) -> bool:
        """Whether everything is copied."""
        return self._is_done

    async def open(self, stage: ScenarioEnvironment) -> None:
        """Create the topics."""
        await stage.create_topic(self.input_topic, self.partitions, self.replicas)
        await stage.create_topic(self.output_topic, self.partitions, self.replicas)
        stage.emit(CopyExpected(input_topic=self.input_topic, output_topic=self.output_topic))

    async def write(self, stage: ScenarioEnvironment, number: int) -> None:
        """Run one writer of the input."""
        writer = producer_of(stage, self._called(f"writer-{number}"))
        await writer.start()
        count = stage.workload("records_per_writer")
        for index in range(count):
            if index == max(0, count - self.partitions) and self.last_may_be_written is not None:
                await self.last_may_be_written.wait()
            await writer.send(
                self.input_topic,
                index % self.partitions,
                f"{number}.{index}",
                self.input_value(stage, index),
            )
            await stage.sleep(stage.workload("pause_ms") / 1000)
        left = await writer.flush(CALLS_SECONDS)
        await writer.close()
        if left:
            raise LivenessLost(
                f"writer-{number} has {left} unacknowledged records {CALLS_SECONDS:g} s after it "
                "sent the last one"
            )

    async def copy(
        self, stage: ScenarioEnvironment, number: int, *, until: Callable[[], bool] = lambda: True
    ) -> None:
        """Run one member until everything is copied.

        Crashes and pauses follow the workload parameters until `until` is true.
        """
        client_host = stage.client_host(self._called(f"copier-{number}"))
        mishaps = Mishaps(
            random=stage.random(f"copier-{number}"),
            crashes=stage.workload("crashes"),
            departures=self.departures,
            pauses=stage.workload("pauses"),
            are_over=until,
        )
        settings = self.settings(is_old=number in self.old_members)
        if number in self.instance_ids:
            settings = replace(
                settings, group=replace(settings.group, group_instance_id=self.instance_ids[number])
            )
        transform_worker = TransformWorker(
            client_host,
            settings,
            mishaps=mishaps,
            is_done=lambda: self._is_done,
            transformation=self.transformation(stage, number),
        )
        if self.group_of is not None:
            transform_worker.group_of = partial(self.group_of, number, settings.group)
        self.transform_workers[number] = transform_worker
        await client_host.run(transform_worker.live())

    def transformation(self, stage: ScenarioEnvironment, number: int) -> Transformation:
        """Return what a member does with its input."""
        return Copying()

    async def fill(self, stage: ScenarioEnvironment) -> None:
        """Write the whole input, once."""
        if not self._is_filled:
            self._is_filled = True
            await stage.gather(*(self.write(stage, number) for number in self.writers(stage)))

    def count(self, stage: ScenarioEnvironment, seconds: float) -> None:
        """Emit an event with what the members have opened and done in so many seconds."""
        costs = [transform_worker.costs for transform_worker in self.transform_workers.values()]
        stage.emit(
            CopiesCounted(
                variant=self.variant.value,
                input_partitions=self.partitions,
                threads=len(costs),
                producers=sum(each.producers for each in costs),
                connections=sum(each.connections for each in costs),
                transactions=sum(each.transactions for each in costs),
                records=sum(each.records for each in costs),
                virtual_ms=int(seconds * 1000),
            )
        )

    async def wait_for_completion(self, stage: ScenarioEnvironment) -> None:
        """Write all input, wait until the group has committed all of it, and end the members."""
        await self.fill(stage)
        questions = stage.questions("counter")
        ends: dict[int, int] = {}
        while len(ends) < self.partitions:
            ends = await questions.ends(self.input_topic)
        await questions.until_committed(self.group_id, self.input_topic, ends)
        questions.close()
        while self.is_awaited():
            await stage.sleep(0.1)
        self._is_done = True

    async def run(
        self, stage: ScenarioEnvironment, *, until: Callable[[], bool] = lambda: True
    ) -> None:
        """Run all writers and all members, until everything is copied."""
        members = (
            self.copy(stage, number, until=until)
            for number in range(1, stage.workload("copiers") + 1)
        )
        await stage.gather(self.wait_for_completion(stage), self.watch(stage), *members)

    async def audit(self, stage: ScenarioEnvironment) -> None:
        """Wait until every transaction is decided, read the output, and compare.

        Raises ScenarioFailed unless every record is there exactly once.
        """
        await transactions_settle(stage, (self.input_topic, self.output_topic, OFFSETS_TOPIC))
        questions = stage.questions("auditor-of-offsets")
        await questions.committed(self.group_id, self.input_topic, self.partitions)
        questions.close()
        reader = stage.reader(self._called("auditor"), read_committed=True)
        read = Counter(
            record.key
            for record in await reader.read_all(self.output_topic, range(self.partitions))
        )
        stage.emit(CopyRead(client_id=self._called("auditor"), topic=self.output_topic))
        await reader.close()
        sent = self.keys(stage)
        lost, doubled = sum(not read[key] for key in sent), sum(read[key] > 1 for key in sent)
        if lost or doubled:
            raise ScenarioFailed(
                f"of {len(sent)} input records {lost} are missing from the output and {doubled} "
                "are duplicated"
            )

    def input_value(self, stage: ScenarioEnvironment, index: int) -> bytes:
        """Return the value of an input record."""
        return b"line %d" % index

    def keys(self, stage: ScenarioEnvironment) -> list[str]:
        """Return the keys of all records of the input."""
        return [
            f"{number}.{index}"
            for number in self.writers(stage)
            for index in range(stage.workload("records_per_writer"))
        ]

    def _called(self, client: str) -> str:
        """Return the name of a client, with the application's name in front unless it is the
        default one.
        """
        return client if self.name == COPY else f"{self.name}-{client}"

    def writers(self, stage: ScenarioEnvironment) -> range:
        """Return the numbers of the writers."""
        return range(1, stage.workload("writers") + 1)

    async def watch(self, stage: ScenarioEnvironment) -> None:
        """Consume the output with read_committed while it is written; invariants check what is read
        from the events.
        """
        client_host = stage.client_host(self._called("watcher"))
        settings = MemberSettings(
            group_id=f"{self.name}-watchers",
            topics=(self.output_topic,),
            session_timeout_ms=self.session_timeout_ms,
        )
        name = self._called("watcher")

        async def watch() -> None:
            incarnation = 1
            while not self._is_done:
                client_id = name if incarnation == 1 else f"{name}.{incarnation}"
                consumer = client_host.group_consumer(client_id, settings)
                await consumer.start()
                try:
                    while not self._is_done:
                        await consumer.poll()
                except MembershipFailed:
                    incarnation += 1
                    await asyncio.sleep(RESTART_SECONDS)
                await consumer.close()

        await client_host.run(watch())

    def settings(self, *, is_old: bool = False) -> TransformSettings:
        """Return the settings of a member."""
        group = MemberSettings(
            group_id=self.group_id,
            topics=(self.input_topic,),
            assignor=self.assignor,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.session_timeout_ms // 4,
            rebalance_timeout_ms=self.rebalance_timeout_ms or self.session_timeout_ms,
        )
        producer = TransactionalSettings(
            transactional_id="",
            producer=replace(self.producer),
            uses_implicit_adding=self.uses_implicit_adding,
        )
        return TransformSettings(
            input_topic=self.input_topic,
            output_topic=self.output_topic,
            id_prefix=self.name,
            group=group,
            variant=self.variant,
            transaction_timeout_ms=self.transaction_timeout_ms,
            records_per_transaction=self.records_per_transaction,
            names_member=not is_old,
            require_stable=not is_old,
            producer=producer,
        )
