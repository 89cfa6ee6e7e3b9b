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
from kraftsim.lab.faults.fault_space import TRANSACTION_APIS, WRITER_APIS
from kraftsim.lab.faults.upgrade_spaces import upgrade_fault_space
from kraftsim.lab.workloads.course import COURSE_FAULT_SECONDS, Course
from kraftsim.lab.workloads.rolling_bounce import BounceKind, RollingBounceApp
from kraftsim.lab.workloads.transform_app import MUST_EXERCISE, SETTINGS, Point
from kraftsim.lab.workloads.upgrading import Upgrade, kraft_lines, later_line

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

STEPS_MAX = 5
"""Three brokers and two bounces."""
STILL_SECONDS = 15.0
"""Longer than the session timeout and the rebalance after it, shorter than the transaction
timeout.
"""
PATIENT = ProducerSettings(delivery_timeout_ms=40_000, request_timeout_ms=20_000)
BOUNCES = {1: (BounceKind.PER_THREAD,), 2: (BounceKind.AWARE, BounceKind.PER_THREAD)}
ZOMBIE = 1
CLIENTS = ("writer-1", "copier-1", "copier-2", "copier-3")
APIS = (*WRITER_APIS, *TRANSACTION_APIS)


async def run(stage: ScenarioEnvironment) -> None:
    """Upgrade the brokers, bounce the app, and check its output."""
    app = RollingBounceApp(transaction_timeout_ms=60_000, producer=PATIENT, partitions=3)
    await app.open(stage)
    course = Course(stage=stage, steps_max=STEPS_MAX, seconds=stage.workload("work_ms") / 1000)
    await course.run(_upgrade(stage, app, course), app.run(stage))
    await app.audit(stage)


async def _upgrade(stage: ScenarioEnvironment, app: RollingBounceApp, course: Course) -> None:
    """Upgrade the brokers, then bounce the app `bounces` times; then end the input."""
    upgrade = upgrade_of(stage, app, course)
    await upgrade.brokers_to(later_line(stage))
    await bounce_all(stage, app, upgrade)


def upgrade_of(stage: ScenarioEnvironment, app: RollingBounceApp, course: Course) -> Upgrade:
    """Return the upgrade of the brokers under the topics of an app."""
    return Upgrade(
        stage=stage,
        topics={app.input_topic: app.partitions, app.output_topic: app.partitions},
        course=course,
    )


async def bounce_all(stage: ScenarioEnvironment, app: RollingBounceApp, upgrade: Upgrade) -> None:
    """Restart the app `bounces` times, with one member paused each time; then end the input."""
    random, others = stage.random("zombie"), list(range(2, stage.workload("copiers") + 1))
    kinds = BOUNCES[stage.workload("bounces")]
    for kind in kinds:
        stage.emit(PhaseBegan(phase=f"bounce-to-{kind.name.lower().replace('_', '-')}"))
        upgrade.step()
        point = (
            Point.SENT
            if len(kinds) == 1
            else random.choice((Point.SENT, Point.SENT, Point.OFFSETS_SENT, Point.BEGUN))
        )
        await app.pause_member(stage, ZOMBIE, point, STILL_SECONDS)
        await app.bounce(stage, others, kind)
        await app.bounce(stage, [ZOMBIE], kind)
    await upgrade.until_healed()
    await upgrade.settled()
    app.is_over = True


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: restarts and pauses of members alone must be harmless, too."""
    return ()


SCENARIO = Scenario(
    name="kip_447_upgrade",
    summary="After its brokers, an app is restarted twice to move from a producer per partition to "
    "one per thread; every record is copied once.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=no_faults,
    settings={**SETTINGS, "kraftsim.release": "3.5"},
    fault_space=upgrade_fault_space(
        controllers=1,
        brokers=3,
        clients=CLIENTS,
        apis=APIS,
        fault_seconds=COURSE_FAULT_SECONDS,
    ),
    limit_seconds=1200.0,
    workload={
        "copiers": 3,
        "writers": 1,
        "pause_ms": 400,
        "bounces": 2,
        "work_ms": int(COURSE_FAULT_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
    until=kraft_lines()[-2],
)
