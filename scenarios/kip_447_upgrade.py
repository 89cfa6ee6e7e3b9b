"""An application goes over from a transactional id for each input partition to one for each thread, in the two rolling bounces that KIP-447 asks for.

Brokers come first. Then all members are restarted once, so that they commit offsets in the name of a member and wait for those that are pending,
still with an id for each partition; then once more, and only now ids are per thread. In each bounce a member stands still within a transaction until
its partitions are another's. In the first one the new owner takes over its transactional id, which fences it; in the second one nobody does, and the
group's coordinator fences it by its generation. Every line is in the copy once.

With a single bounce (`--work bounces=1`) a member of the new kind owns the partitions of an old one that stands still: nobody takes over its id, and
it commits for no member. When it wakes up it commits what has been copied meanwhile, and `every-input-copied-once` tells so: hence two bounces.
Source: KIP-447 (Compatibility, Deprecation, and Migration Plan) and the upgrade path of its design document; Kafka Streams' upgrade guide 2.6.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.bouncing import Bouncing, Kind
from kraftsim.cluster.copying import MUST_EXERCISE, SETTINGS, Point
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, ProducerSettings, Scenario, Stage
from kraftsim.cluster.upgrading import Upgrade, kraft_lines, later_line
from kraftsim.events.runs import PhaseBegan
from kraftsim.faults.fault import Fault

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

WORK_SECONDS = 35.0
"""How long all of it takes: three brokers 3 s, each bounce as long as a member stands still."""
STILL_SECONDS = 15.0
"""Longer than a session and the rebalance that follows, shorter than a transaction."""
PATIENT = ProducerSettings(delivery_timeout_ms=40_000, request_timeout_ms=20_000)
BOUNCES = {1: (Kind.PER_THREAD,), 2: (Kind.AWARE, Kind.PER_THREAD)}
ZOMBIE = 1


async def play(stage: Stage) -> None:
    """Upgrade the brokers, bounce the application, and read the copy."""
    copying = Bouncing(transaction_timeout_ms=60_000, producer=PATIENT, partitions=3)
    await copying.open(stage)
    await under_faults(stage, copying.run(stage), _upgrade(stage, copying), seconds=stage.workload("work_ms") / 1000)
    await copying.audit(stage)


async def _upgrade(stage: Stage, copying: Bouncing) -> None:
    """Brokers first, then the application as often as is asked for; then the input ends."""
    upgrade = Upgrade(stage=stage, topics={copying.input_topic: copying.partitions, copying.output_topic: copying.partitions})
    await upgrade.brokers_to(later_line(stage))
    await bounce_all(stage, copying)


async def bounce_all(stage: Stage, copying: Bouncing) -> None:
    """Restart the application as often as is asked for, a member standing still each time; then the input ends."""
    random, others = stage.random("zombie"), list(range(2, stage.workload("copiers") + 1))
    kinds = BOUNCES[stage.workload("bounces")]
    for kind in kinds:
        stage.note(PhaseBegan(phase=f"bounce-to-{kind.name.lower().replace('_', '-')}"))
        point = Point.SENT if len(kinds) == 1 else random.choice((Point.SENT, Point.SENT, Point.OFFSETS_SENT, Point.BEGUN))
        await copying.stand_still(stage, ZOMBIE, point, STILL_SECONDS)
        await copying.bounce(stage, others, kind)
        await copying.bounce(stage, [ZOMBIE], kind)
    copying.is_over = True


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Restarts and a member that stands still are enough."""
    return ()


SCENARIO = Scenario(
    name="kip_447_upgrade",
    story="After its brokers an application is restarted twice: it has a producer for each thread then, not for each partition; all is copied once.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=no_faults,
    settings={**SETTINGS, "kraftsim.release": "3.5"},
    limit_seconds=1200.0,
    workload={"copiers": 3, "writers": 1, "pause_ms": 400, "bounces": 2, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
    until=kraft_lines()[-2],
)
