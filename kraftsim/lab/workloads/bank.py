"""The bank workload: a consume-transform-produce app transfers money between accounts of a branch.

Each partition of the input has the transfers of one branch. The member to which it is assigned
restores the branch's balances from the output, as Kafka Streams restores a store from its
changelog, and produces for each transfer the new balance of both accounts, in different partitions.
Balances are absolute: a member that should have been fenced, a transfer that is processed twice or
not at all, and a state that was read in part change the sum of all balances or a balance.
Source: Jepsen's bank test; KIP-98, KIP-447; StoreChangelogReader.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftsim.clients.events import BranchRead
from kraftsim.clients.events_transactions import CopyRead
from kraftsim.clients.reader import ReadRecord
from kraftsim.clients.rules_history_anomalies import Anomaly
from kraftsim.clients.rules_history_bank import (
    BankEntry,
    Branch,
    bank_anomalies,
    consistent_read,
    entry_of,
    missing_transfers,
    opening,
)
from kraftsim.cluster.scenario import ReaderDriver, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.workloads.list_append import publish
from kraftsim.lab.workloads.phases import transactions_settle
from kraftsim.lab.workloads.transform_app import (
    OFFSETS_TOPIC,
    OutputRecord,
    TransformApp,
    Transformation,
)

BANK = "bank"
ACCOUNTS: Final = 5
BALANCE: Final = 100
RETRY_SECONDS: Final = 0.2
RESTORE_SECONDS: Final = 60.0
"""Longer than any transaction stays open: what a group has committed is visible by then."""
MUST_EXERCISE = (
    "client-histories-explained",
    "bank-total-constant",
    "transactions-atomic",
    "read-committed-isolation",
    "recovers-after-heal",
)
"""Invariants that every scenario with this application must exercise."""


class Teller:
    """What one member does: it keeps the branches of its partitions in memory."""

    def __init__(self, stage: ScenarioEnvironment, bank: "BankApp", name: str) -> None:
        self._stage = stage
        self._bank = bank
        self._reader = stage.reader(f"{name}-restorer", read_committed=True)
        self._branches: dict[int, Branch] = {}

    async def outputs(self, records: Sequence[ReadRecord]) -> Sequence[OutputRecord]:
        """Return two records for each transfer: the new balances of both accounts."""
        found: list[OutputRecord] = []
        for record in records:
            number = record.partition
            branch = self._branches.get(number)
            if branch is None or branch.number != record.offset:
                branch = await self._restored(number, record.offset)
            payer, payee, amount = (int(part) for part in record.value.decode().split(":"))
            balances = dict(branch.balances)
            for account, change in ((payer, -amount), (payee, amount)):
                balances[account] += change
                entry = BankEntry(number, record.offset + 1, account, change, balances[account])
                partition = (number + account) % self._bank.partitions
                found.append(OutputRecord(partition, entry.key, b""))
            self._branches[number] = Branch(number=record.offset + 1, balances=balances)
        return found

    def forget(self) -> None:
        """Restore every branch again before its next transfer."""
        self._branches.clear()

    async def _restored(self, number: int, transfers: int) -> Branch:
        """Return a branch after its first transfers, once all of them are visible.

        Raises ScenarioFailed if they never are.
        """
        gives_up_at = self._stage.now_seconds() + RESTORE_SECONDS * self._stage.patience
        start = opening(ACCOUNTS, BALANCE)
        while True:
            entries = await self._bank.entries(self._reader)
            earlier = [entry for entry in entries if entry.number <= transfers]
            branch = consistent_read(number, start, earlier)
            if branch.number == transfers:
                return branch
            if self._stage.now_seconds() > gives_up_at:
                raise ScenarioFailed(
                    f"branch {number} has {branch.number} complete transfers in the output, and "
                    f"its group has committed {transfers}"
                )
            await self._stage.sleep(RETRY_SECONDS)


@dataclass(kw_only=True, slots=True)
class BankApp(TransformApp):
    """The application, its input of transfers, and readers that check the sums."""

    name: str = BANK
    anomalies: dict[tuple[str, str], Anomaly] = field(default_factory=dict)
    reads: int = 0

    async def open(self, stage: ScenarioEnvironment) -> None:
        """Create the topics."""
        await stage.create_topic(self.input_topic, self.partitions, self.replicas)
        await stage.create_topic(self.output_topic, self.partitions, self.replicas)

    def transformation(self, stage: ScenarioEnvironment, number: int) -> Transformation:
        """Return what a member does with its input."""
        return Teller(stage, self, f"{self.name}-teller-{number}")

    def input_value(self, stage: ScenarioEnvironment, index: int) -> bytes:
        """Return a transfer: payer, payee and amount, all of which depend on its number alone."""
        payer = index % ACCOUNTS
        payee = (payer + 1 + index // ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS
        return f"{payer}:{payee}:{1 + index % 7}".encode()

    async def entries(self, reader: ReaderDriver) -> list[BankEntry]:
        """Return what a reader reads of all accounts."""
        records = await reader.read_all(self.output_topic, range(self.partitions))
        return [entry_of(record.key) for record in records]

    async def watch(self, stage: ScenarioEnvironment) -> None:
        """Read all accounts while they change, and check the sums."""
        reader = stage.reader(f"{self.name}-reader", read_committed=True)
        while not self.is_done:
            self._check(stage, f"{self.name}-reader", await self.entries(reader))
            await stage.sleep(8 * stage.workload("pause_ms") / 1000)
        await reader.close()

    async def audit(self, stage: ScenarioEnvironment) -> None:
        """Wait until every transaction is decided, read all accounts, and check them."""
        topics = (self.input_topic, self.output_topic, OFFSETS_TOPIC)
        await transactions_settle(stage, topics)
        questions = stage.questions("auditor-of-offsets")
        made: dict[int, int] = {}
        while len(made) < self.partitions:
            made = dict(await questions.ends(self.input_topic))
        questions.close()
        reader = stage.reader("auditor", read_committed=True)
        entries = await self.entries(reader)
        stage.emit(CopyRead(client_id="auditor", topic=self.output_topic))
        await reader.close()
        self._check(stage, "auditor", entries)
        missing = missing_transfers("auditor", made, opening(ACCOUNTS, BALANCE), entries)
        self._keep(missing)
        publish(stage, self.name, self.reads, tuple(self.anomalies.values()))

    def _check(self, stage: ScenarioEnvironment, reader: str, entries: Sequence[BankEntry]) -> None:
        start = opening(ACCOUNTS, BALANCE)
        self.reads += 1
        self._keep(bank_anomalies(reader, self.partitions, start, entries))
        for number in range(self.partitions):
            branch = consistent_read(number, start, entries)
            stage.emit(
                BranchRead(
                    client_id=reader,
                    branch=number,
                    transfer=branch.number,
                    total=branch.total,
                    expected_total=start.total,
                )
            )

    def _keep(self, anomalies: Sequence[Anomaly]) -> None:
        for anomaly in anomalies:
            self.anomalies.setdefault((anomaly.kind, anomaly.key), anomaly)
