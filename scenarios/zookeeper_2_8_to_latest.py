"""Upgrades a cluster from 2.8 with ZooKeeper to the newest release on KRaft in one run, under
client load.

First the binaries are upgraded to 3.9, the last release that supports both modes, and then
inter.broker.protocol.version. The KRaft controllers, which are already running, take over; brokers
are restarted as KRaft brokers, and the controllers finalize the migration. Then binaries and
feature levels are upgraded to the newest release. `hops` is the number of intermediate releases on
each half (99: every release), `kraftsim.release` the first release.
Source: Kafka's upgrade guides 2.8 to 4.x, the migration chapter of Kafka's documentation 3.9,
KIP-866, KIP-778.
"""

from collections.abc import Sequence

from kraftsim.cluster.scenario import ScenarioEnvironment
from kraftsim.cluster.spec import RELEASE_KEY
from kraftsim.lab.workloads.migration_scenarios import Move, migration_scenario
from kraftsim.lab.workloads.upgrading import VERSION_KEY, kraft_lines, present_line, zookeeper_lines

FIRST = "2.8"
BRIDGE = zookeeper_lines()[-1]
"""The last release that supports ZooKeeper, and the first one that can be upgraded to 4.x."""


async def go(move: Move) -> None:
    """Run the whole upgrade."""
    migration, stage = move.migration, move.stage
    older, newer = zookeeper_lines(), kraft_lines()
    for line in _stops(stage, "older", older[older.index(present_line(stage)) + 1 :]):
        await migration.upgrade.brokers_to(line)
        await migration.upgrade.raise_version(line)
    await stage.create_topic("made-in-zookeeper", 2, 3)
    await migration.take_over()
    await stage.create_topic("made-meanwhile", 2, 3)
    await move.load.ask()
    await migration.to_kraft()
    await migration.end()
    for line in _stops(stage, "newer", newer[newer.index(BRIDGE) + 1 :]):
        await migration.upgrade.roll_all(line)
        await migration.upgrade.finalize(line)
    await stage.create_topic("made-at-the-end", 2, 3)
    await move.load.ask()


def _stops(stage: ScenarioEnvironment, purpose: str, lines: Sequence[str]) -> list[str]:
    """Draw the releases of the upgrade path: the last one is always included, unless the cluster
    already runs it.
    """
    between = lines[:-1]
    drawn = stage.random(purpose).sample(
        between, min(len(between), max(stage.workload("hops") - 1, 0))
    )
    return [*sorted(drawn, key=between.index), *lines[-1:]]


SCENARIO = migration_scenario(
    name="zookeeper_2_8_to_latest",
    summary="A cluster is upgraded from 2.8 on ZooKeeper to the newest release on KRaft; clients "
    "see retriable errors only.",
    go=go,
    steps_max=24,
    must_exercise=("metadata-log-matching",),
    settings={RELEASE_KEY: FIRST, VERSION_KEY: FIRST},
    controller_settings={RELEASE_KEY: BRIDGE, VERSION_KEY: BRIDGE},
    workload={"hops": 1, "writers": 1},
    since="2.3",
    until=zookeeper_lines()[-2],
)
