"""The exactly-once workload: writers fill an input topic, members of a group copy it in
transactions, and a reader checks the output.

A scenario adds faults and administrative actions. The output keeps keys and partitions, so that a
reader can match it with the input.
Source: KIP-98, KIP-447; org.apache.kafka.tools.TransactionalMessageCopier.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kraftsim.clients.events_transactions import CopiesCounted, CopyExpected, CopyRead
from kraftsim.clients.rules_group_member import COOPERATIVE_STICKY, RANGE, MemberSettings
from kraftsim.clients.rules_transaction_steps import TransactionalSettings
from kraftsim.cluster.scenario import (
    LivenessLost,
    ProducerSettings,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.lab.workloads.phases import CALLS_SECONDS, transactions_settle
from kraftsim.lab.workloads.transform_worker import (
    Mishaps,
    Point,
    TransformSettings,
    TransformWorker,
    Variant,
)

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
    "log.retention.ms": "-1",
    "producer.id.expiration.ms": str(2**31 - 1),
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
    transform_workers: dict[int, TransformWorker] = field(default_factory=dict)
    is_awaited: Callable[[], bool] = lambda: False
    """Whether the members stay after everything is copied: another member has yet to rejoin the
    group.
    """
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
        writer = stage.producer(self._called(f"writer-{number}"))
        await writer.start()
        for index in range(stage.workload("records_per_writer")):
            await writer.send(
                self.input_topic, index % self.partitions, f"{number}.{index}", b"line %d" % index
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
            pauses=stage.workload("pauses"),
            are_over=until,
        )
        settings = self.settings(is_old=number in self.old_members)
        if number in self.instance_ids:
            settings = replace(
                settings, group=replace(settings.group, group_instance_id=self.instance_ids[number])
            )
        transform_worker = TransformWorker(
            client_host, settings, mishaps=mishaps, is_done=lambda: self._is_done
        )
        self.transform_workers[number] = transform_worker
        await client_host.run(transform_worker.live())

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
        consumer = client_host.group_consumer(self._called("watcher"), settings)

        async def look() -> None:
            await consumer.start()
            while not self._is_done:
                await consumer.poll()
            await consumer.close()

        await client_host.run(look())

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
