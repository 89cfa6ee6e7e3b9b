"""What scenarios of the migration from ZooKeeper to KRaft have in common: their cluster, their
clients, and the invariants that a run must exercise.

Three brokers in ZooKeeper mode, three KRaft controllers with migration enabled, writers, and a
client that requests producer ids. A scenario adds what happens during the migration.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.cluster.spec import CONTROLLERS_MAX, FIRST_CONTROLLER_ID, ClusterSpec
from kraftsim.events.runs import PhaseBegan
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import Mix
from kraftsim.lab.faults.upgrade_spaces import migration_fault_space
from kraftsim.lab.workloads.course import COURSE_FAULT_SECONDS
from kraftsim.lab.workloads.replication_workload import KEEPS_ANY_DATE
from kraftsim.lab.workloads.under_load import UnderLoad, while_clients_work
from kraftsim.lab.workloads.upgrading import Upgrade
from kraftsim.metadata.rules_image import MetadataImage

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the scenario environment)


# --------------------------------------------------------------------------------------------------
# The workload of scenarios that migrate from ZooKeeper to KRaft, and roll back: brokers restart one
# by one with other properties
#
# The phases are: brokers with migration enabled, the migration of metadata, dual write, KRaft
# brokers, controllers that finalize the migration. After each restart, and between restarts,
# clients keep running, new ones request producer ids, and ZooKeeper is compared with the metadata
# log for as long as both are written.
# Source: the migration chapter of Kafka's documentation 3.9, KIP-866.

MIGRATION_KEY = "zookeeper.metadata.migration.enable"
TAKEN_OVER_SECONDS = 120.0
IN_STEP_SECONDS = 60.0
ZOOKEEPER, MIGRATING, DUAL_WRITE, KRAFT, ENDED, BACK, NEW_QUORUM = (
    "zookeeper",
    "brokers-that-migrate",
    "dual-write",
    "brokers-of-kraft",
    "ended",
    "back",
    "new-quorum",
)


@dataclass(kw_only=True, slots=True)
class MigrationWorkload:
    """The migration of one cluster; `upgrade` restarts its nodes and waits until the cluster is
    healthy again.
    """

    stage: ScenarioEnvironment
    upgrade: Upgrade
    metadata_logs: int = 1
    """How many metadata logs the cluster has had."""

    async def hesitate(self, brokers: int) -> None:
        """Enable the migration on the first few brokers, and disable it again: before all of them
        have it nothing is migrated, and the controllers wait for another attempt.
        """
        names = self.stage.spec.broker_names[:brokers]
        self.stage.emit(PhaseBegan(phase=MIGRATING))
        await self.upgrade.roll(names, settings=migrating_settings(self.stage))
        self.stage.emit(PhaseBegan(phase=BACK))
        await self.upgrade.roll(names, settings=UNMIGRATED)

    async def take_over(self) -> None:
        """Enable the migration on all brokers, and wait for dual write: from now on the log is
        authoritative, and ZooKeeper is updated.
        """
        stage = self.stage
        stage.emit(PhaseBegan(phase=MIGRATING))
        before = await stage.zookeeper_metadata()
        await self.upgrade.roll(stage.spec.broker_names, settings=migrating_settings(stage))
        await self.taken_over(before)

    async def taken_over(self, before: MetadataImage | None = None) -> None:
        """Wait for dual write; compare with the metadata `before`. Raises LivenessLost."""
        stage = self.stage
        self.upgrade.step()
        await self.upgrade.within("dual write", stage.wait_for_dual_write(), TAKEN_OVER_SECONDS)
        stage.emit(PhaseBegan(phase=DUAL_WRITE))
        await self.upgrade.settled()
        await self.compare(before)

    async def compare(self, before: MetadataImage | None = None) -> None:
        """Compare ZooKeeper with the log, and the log with the metadata `before` the migration.
        Raises LivenessLost if ZooKeeper does not catch up.
        """
        await self.upgrade.within(
            "ZooKeeper in step", self.stage.compare_with_zookeeper(before), IN_STEP_SECONDS
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

        Controllers are stopped for good in a healthy cluster only, when ZooKeeper has all that they
        decided: what is in their log alone is lost by design.
        """
        stage = self.stage
        stage.emit(PhaseBegan(phase=BACK))
        await self.upgrade.roll(stage.spec.broker_names, settings=migrating_settings(stage))
        await self.upgrade.until_healed()
        await self.upgrade.settled()
        await self.compare()
        await stage.give_up_migration()
        await self.upgrade.roll(stage.spec.broker_names, settings=UNMIGRATED)

    async def format_new_quorum(self) -> None:
        """After the rollback: format the controllers again, with empty directories. They lead
        nothing until all brokers migrate again.
        """
        self.stage.emit(PhaseBegan(phase=NEW_QUORUM))
        self.upgrade.step()
        self.metadata_logs += 1
        await self.stage.format_new_quorum(self.metadata_logs)
        await self.upgrade.settled()


