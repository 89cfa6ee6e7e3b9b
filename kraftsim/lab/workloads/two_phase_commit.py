"""The two-phase commit workload: participants write records to a topic and rows to a database, both
or neither (KIP-939).

A participant sends the records of a transaction and prepares it. The database commits one row with
the keys of the records and the identity of the prepared transaction; that is the decision. Then the
participant commits its transaction. Two instances take turns for each transactional id: an instance
crashes, pauses or is fenced between any two steps, and the next one finds the open transaction and
completes it by what the database has. The audit compares all rows with all records.

The database is not simulated in its parts: a commit happens at one instant, between two waits in
which the instance may crash, and is never lost. It fences, as KIP-939 asks of it: an instance takes
the ownership of its id in the database before it reads the last row, and the database refuses the
commit of an earlier owner.
Source: KIP-939.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraftsim.clients.events_transactions import CopyRead, DatabaseCommitted, DatabaseCompared
from kraftsim.clients.rules_transaction_steps import TransactionalSettings
from kraftsim.clients.transactional_producer import AbortNeeded, ProducerFailed
from kraftsim.clients.two_phase_producer import KeptTransaction, TwoPhaseClient
from kraftsim.cluster.scenario import ClientHost, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.workloads.phases import transactions_settle
from kraftsim.lab.workloads.transform_app import PATIENT
from kraftsim.lab.workloads.transform_app import SETTINGS as TRANSACTION_SETTINGS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the scenario environment)

TOPIC = "payments"
PARTITIONS, REPLICAS = 4, 3
PARTICIPANTS, INSTANCES = 2, 2
TIMEOUT_MS = 3000
DATABASE_SECONDS = 0.1
ROLLED_BACK = 0.15
"""The share of transactions that the database refuses."""
SETTINGS = {
    **TRANSACTION_SETTINGS,
    "kraftsim.release": "4.4",
    "kraftsim.two.phase.commit": "keeping",
    "transaction.two.phase.commit.enable": "true",
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
}
WORKLOAD = {
    "participants": PARTICIPANTS,
    "records": 3,
    "pause_ms": 30,
    "crashes_per_mille": 30,
    "pauses_per_mille": 20,
    "away_ms": 4000,
    "participates": 1,
    "keeps": 1,
    "fences": 1,
}
"""The parameters. An instance may be away for longer than the time-out of transactions that have
one. The last three are 0 for what releases have, a time-out and InitProducerId that aborts, and for
a database that does not fence.
"""
MUST_EXERCISE = (
    "database-and-topic-agree",
    "markers-follow-the-database",
    "participants-never-time-out",
    "transactions-atomic",
    "read-committed-isolation",
    "no-hanging-transactions",
    "recovers-after-heal",
)
"""Invariants that every scenario with this workload must exercise."""


class DatabaseRefused(RuntimeError):
    """Another instance owns the id in the database."""


class InstanceCrashed(RuntimeError):
    """The instance crashes here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseRow:
    """What the database committed."""

    prepared: KeptTransaction
    keys: tuple[str, ...]


@dataclass(kw_only=True, slots=True)
class Database:
    """Rows by transactional id, in order, and how often each id was taken."""

    fences: bool
    rows: dict[str, list[DatabaseRow]] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)

    def own(self, transactional_id: str) -> int:
        """Take an id: earlier owners cannot commit any more."""
        self.owners[transactional_id] = self.owners.get(transactional_id, 0) + 1
        return self.owners[transactional_id]

    def last(self, transactional_id: str) -> KeptTransaction | None:
        """Return the prepared transaction of the last row of an id."""
        rows = self.rows.get(transactional_id)
        return rows[-1].prepared if rows else None

    def commit(self, transactional_id: str, owner: int, row: DatabaseRow) -> None:
        """Commit a row. Raises DatabaseRefused."""
        if self.fences and owner != self.owners[transactional_id]:
            raise DatabaseRefused(transactional_id)
        self.rows.setdefault(transactional_id, []).append(row)

    def keys(self) -> list[str]:
        """Return the keys of all rows."""
        return [key for rows in self.rows.values() for row in rows for key in row.keys]


