"""A cluster that has finalized the levels of a later release is taken back: each way that would lose something is refused, and nothing is lost.

After an upgrade somebody asks for the former metadata.version: it is granted only if no level in between has changed what the metadata log can hold.
Then a broker, and then a controller, come back with the former release. The controller that registers brokers refuses one that does not know the
level; a controller of that release cannot read the log, and gives up. Idempotent writers work on meanwhile, and both nodes return as what they were.
Source: KIP-584, KIP-778; org.apache.kafka.controller.{ClusterControlManager, FeatureControlManager}, FeaturesDelta (asked of 3.4.1 on a log of 3.5).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.ledger import MUST_EXERCISE, SETTINGS
from kraftsim.cluster.scenario import Mode, Scenario, Stage
from kraftsim.cluster.upgrading import Traffic, Upgrade, kraft_lines, later_line, present_line, require_away, require_level_kept
from kraftsim.events.runs import PhaseBegan
from kraftsim.faults.fault import Fault

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

TOPIC = "ledger"
PARTITIONS = 3


async def play(stage: Stage) -> None:
    """Upgrade, try to go back, and read what was written meanwhile."""
    traffic = Traffic(topic=TOPIC, partitions=PARTITIONS)
    await traffic.open(stage)
    writers = [traffic.write(stage, f"writer-{number}") for number in range(1, stage.workload("writers") + 1)]
    await stage.gather(_there_and_back(stage, traffic), *writers)
    await traffic.audit(stage)


async def _there_and_back(stage: Stage, traffic: Traffic) -> None:
    former, line = present_line(stage), later_line(stage)
    upgrade = Upgrade(stage=stage, topics={TOPIC: PARTITIONS})
    await upgrade.roll_all(line)
    await upgrade.finalize(line)
    stage.note(PhaseBegan(phase=f"back-to-{former}"))
    await require_level_kept(stage, former, line)
    random = stage.random("downgrade")
    for node in (random.choice(stage.spec.broker_names), random.choice(stage.spec.controller_names)):
        await stage.restart(node, release=former)
        await require_away(stage, node)
        await upgrade.roll([node], to=line)
    traffic.is_over = True


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """The wrong release is enough."""
    return ()


def begin(random: "Random") -> dict[str, str]:
    """Draw the release to begin with."""
    return {"kraftsim.release": random.choice(kraft_lines()[:-1])}


SCENARIO = Scenario(
    name="downgrade_refused",
    story="Whoever takes an upgraded cluster back is refused wherever something would be lost: the level, a broker, a controller; all else goes on.",
    must_exercise=(*(each for each in MUST_EXERCISE if each != "settles-after-heal"), "only-retriable-errors"),
    play=play,
    faults=no_faults,
    controllers=3,
    settings={**SETTINGS, "kraftsim.release": "3.3"},
    swarm=begin,
    limit_seconds=1200.0,
    workload={"writers": 2, "pause_ms": 200},
    fewest_controllers=3,
    fewest_brokers=3,
    until=kraft_lines()[-2],
)
"""With three controllers and three brokers one of each may be away."""
