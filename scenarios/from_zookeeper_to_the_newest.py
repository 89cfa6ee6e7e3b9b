"""The whole way in one run: brokers of 2.8 that keep their metadata in ZooKeeper become the newest release, on KRaft, while clients work.

First the binaries go up to 3.9, the last release that knows both ways, and then inter.broker.protocol.version; controllers of KRaft, which have been
waiting, take over; brokers become brokers of KRaft, controllers end it; then binaries and levels go up to the newest release. `hops` says how many
releases are stopped at on the way to each end (99: at every one), `kraftsim.release` where it begins.
Source: Kafka's upgrade guides 2.8 to 4.x, the migration chapter of Kafka's documentation 3.9, KIP-866, KIP-778.
"""

from collections.abc import Sequence

from kraftsim.cluster.migration_story import Move, migration_story
from kraftsim.cluster.scenario import Stage
from kraftsim.cluster.spec import RELEASE_KEY
from kraftsim.cluster.upgrading import VERSION_KEY, kraft_lines, present_line, zookeeper_lines

FIRST = "2.8"
BRIDGE = zookeeper_lines()[-1]
"""The last release that can keep its metadata in ZooKeeper, and the first from which 4.x can be reached."""


async def go(move: Move) -> None:
    """Go all the way."""
    migration, stage = move.migration, move.stage
    older, newer = zookeeper_lines(), kraft_lines()
    for line in _stops(stage, "older", older[older.index(present_line(stage)) + 1 :]):
        await migration.upgrade.brokers_to(line)
        await migration.upgrade.raise_version(line)
    await stage.create_topic("made-in-zookeeper", 2, 3)
    await migration.take_over()
    await stage.create_topic("made-meanwhile", 2, 3)
    await move.ask()
    await migration.to_kraft()
    await migration.end()
    for line in _stops(stage, "newer", newer[newer.index(BRIDGE) + 1 :]):
        await migration.upgrade.roll_all(line)
        await migration.upgrade.finalize(line)
    await stage.create_topic("made-at-the-end", 2, 3)
    await move.ask()


def _stops(stage: Stage, purpose: str, lines: Sequence[str]) -> list[str]:
    """Draw at which releases to stop: the last one is always among them, unless the cluster is there already."""
    between = lines[:-1]
    drawn = stage.random(purpose).sample(between, min(len(between), max(stage.workload("hops") - 1, 0)))
    return [*sorted(drawn, key=between.index), *lines[-1:]]


SCENARIO = migration_story(
    name="from_zookeeper_to_the_newest",
    story="A cluster of 2.8 goes through every step to the newest release, from ZooKeeper to KRaft, and clients at work see nothing that stays.",
    go=go,
    must_exercise=("metadata-log-matching",),
    settings={RELEASE_KEY: FIRST, VERSION_KEY: FIRST},
    controller_settings={RELEASE_KEY: BRIDGE, VERSION_KEY: BRIDGE},
    workload={"hops": 1, "writers": 1},
    since="2.3",
    until=zookeeper_lines()[-2],
)