UNMIGRATED: Final = {
    MIGRATION_KEY: "false",
    "controller.listener.names": "",
    "controller.quorum.voters": "",
}
"""The settings of a broker in ZooKeeper mode that knows no quorum."""


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


IDS_PER_RESTART: Final = 20
GATED: Final = "3.5"
"""Before, controllers made changes, such as producer-id allocations, before they had read the
metadata from ZooKeeper (KAFKA-14805).
"""
PROVEN: Final = (
    "producer-id-unique",
    "producer-id-blocks-disjoint",
    "acknowledged-records-in-final-log",
    "one-append-per-sequence",
    "zookeeper-mirrors-log",
    "only-retriable-errors",
    "recovers-after-heal",
)
SETTINGS: Final = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    **KEEPS_ANY_DATE,
}
"""A KRaft broker requests controlled shutdown with its heartbeats: by default every 2 s, which
would be half of a run.
"""
CONTROLLERS: Final = tuple(
    f"controller-{FIRST_CONTROLLER_ID + index}" for index in range(CONTROLLERS_MAX)
)
"""For any number of brokers."""
CLIENTS: Final = ("writer-of-ledger-1", "writer-of-ledger-2", "asker")
WORKLOAD: Final = {"writers": 2, "pause_ms": 250, "crashes": 0, "pauses": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A migration with running clients."""

    stage: ScenarioEnvironment
    migration: MigrationWorkload
    load: UnderLoad


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Restarts are enough."""
    return ()


def migration_scenario(
    *,
    name: str,
    summary: str,
    go: Callable[[Move], Awaitable[None]],
    faults: Callable[["Random", Mode], tuple[Fault, ...]] = no_faults,
    steps_max: int,
    fault_seconds: float = COURSE_FAULT_SECONDS,
    mix: Mix = Mix.EITHER,
    must_exercise: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
    controller_settings: Mapping[str, str] | None = None,
    workload: Mapping[str, int] | None = None,
    since: str = GATED,
    until: str = "",
) -> Scenario:
    """Return a scenario: `settings`, `workload` and `must_exercise` extend the common ones;
    `controller_settings` are for controllers alone. Faults begin with one of the first `steps_max`
    steps, and last for so many seconds; `mix` combines those of the scenario with random ones.
    """

    async def walk(load: UnderLoad) -> None:
        migration = MigrationWorkload(stage=load.stage, upgrade=load.upgrade)
        await go(Move(stage=load.stage, migration=migration, load=load))

    async def run(stage: ScenarioEnvironment) -> None:
        stage.emit(PhaseBegan(phase=ZOOKEEPER))
        await while_clients_work(
            stage,
            walk,
            ids_per_restart=IDS_PER_RESTART,
            steps_max=steps_max,
            fault_seconds=fault_seconds,
        )

    return Scenario(
        name=name,
        summary=summary,
        must_exercise=(*PROVEN, *must_exercise),
        run=run,
        faults=faults,
        controllers=3,
        brokers=3,
        zookeeper_mode=True,
        settings={**SETTINGS, **(settings or {})},
        node_settings=dict.fromkeys(CONTROLLERS, controller_settings)
        if controller_settings
        else {},
        fault_space=migration_fault_space(
            controllers=3, brokers=3, clients=CLIENTS, fault_seconds=fault_seconds, mix=mix
        ),
        limit_seconds=3600.0,
        workload={**WORKLOAD, **(workload or {})},
        fewest_controllers=1,
        fewest_brokers=3,
        since=since,
        until=until,
    )
