"""The list-append workload: writers append values to several partitions in transactions, some after
they have read a partition, and readers read all partitions with read_committed.

The history of these clients is all that a checker sees; it explains every read by an order of the
transactions, or finds what no order explains.
Source: Elle, VLDB 2020; Jepsen's list-append workload; KIP-98.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraftsim.clients.events import HistoryAnomalyFound, HistoryChecked
from kraftsim.clients.events_transactions import CopyRead
from kraftsim.clients.rules_history import (
    ClientOperation,
    HistoryRecorder,
    ListRead,
    OperationOutcome,
)
from kraftsim.clients.rules_history_anomalies import FORBIDDEN, Anomaly
from kraftsim.clients.rules_history_check import anomalies_of
from kraftsim.clients.rules_member_steps import MemberSettings
from kraftsim.cluster.scenario import ReaderDriver, ScenarioEnvironment
from kraftsim.lab.workloads.orders import (
    BACKOFF_SECONDS,
    AbortNeeded,
    OrderApp,
    ProducerFailed,
    TransactionalClient,
)
from kraftsim.lab.workloads.phases import transactions_settle
from kraftsim.lab.workloads.transform_app import PATIENT
from kraftsim.lab.workloads.transform_app import SETTINGS as SETTINGS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the environment provides the streams)

TOPIC = "lists"
MODEL = "kafka"
WORKLOAD = {"appenders": 3, "readers": 2, "transactions": 25, "pause_ms": 60}
"""The workload parameters of a scenario with this workload."""
MUST_EXERCISE = (
    "client-histories-explained",
    "transactions-atomic",
    "read-committed-isolation",
    "no-hanging-transactions",
    "recovers-after-heal",
)
"""Invariants that every scenario with this workload must exercise."""


def publish(
    stage: ScenarioEnvironment, workload: str, operations: int, anomalies: Sequence[Anomaly]
) -> None:
    """Emit what a checker has found in the history of a workload: what Kafka's model forbids."""
    stage.emit(HistoryChecked(workload=workload, model=MODEL, operation_count=operations))
    for anomaly in anomalies:
        if anomaly.kind in FORBIDDEN[MODEL]:
            stage.emit(
                HistoryAnomalyFound(
                    workload=workload,
                    anomaly=anomaly.kind,
                    key=anomaly.key,
                    witness="; ".join(anomaly.witness),
                )
            )


