"""What scenarios of the migration from ZooKeeper to KRaft have in common: their cluster, their
clients, and the invariants that a run must exercise.

Three brokers in ZooKeeper mode, three KRaft controllers with migration enabled, writers, and a
client that requests producer ids. A scenario adds what happens during the migration.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.cluster.spec import CONTROLLERS_MAX, FIRST_CONTROLLER_ID
from kraftsim.cluster.workload import ProducerIdClient
from kraftsim.events.runs import PhaseBegan
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.workloads.migrating import ZOOKEEPER, MigrationWorkload
from kraftsim.lab.workloads.under_load import UnderLoad, while_clients_work

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the scenario environment)

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
)
SETTINGS: Final = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
"""A KRaft broker requests controlled shutdown with its heartbeats: by default every 2 s, which
would be half of a run.
"""
CONTROLLERS: Final = tuple(
    f"controller-{FIRST_CONTROLLER_ID + index}" for index in range(CONTROLLERS_MAX)
)
"""For any number of brokers."""
WORKLOAD: Final = {"writers": 2, "pause_ms": 250, "crashes": 0, "pauses": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A migration with running clients."""

    stage: ScenarioEnvironment
    migration: MigrationWorkload
    requester: ProducerIdClient
    ask: Callable[[], Awaitable[None]]
    """New clients request producer ids, as after each restart."""


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Restarts are enough."""
    return ()


def migration_scenario(
    *,
    name: str,
    summary: str,
    go: Callable[[Move], Awaitable[None]],
    faults: Callable[["Random", Mode], tuple[Fault, ...]] = no_faults,
    must_exercise: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
    controller_settings: Mapping[str, str] | None = None,
    workload: Mapping[str, int] | None = None,
    since: str = GATED,
    until: str = "",
) -> Scenario:
    """Return a scenario: `settings`, `workload` and `must_exercise` extend the common ones;
    `controller_settings` are for controllers alone.
    """

    async def walk(load: UnderLoad) -> None:
        migration = MigrationWorkload(stage=load.stage, upgrade=load.upgrade)
        await go(
            Move(stage=load.stage, migration=migration, requester=load.requester, ask=load.ask)
        )

    async def run(stage: ScenarioEnvironment) -> None:
        stage.emit(PhaseBegan(phase=ZOOKEEPER))
        await while_clients_work(stage, walk, ids_per_restart=IDS_PER_RESTART)

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
        limit_seconds=3600.0,
        workload={**WORKLOAD, **(workload or {})},
        fewest_controllers=1,
        fewest_brokers=3,
        since=since,
        until=until,
    )
