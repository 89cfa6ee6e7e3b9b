"""Downgrades an upgraded cluster: checks that every lossy downgrade is rejected and that no data is
lost.

After an upgrade a lower metadata.version is requested: it is accepted only if no level in between
has changed what the metadata log can contain. Then a broker, and then a controller, is restarted
with the former release. The active controller rejects the registration of a broker that does not
support the finalized level; a controller of the former release cannot read the log, and halts.
Idempotent producers write meanwhile, and both nodes return with the upgraded release.
Source: KIP-584, KIP-778; org.apache.kafka.controller.{ClusterControlManager,
FeatureControlManager}, FeaturesDelta (tested with 3.4.1 on a log of 3.5).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.events.runs import PhaseBegan
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import WRITER_APIS
from kraftsim.lab.faults.upgrade_spaces import upgrade_fault_space
from kraftsim.lab.workloads.course import COURSE_FAULT_SECONDS, Course
from kraftsim.lab.workloads.replication_workload import MUST_EXERCISE, SETTINGS
from kraftsim.lab.workloads.upgrading import (
    Traffic,
    Upgrade,
    kraft_lines,
    later_line,
    present_line,
    require_away,
    require_level_kept,
)

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "ledger"
PARTITIONS = 3
STEPS_MAX = 9
"""Six restarts, the levels, and the return of two nodes to the upgraded release."""


async def run(stage: ScenarioEnvironment) -> None:
    """Upgrade, attempt the downgrades, and read what was written meanwhile."""
    traffic = Traffic(topic=TOPIC, partitions=PARTITIONS)
    await traffic.open(stage)
    writers = [
        traffic.write(stage, f"writer-{number}")
        for number in range(1, stage.workload("writers") + 1)
    ]
    course = Course(stage=stage, steps_max=STEPS_MAX, seconds=COURSE_FAULT_SECONDS)
    await course.run(_there_and_back(stage, traffic, course), *writers)
    await traffic.audit(stage)


async def _there_and_back(stage: ScenarioEnvironment, traffic: Traffic, course: Course) -> None:
    """A refusal proves something only while nothing else could be its cause: each downgrade is
    attempted in a healthy cluster, and faults may begin with the step after it.
    """
    former, line = present_line(stage), later_line(stage)
    upgrade = Upgrade(stage=stage, topics={TOPIC: PARTITIONS}, course=course)
    await upgrade.roll_all(line)
    await upgrade.finalize(line)
    stage.emit(PhaseBegan(phase=f"back-to-{former}"))
    await upgrade.until_healed()
    await upgrade.settled()
    await require_level_kept(stage, former, line)
    random = stage.random("downgrade")
    for node in (
        random.choice(stage.spec.broker_names),
        random.choice(stage.spec.controller_names),
    ):
        await upgrade.until_healed()
        await upgrade.settled()
        await stage.restart(node, release=former)
        await require_away(stage, node)
        await upgrade.roll([node], to=line)
    await course.finish()
    await upgrade.settled()
    traffic.is_over = True


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: the wrong release alone must be harmless, too."""
    return ()


def begin(random: "Random") -> dict[str, str]:
    """Draw the first release."""
    return {"kraftsim.release": random.choice(kraft_lines()[:-1])}


SCENARIO = Scenario(
    name="unsafe_downgrade_refused",
    summary="Downgrades of an upgraded cluster are rejected wherever data would be lost: of the "
    "level, a broker, or a controller; clients continue.",
    must_exercise=(
        *MUST_EXERCISE,
        "only-retriable-errors",
    ),
    run=run,
    faults=no_faults,
    controllers=3,
    settings={**SETTINGS, "kraftsim.release": "3.3"},
    draw_parameters=begin,
    fault_space=upgrade_fault_space(
        controllers=3,
        brokers=3,
        clients=("writer-1", "writer-2"),
        apis=WRITER_APIS,
        fault_seconds=COURSE_FAULT_SECONDS,
    ),
    limit_seconds=1200.0,
    workload={"writers": 2, "pause_ms": 200},
    fewest_controllers=3,
    fewest_brokers=3,
    until=kraft_lines()[-2],
)
"""With three controllers and three brokers, one of each may be down."""
