"""The transactional workload without a group: applications write to every partition of a topic in
transactions, and a reader checks them.

An application whose transaction must be aborted aborts it and begins the next one; one whose
producer has failed fatally ends, or initialises another producer with the same transactional id.
Invariants check the guarantees from the events.
Source: KIP-98.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kraftsim.clients.events_transactions import CopyRead
from kraftsim.clients.rules_transaction_steps import TransactionalSettings
from kraftsim.clients.transactional_producer import AbortNeeded, ProducerFailed, TransactionalClient
from kraftsim.cluster.scenario import ClientHost, ProducerSettings, ScenarioEnvironment
from kraftsim.lab.workloads.phases import transactions_settle
from kraftsim.lab.workloads.transform_app import OFFSETS_TOPIC as OFFSETS_TOPIC
from kraftsim.lab.workloads.transform_app import PATIENT
from kraftsim.lab.workloads.transform_app import SETTINGS as SETTINGS

__all__ = ["AbortNeeded", "OrderApp", "OrdersWorkload", "ProducerFailed", "TransactionalClient"]

TOPIC = "deals"
WORKLOAD = {"order_apps": 2, "transactions": 12, "records": 4, "pause_ms": 60}
"""The workload parameters of a scenario with this workload."""
BACKOFF_SECONDS = 1.0
"""Back-off after an aborted transaction, before the next one begins."""
MUST_EXERCISE = (
    "transactions-atomic",
    "read-committed-isolation",
    "fenced-producers-write-nothing",
    "no-hanging-transactions",
    "transaction-transitions-valid",
    "coordinator-transactions-equal-log",
    "markers-match-coordinator-decisions",
    "recovers-after-heal",
)
"""Invariants that every scenario with this workload must exercise."""


@dataclass(kw_only=True, slots=True)
class OrderApp:
    """One application: `client` is its present producer, `producer_count` counts those that it has
    had.
    """

    client_host: ClientHost
    transactional_id: str
    transaction_timeout_ms: int
    producer: ProducerSettings
    uses_implicit_adding: bool = True
    producer_count: int = 0
    client: TransactionalClient | None = None

    async def restart_producer(self) -> TransactionalClient:
        """Initialise the transactional id with a new producer, which fences the previous one.

        Raises ProducerFailed if another producer fences it.
        """
        self.producer_count += 1
        settings = TransactionalSettings(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer=self.producer,
            uses_implicit_adding=self.uses_implicit_adding,
        )
        self.client = client = self.client_host.transactional_producer(
            f"{self.client_host.name}.{self.producer_count}", settings
        )
        await client.init()
        return client


@dataclass(kw_only=True, slots=True)
class OrdersWorkload:
    """A topic and the applications that write to it."""

    partitions: int = 3
    replicas: int = 3
    transaction_timeout_ms: int = 5000
    producer: ProducerSettings = field(default_factory=lambda: replace(PATIENT))
    uses_implicit_adding: bool = True

    async def open(self, stage: ScenarioEnvironment) -> None:
        """Create the topic."""
        await stage.create_topic(TOPIC, self.partitions, self.replicas)

    def order_app(self, stage: ScenarioEnvironment, name: str, transactional_id: str) -> OrderApp:
        """Return a new application."""
        return OrderApp(
            client_host=stage.client_host(name),
            transactional_id=transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer=self.producer,
            uses_implicit_adding=self.uses_implicit_adding,
        )

    async def send(
        self,
        stage: ScenarioEnvironment,
        client: TransactionalClient,
        prefix: str,
        partitions: Sequence[int] = (),
    ) -> None:
        """Send some records of one transaction, round-robin over the partitions."""
        chosen = partitions or range(self.partitions)
        for index in range(stage.workload("records")):
            await client.send(
                TOPIC, chosen[index % len(chosen)], f"{client.transaction}.{prefix}{index}", b"deal"
            )

    async def run_orders(
        self,
        stage: ScenarioEnvironment,
        number: int,
        *,
        commits: Callable[[int], bool] = lambda index: bool(index % 4),
        count: int | None = None,
    ) -> None:
        """Run one application to its end: most of its transactions are committed, some aborted.

        `count` is their number, None: that of the workload parameter.
        """
        order_app = self.order_app(stage, f"dealer-{number}", f"deals-{number}")

        async def work() -> None:
            client = await self._born(order_app)
            for index in range(stage.workload("transactions") if count is None else count):
                try:
                    await self._deal(stage, client, commits=commits(index))
                except AbortNeeded:
                    client = await self._after_abort(order_app, client)
                    await stage.sleep(BACKOFF_SECONDS)
                except ProducerFailed:
                    await client.close()
                    client = await self._born(order_app)
                await stage.sleep(stage.workload("pause_ms") / 1000)
            await client.close()

        await order_app.client_host.run(work())

    async def _born(self, order_app: OrderApp) -> TransactionalClient:
        while True:
            try:
                return await order_app.restart_producer()
            except ProducerFailed:
                assert order_app.client is not None, "it was tried"
                await order_app.client.close()

    async def _after_abort(
        self, order_app: OrderApp, client: TransactionalClient
    ) -> TransactionalClient:
        try:
            await client.abort()
        except (AbortNeeded, ProducerFailed):
            await client.close()
            return await self._born(order_app)
        return client

    async def _deal(
        self, stage: ScenarioEnvironment, client: TransactionalClient, *, commits: bool
    ) -> None:
        await client.begin()
        await self.send(stage, client, "a")
        await stage.sleep(stage.workload("pause_ms") / 1000)
        await self.send(stage, client, "b")
        if commits:
            await client.commit()
        else:
            await client.abort()

    async def audit(self, stage: ScenarioEnvironment) -> None:
        """Wait until every transaction is decided, and read what is committed."""
        await transactions_settle(stage, (TOPIC,))
        reader = stage.reader("auditor", read_committed=True)
        await reader.read_all(TOPIC, range(self.partitions))
        stage.emit(CopyRead(client_id="auditor", topic=TOPIC))
        await reader.close()