class TwoPhaseInstance:
    """One process of a participant: it takes the id, completes what it finds, and works until it
    crashes, is fenced, or the work is over.
    """

    def __init__(
        self,
        stage: ScenarioEnvironment,
        host: ClientHost,
        database: Database,
        transactional_id: str,
        random: "Random",
    ) -> None:
        self._stage = stage
        self._host = host
        self._database = database
        self._transactional_id = transactional_id
        self._random = random
        self._count = 0
        self._is_calm = False
        self._client: TwoPhaseClient | None = None

    async def work(self, over_at: float) -> None:
        """Run one incarnation after the other until the time is over."""
        while self._stage.now_seconds() < over_at:
            try:
                client, owner = await self._begin()
                while self._stage.now_seconds() < over_at:
                    await self._transaction(client, owner)
            except (InstanceCrashed, DatabaseRefused, ProducerFailed, AbortNeeded):
                pass
            await self._end()
            await asyncio.sleep(self._random.uniform(0, self._stage.workload("away_ms") / 1000))

    async def finish(self) -> None:
        """When nothing fails any more, complete what is open, and commit one more transaction."""
        self._is_calm = True
        while True:
            try:
                client, owner = await self._begin()
                is_committed = await self._transaction(client, owner)
            except (ProducerFailed, AbortNeeded):
                is_committed = False
            await self._end()
            if is_committed:
                return

    async def _begin(self) -> tuple[TwoPhaseClient, int]:
        """Initialize a producer; take the id in the database before its decision is read."""
        self._count += 1
        settings = TransactionalSettings(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer=PATIENT,
            participates=bool(self._stage.workload("participates")),
            keeps=bool(self._stage.workload("keeps")),
        )
        self._client = client = self._host.two_phase_producer(
            f"{self._host.name}.{self._count}", settings
        )
        await client.init()
        owner = self._database.own(self._transactional_id)
        await client.complete(self._database.last(self._transactional_id))
        return client, owner

    async def _transaction(self, client: TwoPhaseClient, owner: int) -> bool:
        """Write the records and the row of one transaction, and return whether it is committed.

        What fails before the row is written aborts it; afterwards only another producer can tell
        what became of it.
        """
        await client.begin()
        keys = []
        try:
            for index in range(self._stage.workload("records")):
                key = f"{client.transaction}/{index}"
                await client.send(TOPIC, self._random.randrange(PARTITIONS), key, b"paid")
                keys.append(key)
                await self._pass()
            prepared = await client.prepare()
        except AbortNeeded:
            await client.abort()
            return False
        await self._pass()
        if self._random.random() < ROLLED_BACK and not self._is_calm:
            await client.abort()
            return False
        await self._write(owner, DatabaseRow(prepared=prepared, keys=tuple(keys)))
        await self._pass()
        await client.commit()
        await self._pass()
        return True

    async def _write(self, owner: int, row: DatabaseRow) -> None:
        await asyncio.sleep(self._random.uniform(0, DATABASE_SECONDS))
        self._database.commit(self._transactional_id, owner, row)
        (producer_id, producer_epoch), transaction = row.prepared
        self._host.emit(
            DatabaseCommitted(
                client_id=f"{self._host.name}.{self._count}",
                transactional_id=self._transactional_id,
                transaction=transaction,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                record_keys=" ".join(row.keys),
            )
        )
        await asyncio.sleep(self._random.uniform(0, DATABASE_SECONDS))

    async def _pass(self) -> None:
        """Crash or pause here, by chance."""
        await asyncio.sleep(self._random.uniform(0, 2) * self._stage.workload("pause_ms") / 1000)
        if self._is_calm:
            return
        drawn = self._random.randrange(1000)
        crashes = self._stage.workload("crashes_per_mille")
        if drawn < crashes:
            raise InstanceCrashed
        if drawn < crashes + self._stage.workload("pauses_per_mille"):
            assert self._client is not None, "an instance at work has a producer"
            self._client.freeze()
            await asyncio.sleep(self._random.uniform(0, self._stage.workload("away_ms") / 1000))
            self._client.thaw()

    async def _end(self) -> None:
        """The process is gone: whatever is open stays open."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


@dataclass(kw_only=True, slots=True)
class TwoPhaseCommitWorkload:
    """A topic, a database, and the participants that write to both."""

    database: Database
    instances: list[TwoPhaseInstance] = field(default_factory=list)
    hosts: list[ClientHost] = field(default_factory=list)

    async def open(self, stage: ScenarioEnvironment) -> None:
        """Create the topic and the instances."""
        await stage.create_topic(TOPIC, PARTITIONS, REPLICAS)
        for number in range(1, stage.workload("participants") + 1):
            for name in instances_of(number):
                host = stage.client_host(name)
                self.hosts.append(host)
                self.instances.append(
                    TwoPhaseInstance(
                        stage, host, self.database, f"payer-{number}", stage.random(name)
                    )
                )

    async def run(self, stage: ScenarioEnvironment, over_at: float) -> None:
        """Run all instances until the time is over."""
        pairs = zip(self.hosts, self.instances, strict=True)
        await stage.gather(*(host.run(instance.work(over_at)) for host, instance in pairs))

    async def audit(self, stage: ScenarioEnvironment) -> None:
        """Complete what is open, and compare the rows with the records."""
        for host, instance in zip(self.hosts, self.instances, strict=True):
            await host.run(instance.finish())
        await transactions_settle(stage, (TOPIC,))
        reader = stage.reader("auditor", read_committed=True)
        read = [record.key for record in await reader.read_all(TOPIC, range(PARTITIONS))]
        stage.emit(CopyRead(client_id="auditor", topic=TOPIC))
        await reader.close()
        _compare(stage, self.database.keys(), read)


def instances_of(number: int) -> tuple[str, ...]:
    """Return the names of the instances of a participant."""
    return tuple(f"payer-{number}-{instance}" for instance in range(1, INSTANCES + 1))


def _compare(stage: ScenarioEnvironment, rows: Sequence[str], read: Sequence[str]) -> None:
    if len(set(read)) < len(read):
        raise ScenarioFailed("a record is in the topic twice")
    in_topic, in_database = set(read), set(rows)
    stage.emit(
        DatabaseCompared(
            topic=TOPIC,
            key_count=len(in_topic & in_database),
            only_in_database=" ".join(sorted(in_database - in_topic)),
            only_in_topic=" ".join(sorted(in_topic - in_database)),
        )
    )
