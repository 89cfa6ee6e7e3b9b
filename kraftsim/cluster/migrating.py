"""The work of stories about the way from ZooKeeper to KRaft, and back: every broker is restarted with other properties, one after the other.

Brokers that can be taken over, the take-over, a while in which both are written, brokers of KRaft, controllers that end it. After each restart, and
in between, clients go on, new ones ask for producer ids, and ZooKeeper is compared with the log as long as both are written.
Source: the migration chapter of Kafka's documentation 3.9, KIP-866.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kraftsim.cluster.phases import BROKERS_SECONDS, REPLICAS_SECONDS
from kraftsim.cluster.scenario import Mode, Stage, within
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.cluster.upgrading import Upgrade
from kraftsim.events.runs import PhaseBegan

MIGRATION_KEY = "zookeeper.metadata.migration.enable"
TAKEN_OVER_SECONDS = 120.0
IN_STEP_SECONDS = 60.0
ZOOKEEPER, MIGRATING, DUAL_WRITE, KRAFT, ENDED, BACK = "zookeeper", "brokers-that-migrate", "dual-write", "brokers-of-kraft", "ended", "back"


@dataclass(kw_only=True, slots=True)
class Migration:
    """One cluster on its way; `upgrade` restarts its nodes and waits until all is as before."""

    stage: Stage
    upgrade: Upgrade

    async def take_over(self) -> None:
        """Let brokers be taken over, and wait until they are: from now on the log decides, and ZooKeeper is kept in step."""
        stage = self.stage
        stage.note(PhaseBegan(phase=MIGRATING))
        await self.upgrade.roll(stage.spec.broker_names, settings=migrating_settings(stage))
        await self.taken_over()

    async def taken_over(self) -> None:
        """Wait until both are written. Raises LivenessLost."""
        stage = self.stage
        await within(stage, "dual write", stage.wait_for_dual_write(), TAKEN_OVER_SECONDS)
        stage.note(PhaseBegan(phase=DUAL_WRITE))
        await self.upgrade.settled()
        await self.compare()

    async def compare(self) -> None:
        """Compare ZooKeeper with the log. Raises LivenessLost if ZooKeeper does not come to be in step."""
        await within(self.stage, "ZooKeeper in step", self.stage.compare_with_zookeeper(), IN_STEP_SECONDS)

    async def to_kraft(self, *, brokers: int | None = None) -> None:
        """Restart brokers, or the first few of them, as brokers of KRaft."""
        stage = self.stage
        stage.note(PhaseBegan(phase=KRAFT))
        for name in stage.spec.broker_names[:brokers]:
            await self.upgrade.roll([name], settings=kraft_settings(stage, name))
            await self.compare()

    async def end(self) -> None:
        """Restart the controllers without the setting: there is no way back from here."""
        self.stage.note(PhaseBegan(phase=ENDED))
        await self.upgrade.roll(self.stage.spec.controller_names, settings={MIGRATION_KEY: "false"})

    async def go_back(self) -> None:
        """Let brokers be ZooKeeper's again: first those of KRaft, then none can be taken over any more."""
        stage = self.stage
        stage.note(PhaseBegan(phase=BACK))
        await self.upgrade.roll(stage.spec.broker_names, settings=migrating_settings(stage))
        await self.compare()
        await stage.give_up_migration()
        for name in stage.spec.broker_names:
            await stage.restart(name, settings={MIGRATION_KEY: "false", **dict.fromkeys(QUORUM_KEYS, "")})
            await within(stage, "brokers", stage.wait_for_brokers(), BROKERS_SECONDS)
            for topic, partitions in self.upgrade.topics.items():
                await within(stage, "replicas", stage.wait_for_replicas(topic, partitions), REPLICAS_SECONDS)
            if self.upgrade.after_each is not None:
                await self.upgrade.after_each()


QUORUM_KEYS = ("controller.listener.names", "controller.quorum.voters")


def migrating_settings(stage: Stage) -> dict[str, str]:
    """Return what lets a broker be taken over, whatever it was before."""
    spec = stage.spec
    node = spec.node(spec.broker_names[0], host_is_name=_host_is_name(stage))
    here = {key: value for key, value in node.properties.items() if key == "zookeeper.connect"}
    return {**here, "process.roles": "", **_said(spec.migrating_settings(host_is_name=_host_is_name(stage)))}


def kraft_settings(stage: Stage, name: str) -> dict[str, str]:
    """Return what makes of a broker one of KRaft."""
    spec: ClusterSpec = stage.spec
    return {**_said(spec.kraft_settings(name, host_is_name=_host_is_name(stage))), "zookeeper.connect": "", MIGRATION_KEY: "false"}


def _host_is_name(stage: Stage) -> bool:
    return stage.mode is Mode.SIM


def _said(settings: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if value is not None}
