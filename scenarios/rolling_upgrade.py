"""A cluster is upgraded while idempotent writers and a transactional application work: binaries one node after the other, then the levels.

It begins with a release and goes to one or more later ones, all of them drawn from the seed (`kraftsim.release` says where to begin, `hops` how many
steps there are at most). Some upgrades leave the levels where they are for a while, as careful people do: the cluster is mixed then in what its nodes
could do and one in what it does. After each restart new clients ask for producer ids, so that blocks of every release are in use.
Source: Kafka's upgrade guides for KRaft, KIP-778, KIP-890 (transaction.version), KIP-730.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.copying import SETTINGS as COPYING_SETTINGS
from kraftsim.cluster.scenario import Mode, Scenario, Stage
from kraftsim.cluster.under_load import PROVEN, UnderLoad, while_clients_work
from kraftsim.cluster.upgrading import LastingCopying, kraft_lines, path_from
from kraftsim.faults.fault import Fault

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

IDS_PER_RESTART = 40
SKIPPED = 0.3
"""How often levels stay where they are until the next release."""
SETTINGS = {**COPYING_SETTINGS, "kraftsim.release": "3.3", "broker.session.timeout.ms": "2000"}
"""From 4.1 on a broker that is started again waits until the session of its former life is over: half of a run would be that."""


async def play(stage: Stage) -> None:
    """Upgrade step by step with clients at work, end with everything finalized, and read what they wrote."""
    await while_clients_work(stage, climb, ids_per_restart=IDS_PER_RESTART, copying=LastingCopying(partitions=2))


async def climb(load: UnderLoad) -> None:
    """Do the upgrades."""
    stage, upgrade = load.stage, load.upgrade
    path, patience = path_from(stage, kraft_lines(), stage.workload("hops")), stage.random("patience")
    for line in path:
        await upgrade.roll_all(line)
        if line == path[-1] or patience.random() >= SKIPPED:
            await upgrade.finalize(line)
    await load.ask()


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Restarts are enough."""
    return ()


def begin(random: "Random") -> dict[str, str]:
    """Draw the release to begin with."""
    return {"kraftsim.release": random.choice(kraft_lines()[:-1])}


SCENARIO = Scenario(
    name="rolling_upgrade",
    story="A cluster goes to later releases, node by node and level by level, and clients at work see nothing that does not pass by itself.",
    must_exercise=(
        *PROVEN,
        "every-input-copied-once",
        "transactions-atomic",
        "read-committed-reads-committed-only",
        "metadata-log-matching",
    ),
    play=play,
    faults=no_faults,
    controllers=3,
    settings=SETTINGS,
    swarm=begin,
    limit_seconds=3600.0,
    workload={"copiers": 2, "writers": 2, "hops": 2, "pause_ms": 250, "crashes": 0, "pauses": 0},
    fewest_controllers=1,
    fewest_brokers=3,
    until=kraft_lines()[-2],
)