@dataclass(kw_only=True, slots=True)
class ListAppendWorkload:
    """A topic whose partitions are the lists, and the history of its clients."""

    partitions: int = 4
    replicas: int = 3
    transaction_timeout_ms: int = 5000
    uses_implicit_adding: bool = True
    recorder: HistoryRecorder = field(default_factory=HistoryRecorder)

    async def open(self, stage: ScenarioEnvironment) -> None:
        """Create the topic."""
        await stage.create_topic(TOPIC, self.partitions, self.replicas)

    async def append(self, stage: ScenarioEnvironment, number: int) -> None:
        """Run one writer to its end; one that fails initialises its transactional id again."""
        name = f"appender-{number}"
        app = OrderApp(
            client_host=stage.client_host(name),
            transactional_id=f"lists-{number}",
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer=PATIENT,
            uses_implicit_adding=self.uses_implicit_adding,
        )
        reader = stage.reader(f"{name}-reader", read_committed=True)
        random = stage.random(name)

        async def work() -> None:
            client = await _initialised(app)
            for index in range(stage.workload("transactions")):
                try:
                    await self._transaction(stage, f"{name}.{index}", random, client, reader)
                except (AbortNeeded, ProducerFailed):
                    await client.close()
                    client = await _initialised(app)
                await stage.sleep(stage.workload("pause_ms") / 1000)
            await client.close()

        await app.client_host.run(work())
        await reader.close()

    async def read(
        self, stage: ScenarioEnvironment, number: int, *, until: Callable[[], bool]
    ) -> None:
        """Read all partitions again and again."""
        reader = stage.reader(f"list-reader-{number}", read_committed=True)
        while not until():
            await self._read_all(f"list-reader-{number}", reader)
            await stage.sleep(4 * stage.workload("pause_ms") / 1000)
        await reader.close()

    async def tail(self, stage: ScenarioEnvironment, *, until: Callable[[], bool]) -> None:
        """Consume all partitions as they grow: fetches wait at the end of a log, unlike those of
        `read`. After each poll the lists are what the consumer has returned so far.
        """
        name = "list-tailer"
        client_host = stage.client_host(name)
        consumer = client_host.group_consumer(
            name, MemberSettings(group_id="list-tailers", topics=(TOPIC,))
        )
        seen: dict[int, dict[int, str]] = {}

        async def work() -> None:
            await consumer.start()
            while not until():
                operation = self.recorder.begin(name)
                changed: dict[int, None] = {}
                for record in await consumer.poll():
                    changed[record.partition] = None
                    # A consumer that goes back to a committed offset returns records again.
                    seen.setdefault(record.partition, {})[record.offset] = record.key
                reads = [
                    (_key(partition), tuple(key for _, key in sorted(seen[partition].items())))
                    for partition in changed
                ]
                self.recorder.end(operation, OperationOutcome.OK, reads)
            await consumer.close()

        await client_host.run(work())

    async def run(self, stage: ScenarioEnvironment, *, until: Callable[[], bool]) -> None:
        """Run all writers, and readers at least until then."""
        writing = [True]

        async def write() -> None:
            numbers = range(1, stage.workload("appenders") + 1)
            await stage.gather(*(self.append(stage, number) for number in numbers))
            writing.clear()

        numbers = range(1, stage.workload("readers") + 1)
        readers = (
            self.read(stage, number, until=lambda: not writing and until()) for number in numbers
        )
        tailer = self.tail(stage, until=lambda: not writing and until())
        await stage.gather(write(), tailer, *readers)

    async def audit(self, stage: ScenarioEnvironment) -> None:
        """Wait until every transaction is decided, read all lists, and check the history."""
        await transactions_settle(stage, (TOPIC,))
        await stage.sleep(1.0)
        reader = stage.reader("auditor", read_committed=True)
        await self._read_all("auditor", reader, is_final=True)
        stage.emit(CopyRead(client_id="auditor", topic=TOPIC))
        await reader.close()
        operations = self.recorder.operations
        publish(stage, "list-append", len(operations), anomalies_of(operations))

    async def _transaction(
        self,
        stage: ScenarioEnvironment,
        name: str,
        random: "Random",
        client: TransactionalClient,
        reader: ReaderDriver,
    ) -> None:
        """Run one transaction: of three, one reads a list first; of eight, one is aborted.

        Raises AbortNeeded if it cannot be aborted, and ProducerFailed.
        """
        await client.begin()
        operation = self.recorder.begin(name.rpartition(".")[0])
        is_commit_asked = False
        try:
            reads: list[ListRead] = []
            if random.random() < 1 / 3:
                reads = await self._lists(reader, [random.randrange(self.partitions)])
            for partition in random.sample(range(self.partitions), random.randint(1, 3)):
                for each in range(random.choice((1, 1, 2))):
                    value = f"{name}.{partition}.{each}"
                    operation.appends = [*operation.appends, (_key(partition), value)]
                    await client.send(TOPIC, partition, value, b"")
                await stage.sleep(random.random() * stage.workload("pause_ms") / 1000)
            if random.random() < 1 / 8:
                await client.abort()
                self.recorder.end(operation, OperationOutcome.FAIL)
                return
            is_commit_asked = True
            await client.commit()
            self.recorder.end(operation, OperationOutcome.OK, reads)
        except AbortNeeded:
            await client.abort()
            self.recorder.end(operation, OperationOutcome.FAIL)
            await stage.sleep(BACKOFF_SECONDS)
        except ProducerFailed:
            self.recorder.end(
                operation, OperationOutcome.INFO if is_commit_asked else OperationOutcome.FAIL
            )
            raise

    async def _read_all(
        self, process: str, reader: ReaderDriver, *, is_final: bool = False
    ) -> ClientOperation:
        operation = self.recorder.begin(process, is_final=is_final)
        self.recorder.end(
            operation, OperationOutcome.OK, await self._lists(reader, range(self.partitions))
        )
        return operation

    async def _lists(self, reader: ReaderDriver, partitions: Sequence[int]) -> list[ListRead]:
        found: dict[int, list[str]] = {partition: [] for partition in partitions}
        for record in await reader.read_all(TOPIC, partitions):
            found[record.partition].append(record.key)
        return [(_key(partition), tuple(values)) for partition, values in found.items()]


def _key(partition: int) -> str:
    return f"{TOPIC}-{partition}"


async def _initialised(app: OrderApp) -> TransactionalClient:
    while True:
        try:
            return await app.restart_producer()
        except ProducerFailed:
            assert app.client is not None, "it was tried"
            await app.client.close()
