"""A cluster whose metadata is in ZooKeeper is upgraded while clients work: new binaries at the old level first, then the level, in two rounds.

It begins with a release from 2.3 on and goes to later ones up to 3.9, drawn from the seed (`kraftsim.release` with inter.broker.protocol.version says
where to begin, `hops` how many steps there are at most). In the first round every broker comes back with the new release and says to others what it
said before; in the second round inter.broker.protocol.version is raised. On the way brokers learn to ask the controller for producer ids (3.0),
topics get ids (2.8), and each broker may be the controller at any time.
Source: Kafka's upgrade guides 2.8 to 3.9, KIP-497, KIP-516, KIP-730.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.copying import SETTINGS as COPYING_SETTINGS
from kraftsim.cluster.scenario import Mode, Scenario, Stage
from kraftsim.cluster.upgrading import VERSION_KEY, LastingCopying, Traffic, Upgrade, path_from, zookeeper_lines
from kraftsim.faults.fault import Fault

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

TOPIC = "ledger"
PARTITIONS = 3
IDS_PER_RESTART = 40
FIRST = "2.3"


async def play(stage: Stage) -> None:
    """Upgrade step by step with clients at work, and read what they wrote."""
    traffic, copying = Traffic(topic=TOPIC, partitions=PARTITIONS), LastingCopying(partitions=2)
    await traffic.open(stage)
    await copying.open(stage)
    copiers = [copying.copy(stage, number) for number in range(1, stage.workload("copiers") + 1)]
    writers = [traffic.write(stage, f"writer-of-ledger-{number}") for number in range(1, stage.workload("writers") + 1)]
    await stage.gather(_climb(stage, traffic, copying), copying.all_copied(stage), copying.watch(stage), *copiers, *writers)
    await traffic.audit(stage)
    await copying.audit(stage)


async def _climb(stage: Stage, traffic: Traffic, copying: LastingCopying) -> None:
    asker = stage.id_asker("asker")

    async def ask() -> None:
        await asker.ask(IDS_PER_RESTART)

    topics = {TOPIC: PARTITIONS, copying.input_topic: copying.partitions, copying.output_topic: copying.partitions}
    upgrade = Upgrade(stage=stage, topics=topics, after_each=ask)
    for line in path_from(stage, zookeeper_lines(), stage.workload("hops")):
        await upgrade.brokers_to(line)
        await upgrade.raise_version(line)
    await ask()
    await asker.close()
    traffic.is_over = copying.is_over = True


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Restarts are enough."""
    return ()


def begin(random: "Random") -> dict[str, str]:
    """Draw the release to begin with; its brokers speak its own level."""
    line = random.choice(zookeeper_lines()[zookeeper_lines().index(FIRST) : -1])
    return {"kraftsim.release": line, VERSION_KEY: line}


SCENARIO = Scenario(
    name="rolling_upgrade_on_zookeeper",
    story="A cluster in ZooKeeper mode goes to later releases, binaries first and levels in a second round, and clients go on working.",
    must_exercise=(
        "producer-id-unique",
        "producer-id-blocks-disjoint",
        "producer-id-inside-owned-block",
        "acknowledged-records-in-final-log",
        "one-append-per-sequence",
        "every-input-copied-once",
        "transactions-atomic",
    ),
    play=play,
    faults=no_faults,
    controllers=0,
    zookeeper_mode=True,
    settings={**COPYING_SETTINGS, "kraftsim.release": FIRST, VERSION_KEY: FIRST},
    swarm=begin,
    limit_seconds=3600.0,
    workload={"copiers": 1, "writers": 1, "hops": 1, "pause_ms": 150, "crashes": 0, "pauses": 0},
    fewest_brokers=3,
)
