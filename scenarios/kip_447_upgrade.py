"""Moves an app from a transactional id per input partition to one per thread, in the two rolling
bounces of KIP-447; checks exactly-once output.

Brokers are upgraded first. Then all members are restarted once, so that they commit offsets with
group metadata and fetch stable offsets, still with an id per partition; then once more, and only
now the ids are per thread. In each bounce a member is paused within a transaction until its
partitions are reassigned. In the first bounce the new owner initializes the same transactional id,
which fences the paused member. In the second no member does, and the group coordinator fences it by
its generation. Every line is in the output once.

With a single bounce (`--work bounces=1`) a new member owns the partitions of a paused old one: no
member initializes its id, and it commits without group metadata. When it resumes, it commits
records that were copied meanwhile, and `each-input-processed-once` reports it: hence two bounces.
Source: KIP-447 (Compatibility, Deprecation, and Migration Plan) and the upgrade path of its design
document; Kafka Streams' upgrade guide 2.6.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, ProducerSettings, Scenario, ScenarioEnvironment
from kraftsim.events.runs import PhaseBegan
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.rolling_bounce import BounceKind, RollingBounceApp
from kraftsim.lab.workloads.transform_app import MUST_EXERCISE, SETTINGS, Point
from kraftsim.lab.workloads.upgrading import Upgrade, kraft_lines, later_line

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 35.0
"""How long the run takes: 3 s for three brokers, and the pause of a member for each bounce."""
STILL_SECONDS = 15.0
"""Longer than the session timeout and the rebalance after it, shorter than the transaction
timeout.
"""
PATIENT = ProducerSettings(delivery_timeout_ms=40_000, request_timeout_ms=20_000)
BOUNCES = {1: (BounceKind.PER_THREAD,), 2: (BounceKind.AWARE, BounceKind.PER_THREAD)}
ZOMBIE = 1


async def run(stage: ScenarioEnvironment) -> None:
    """Upgrade the brokers, bounce the app, and check its output."""
    app = RollingBounceApp(transaction_timeout_ms=60_000, producer=PATIENT, partitions=3)
    await app.open(stage)
    await under_faults(
        stage, app.run(stage), _upgrade(stage, app), seconds=stage.workload("work_ms") / 1000
    )
    await app.audit(stage)


async def _upgrade(stage: ScenarioEnvironment, app: RollingBounceApp) -> None:
    """Upgrade the brokers, then bounce the app `bounces` times; then end the input."""
    upgrade = Upgrade(
        stage=stage, topics={app.input_topic: app.partitions, app.output_topic: app.partitions}
    )
    await upgrade.brokers_to(later_line(stage))
    await bounce_all(stage, app)


async def bounce_all(stage: ScenarioEnvironment, app: RollingBounceApp) -> None:
    """Restart the app `bounces` times, with one member paused each time; then end the input."""
    random, others = stage.random("zombie"), list(range(2, stage.workload("copiers") + 1))
    kinds = BOUNCES[stage.workload("bounces")]
    for kind in kinds:
        stage.emit(PhaseBegan(phase=f"bounce-to-{kind.name.lower().replace('_', '-')}"))
        point = (
            Point.SENT
            if len(kinds) == 1
            else random.choice((Point.SENT, Point.SENT, Point.OFFSETS_SENT, Point.BEGUN))
        )
        await app.pause_member(stage, ZOMBIE, point, STILL_SECONDS)
        await app.bounce(stage, others, kind)
        await app.bounce(stage, [ZOMBIE], kind)
    app.is_over = True


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: the scenario restarts and pauses members itself."""
    return ()


SCENARIO = Scenario(
    name="kip_447_upgrade",
    summary="After its brokers, an app is restarted twice to move from a producer per partition to "
    "one per thread; every record is copied once.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=no_faults,
    settings={**SETTINGS, "kraftsim.release": "3.5"},
    limit_seconds=1200.0,
    workload={
        "copiers": 3,
        "writers": 1,
        "pause_ms": 400,
        "bounces": 2,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
    until=kraft_lines()[-2],
)
