"""Clients of many releases at work, from a cluster of 2.3 on ZooKeeper to one of KRaft and 4.4, in
processes.

The steps are those of the upgrade and migration scenarios (`kraftsim.lab.workloads.upgrading`,
`migrating`); only the workload differs: clients of real applications, which are not upgraded with
the brokers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed, within
from kraftsim.events.runs import OnlyRetriableErrorsExpected, PhaseBegan
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.workloads.migration_scenarios import MigrationWorkload
from kraftsim.lab.workloads.upgrading import VERSION_KEY, Upgrade
from kraftsim.metadata.rules_image import MetadataImage
from tests.clients.versions.workload import LOOK_SECONDS, ClientWorkload

if TYPE_CHECKING:
    from random import Random

WRITERS = (
    "java 2.3.1",
    "java 2.8.2",
    "java 4.4.0",
    "librdkafka 1.0.1",
    "librdkafka 1.4.2",
    "librdkafka newest",
)
COPIERS = ("java 2.3.1", "java 2.8.2", "java 3.4.1", "librdkafka 1.9.2", "librdkafka newest")
"""As reference/client-matrix.md says, librdkafka before 1.9 cannot read from brokers since 4.0."""
BY_NAME = ("java 2.8.2", "java 3.4.1")
"""Apps that start on 2.3: it has no member metadata in transactions, so an app sends only its group
id, which Java since 4.0 cannot.
"""
FORGETFUL = ("librdkafka 1.9.2", "librdkafka newest")
"""Clients that fail records in flight when a starting broker in ZooKeeper mode returns no brokers
and no topics: see docs/upgrades.md.
"""
IDS_PER_RESTART = 5
PATIENCE_SECONDS = 300.0
SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
FIRST_KRAFT = "3.9"
"""The KRaft controllers have this release line from the start; before the migration they only
wait.
"""
PROVEN = (
    "producer-id-unique",
    "producer-id-blocks-disjoint",
    "acknowledged-records-in-final-log",
    "one-append-per-sequence",
    "each-input-processed-once",
    "only-retriable-errors",
)


@dataclass(kw_only=True, slots=True)
class SlowUpgrade(Upgrade):
    """Waits long enough for a busy machine: errors of clients are checked here, not the speed of
    nodes.
    """

    async def settled(self) -> None:
        """Return when there is an active controller, all brokers serve and all replicas are in
        sync.

        Raises LivenessLost.
        """
        stage = self.stage
        if stage.spec.controllers:
            await within(stage, "leader", stage.wait_for_leader(), PATIENCE_SECONDS)
        await within(stage, "brokers", _brokers(stage), PATIENCE_SECONDS)
        for topic, partitions in self.topics.items():
            await within(
                stage, "replicas", stage.wait_for_replicas(topic, partitions), PATIENCE_SECONDS
            )

    async def _update(self, levels: Mapping[str, int]) -> None:
        """Retry until it is accepted: the new release of a restarted controller is known only after
        its registration.
        """
        give_up_at = self.stage.now_seconds() + PATIENCE_SECONDS
        while refusals := await self.stage.update_features(levels):
            if self.stage.now_seconds() > give_up_at:
                raise ScenarioFailed(f"the levels {dict(levels)} were refused: {refusals}")
            await self.stage.sleep(LOOK_SECONDS)


@dataclass(kw_only=True, slots=True)
class CheckedByClients(MigrationWorkload):
    """Compares nothing: that needs a time without changes, and zk_to_kraft_migration does it.

    Here clients are checked.
    """

    async def compare(self, before: MetadataImage | None = None) -> None:
        """Continue."""


async def _brokers(stage: ScenarioEnvironment) -> None:
    """Wait for all brokers; the timeout of the cluster's own probe is shorter."""
    while True:
        try:
            await stage.wait_for_brokers()
        except TimeoutError:
            continue
        return


@dataclass(kw_only=True, slots=True)
class Journey:
    """The path of a cluster: release lines in ZooKeeper mode, then, if it migrates, release lines
    in KRaft mode.
    """

    name: str
    summary: str
    first: str
    on_zookeeper: Sequence[str] = ()
    migrates: bool = False
    on_kraft: Sequence[str] = ()
    writers: Sequence[str] = WRITERS
    transform_workers: Sequence[str] = COPIERS
    by_name: Sequence[str] = ()
    logs: Path = Path()
    found: list[ClientWorkload] = field(default_factory=list)
    """The workload, after the run."""

    def scenario(self) -> Scenario:
        """Return it as a scenario."""
        begins = {"kraftsim.release": self.first, VERSION_KEY: self.first}
        starts_in_zookeeper = self.migrates or bool(self.on_zookeeper)
        controllers = {
            f"controller-{number}": {"kraftsim.release": FIRST_KRAFT, VERSION_KEY: FIRST_KRAFT}
            for number in (101, 102, 103)
        }
        return Scenario(
            name=self.name,
            summary=self.summary,
            must_exercise=PROVEN,
            run=self.run,
            faults=_no_faults,
            controllers=3 if self.migrates or not starts_in_zookeeper else 0,
            brokers=3,
            zookeeper_mode=starts_in_zookeeper,
            settings={
                **SETTINGS,
                **(begins if starts_in_zookeeper else {"kraftsim.release": self.first}),
            },
            node_settings=controllers if self.migrates else {},
            limit_seconds=3600.0,
            fewest_brokers=3,
        )

    async def run(self, stage: ScenarioEnvironment) -> None:
        """Run all upgrades with the workload, and check its results."""
        workload = ClientWorkload(
            stage, self.writers, self.transform_workers, self.by_name, self.logs
        )
        self.found.append(workload)
        try:
            await workload.open()
            stage.emit(OnlyRetriableErrorsExpected(scenario=stage.spec.run))
            await workload.start()
            await self._go(stage, workload)
            stage.emit(PhaseBegan(phase="there"))
            await workload.finish()
        finally:
            workload.close()

    async def _go(self, stage: ScenarioEnvironment, workload: ClientWorkload) -> None:
        id_client = stage.producer_id_client("asker")

        async def ask() -> None:
            await id_client.ask(IDS_PER_RESTART)

        upgrade = SlowUpgrade(stage=stage, topics=workload.topics, after_each=ask)
        for line in self.on_zookeeper:
            await upgrade.brokers_to(line)
            await upgrade.raise_version(line)
        if self.migrates:
            migration = CheckedByClients(stage=stage, upgrade=upgrade)
            await migration.take_over()
            await migration.to_kraft()
            await migration.end()
        for line in self.on_kraft:
            await upgrade.roll_all(line)
            await upgrade.finalize(line)
        await ask()
        await id_client.close()


def _no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    return ()
