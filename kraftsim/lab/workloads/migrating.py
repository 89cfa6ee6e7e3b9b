"""The workload of scenarios that migrate from ZooKeeper to KRaft, and roll back: brokers restart
one by one with other properties.

The phases are: brokers with migration enabled, the migration of metadata, dual write, KRaft
brokers, controllers that finalize the migration. After each restart, and between restarts, clients
keep running, new ones request producer ids, and ZooKeeper is compared with the metadata log for as
long as both are written.
Source: the migration chapter of Kafka's documentation 3.9, KIP-866.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kraftsim.cluster.scenario import Mode, ScenarioEnvironment, within
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.runs import PhaseBegan
from kraftsim.lab.workloads.phases import BROKERS_SECONDS, REPLICAS_SECONDS
from kraftsim.lab.workloads.upgrading import Upgrade

MIGRATION_KEY = "zookeeper.metadata.migration.enable"
TAKEN_OVER_SECONDS = 120.0
IN_STEP_SECONDS = 60.0
ZOOKEEPER, MIGRATING, DUAL_WRITE, KRAFT, ENDED, BACK = (
    "zookeeper",
    "brokers-that-migrate",
    "dual-write",
    "brokers-of-kraft",
    "ended",
    "back",
)


@dataclass(kw_only=True, slots=True)
class MigrationWorkload:
    """The migration of one cluster; `upgrade` restarts its nodes and waits until the cluster is
    healthy again.
    """

    stage: ScenarioEnvironment
    upgrade: Upgrade

    async def take_over(self) -> None:
        """Enable the migration on all brokers, and wait for dual write: from now on the log is
        authoritative, and ZooKeeper is updated.
        """
        stage = self.stage
        stage.emit(PhaseBegan(phase=MIGRATING))
        await self.upgrade.roll(stage.spec.broker_names, settings=migrating_settings(stage))
        await self.taken_over()

    async def taken_over(self) -> None:
        """Wait for dual write. Raises LivenessLost."""
        stage = self.stage
        await within(stage, "dual write", stage.wait_for_dual_write(), TAKEN_OVER_SECONDS)
        stage.emit(PhaseBegan(phase=DUAL_WRITE))
        await self.upgrade.settled()
        await self.compare()

    async def compare(self) -> None:
        """Compare ZooKeeper with the log. Raises LivenessLost if ZooKeeper does not catch up."""
        await within(
            self.stage, "ZooKeeper in step", self.stage.compare_with_zookeeper(), IN_STEP_SECONDS
        )

    async def to_kraft(self, *, brokers: int | None = None) -> None:
        """Restart brokers, or the first few of them, in KRaft mode."""
        stage = self.stage
        stage.emit(PhaseBegan(phase=KRAFT))
        for name in stage.spec.broker_names[:brokers]:
            await self.upgrade.roll([name], settings=kraft_settings(stage, name))
            await self.compare()

    async def end(self) -> None:
        """Finalize the migration: restart the controllers without the setting; no rollback is
        possible from here.
        """
        self.stage.emit(PhaseBegan(phase=ENDED))
        await self.upgrade.roll(self.stage.spec.controller_names, settings={MIGRATION_KEY: "false"})

    async def go_back(self) -> None:
        """Roll back to ZooKeeper mode: first the KRaft brokers, then disable the migration on all
        brokers.
        """
        stage = self.stage
        stage.emit(PhaseBegan(phase=BACK))
        await self.upgrade.roll(stage.spec.broker_names, settings=migrating_settings(stage))
        await self.compare()
        await stage.give_up_migration()
        for name in stage.spec.broker_names:
            await stage.restart(
                name, settings={MIGRATION_KEY: "false", **dict.fromkeys(QUORUM_KEYS, "")}
            )
            await within(stage, "brokers", stage.wait_for_brokers(), BROKERS_SECONDS)
            for topic, partitions in self.upgrade.topics.items():
                await within(
                    stage, "replicas", stage.wait_for_replicas(topic, partitions), REPLICAS_SECONDS
                )
            if self.upgrade.after_each is not None:
                await self.upgrade.after_each()


QUORUM_KEYS = ("controller.listener.names", "controller.quorum.voters")


def migrating_settings(stage: ScenarioEnvironment) -> dict[str, str]:
    """Return the settings that enable the migration on a broker, whichever mode it was in
    before.
    """
    spec = stage.spec
    node = spec.node(spec.broker_names[0], host_is_name=_host_is_name(stage))
    here = {key: value for key, value in node.properties.items() if key == "zookeeper.connect"}
    return {
        **here,
        "process.roles": "",
        **_said(spec.migrating_settings(host_is_name=_host_is_name(stage))),
    }


def kraft_settings(stage: ScenarioEnvironment, name: str) -> dict[str, str]:
    """Return the settings that turn a broker into a KRaft broker."""
    spec: ClusterSpec = stage.spec
    return {
        **_said(spec.kraft_settings(name, host_is_name=_host_is_name(stage))),
        "zookeeper.connect": "",
        MIGRATION_KEY: "false",
    }


def _host_is_name(stage: ScenarioEnvironment) -> bool:
    return stage.mode is Mode.SIM


def _said(settings: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if value is not None}
