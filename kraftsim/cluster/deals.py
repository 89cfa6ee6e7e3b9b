"""The transactional workload without a group: applications write to every partition of a topic in transactions, and a reader checks them.

An application whose transaction must be aborted aborts it and begins the next one; one whose producer has failed fatally ends, or
initialises another producer with the same transactional id. Invariants check the guarantees from the events.
Source: KIP-98.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kraftsim.cluster.copying import OFFSETS_TOPIC as OFFSETS_TOPIC
from kraftsim.cluster.copying import PATIENT
from kraftsim.cluster.copying import SETTINGS as SETTINGS
from kraftsim.cluster.phases import transactions_settle
from kraftsim.cluster.scenario import ProducerSettings, Stage
from kraftsim.cluster.workplace import Workplace
from kraftsim.core.clients.transaction_steps import TransactionalSettings
from kraftsim.events.transactional_clients import CopyRead
from kraftsim.node.clients import AbortNeeded, ProducerFailed, TransactionalClient

__all__ = ["AbortNeeded", "Dealer", "Deals", "ProducerFailed", "TransactionalClient"]

TOPIC = "deals"
WORKLOAD = {"dealers": 2, "transactions": 12, "records": 4, "pause_ms": 60}
"""The workload parameters of a scenario with this workload."""
BACKOFF_SECONDS = 1.0
"""Back-off after an aborted transaction, before the next one begins."""
MUST_EXERCISE = (
    "transactions-atomic",
    "read-committed-reads-committed-only",
    "fenced-producers-write-nothing",
    "no-transaction-hangs",
    "transaction-states-follow",
    "known-transactions-equal-log",
    "markers-agree-with-coordinators",
    "settles-after-heal",
)
"""Invariants that every scenario with this workload must exercise."""


@dataclass(kw_only=True, slots=True)
class Dealer:
    """One application: `client` is its present producer, `lives` counts those that it has had."""

    workplace: Workplace
    transactional_id: str
    transaction_timeout_ms: int
    producer: ProducerSettings
    uses_implicit_adding: bool = True
    lives: int = 0
    client: TransactionalClient | None = None

    async def begin_life(self) -> TransactionalClient:
        """Initialise the transactional id with a new producer, which fences the previous one. Raises ProducerFailed if another producer fences it."""
        self.lives += 1
        settings = TransactionalSettings(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer=self.producer,
            uses_implicit_adding=self.uses_implicit_adding,
        )
        self.client = client = self.workplace.transactional_producer(f"{self.workplace.name}.{self.lives}", settings)
        await client.init()
        return client


@dataclass(kw_only=True, slots=True)
class Deals:
    """A topic and the applications that write to it."""

    partitions: int = 3
    replicas: int = 3
    transaction_timeout_ms: int = 5000
    producer: ProducerSettings = field(default_factory=lambda: replace(PATIENT))
    uses_implicit_adding: bool = True

    async def open(self, stage: Stage) -> None:
        """Create the topic."""
        await stage.create_topic(TOPIC, self.partitions, self.replicas)

    def dealer(self, stage: Stage, name: str, transactional_id: str) -> Dealer:
        """Return a new application."""
        return Dealer(
            workplace=stage.workplace(name),
            transactional_id=transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer=self.producer,
            uses_implicit_adding=self.uses_implicit_adding,
        )

    async def send(self, stage: Stage, client: TransactionalClient, prefix: str, partitions: Sequence[int] = ()) -> None:
        """Send some records of one transaction, round-robin over the partitions."""
        chosen = partitions or range(self.partitions)
        for index in range(stage.workload("records")):
            await client.send(TOPIC, chosen[index % len(chosen)], f"{client.transaction}.{prefix}{index}", b"deal")

    async def trade(self, stage: Stage, number: int, *, commits: Callable[[int], bool] = lambda index: bool(index % 4)) -> None:
        """Run one application to its end: most of its transactions are committed, some aborted."""
        dealer = self.dealer(stage, f"dealer-{number}", f"deals-{number}")

        async def work() -> None:
            client = await self._born(dealer)
            for index in range(stage.workload("transactions")):
                try:
                    await self._deal(stage, client, commits=commits(index))
                except AbortNeeded:
                    client = await self._after_abort(dealer, client)
                    await stage.sleep(BACKOFF_SECONDS)
                except ProducerFailed:
                    await client.close()
                    client = await self._born(dealer)
                await stage.sleep(stage.workload("pause_ms") / 1000)
            await client.close()

        await dealer.workplace.run(work())

    async def _born(self, dealer: Dealer) -> TransactionalClient:
        while True:
            try:
                return await dealer.begin_life()
            except ProducerFailed:
                assert dealer.client is not None, "it was tried"
                await dealer.client.close()

    async def _after_abort(self, dealer: Dealer, client: TransactionalClient) -> TransactionalClient:
        try:
            await client.abort()
        except (AbortNeeded, ProducerFailed):
            await client.close()
            return await self._born(dealer)
        return client

    async def _deal(self, stage: Stage, client: TransactionalClient, *, commits: bool) -> None:
        await client.begin()
        await self.send(stage, client, "a")
        await stage.sleep(stage.workload("pause_ms") / 1000)
        await self.send(stage, client, "b")
        if commits:
            await client.commit()
        else:
            await client.abort()

    async def audit(self, stage: Stage) -> None:
        """Wait until every transaction is decided, and read what is committed."""
        await transactions_settle(stage, (TOPIC,))
        await stage.sleep(1.0)
        reader = stage.reader("auditor", read_committed=True)
        await reader.read_all(TOPIC, range(self.partitions))
        stage.note(CopyRead(client_id="auditor", topic=TOPIC))
        await reader.close()
