"""Runs KIP-447's upgrade on the releases of its document: brokers from 2.3 to 2.5, then two bounces
of an app under load.

Step 1: all brokers get the binary of 2.5, and in a second round inter.broker.protocol.version 2.5.
Step 2: members restart as ones that commit offsets with group metadata, still with an id per
partition. Step 3: they restart with an id per thread. In each bounce a member is paused until its
partitions are reassigned. Every line is in the output once; with a single bounce (`--work
bounces=1`) some are there twice.
Source: the upgrade path of KIP-447's document; Kafka's upgrade guide to 2.5.
"""

from kraftsim.cluster.scenario import Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault_space import EPOCH_APIS, zookeeper_fault_space
from kraftsim.lab.workloads.course import COURSE_FAULT_SECONDS, Course
from kraftsim.lab.workloads.rolling_bounce import RollingBounceApp
from kraftsim.lab.workloads.transform_app import MUST_EXERCISE, SETTINGS
from kraftsim.lab.workloads.upgrading import VERSION_KEY
from scenarios.kip_447_upgrade import APIS, CLIENTS, PATIENT, bounce_all, no_faults, upgrade_of
from scenarios.kip_447_upgrade import SCENARIO as ON_KRAFT

FIRST, FENCING = "2.3", "2.5"
LAST = "2.4"
STEPS_MAX = 8
"""Two rounds of three brokers, and two bounces."""


async def run(stage: ScenarioEnvironment) -> None:
    """Upgrade the brokers, bounce the app, and check its output."""
    app = RollingBounceApp(transaction_timeout_ms=60_000, producer=PATIENT, partitions=3)
    await app.open(stage)
    course = Course(stage=stage, steps_max=STEPS_MAX, seconds=stage.workload("work_ms") / 1000)
    await course.run(_upgrade(stage, app, course), app.run(stage))
    await app.audit(stage)


async def _upgrade(stage: ScenarioEnvironment, app: RollingBounceApp, course: Course) -> None:
    upgrade = upgrade_of(stage, app, course)
    await upgrade.brokers_to(FENCING)
    await upgrade.raise_version(FENCING)
    await bounce_all(stage, app, upgrade)


SCENARIO = Scenario(
    name="kip_447_upgrade_on_zookeeper",
    summary="Brokers are upgraded from 2.3 to 2.5, then an app is restarted twice to move to a "
    "producer per thread; every record is copied once.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=no_faults,
    controllers=0,
    zookeeper_mode=True,
    settings={**SETTINGS, "kraftsim.release": FIRST, VERSION_KEY: FIRST},
    fault_space=zookeeper_fault_space(
        brokers=3,
        clients=CLIENTS,
        apis=(*EPOCH_APIS, *APIS),
        fault_seconds=COURSE_FAULT_SECONDS,
    ),
    limit_seconds=ON_KRAFT.limit_seconds,
    workload=ON_KRAFT.workload,
    fewest_brokers=3,
    until=LAST,
)
