"""KIP-447's upgrade on the releases that its document names: brokers go from 2.3 to 2.5, then an application is restarted twice under load.

Step 1: all brokers get the binary of 2.5, and in a second round inter.broker.protocol.version 2.5. Step 2: members come back as ones that commit
offsets for a member of their group, still with an id for each partition. Step 3: they come back with an id for each thread. A member stands still in
each bounce until its partitions are another's. Every line is in the copy once; with a single bounce (`--work bounces=1`) some are there twice.
Source: the upgrade path of KIP-447's document; Kafka's upgrade guide to 2.5.
"""

from kraftsim.cluster.bouncing import Bouncing
from kraftsim.cluster.copying import MUST_EXERCISE, SETTINGS
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Scenario, Stage
from kraftsim.cluster.upgrading import VERSION_KEY, Upgrade
from scenarios.kip_447_upgrade import PATIENT, bounce_all, no_faults
from scenarios.kip_447_upgrade import SCENARIO as ON_KRAFT

FIRST, FENCING = "2.3", "2.5"
LAST = "2.4"


async def play(stage: Stage) -> None:
    """Upgrade the brokers, bounce the application, and read the copy."""
    copying = Bouncing(transaction_timeout_ms=60_000, producer=PATIENT, partitions=3)
    await copying.open(stage)
    await under_faults(stage, copying.run(stage), _upgrade(stage, copying), seconds=stage.workload("work_ms") / 1000)
    await copying.audit(stage)


async def _upgrade(stage: Stage, copying: Bouncing) -> None:
    upgrade = Upgrade(stage=stage, topics={copying.input_topic: copying.partitions, copying.output_topic: copying.partitions})
    await upgrade.brokers_to(FENCING)
    await upgrade.raise_version(FENCING)
    await bounce_all(stage, copying)


SCENARIO = Scenario(
    name="kip_447_upgrade_on_zookeeper",
    story="Brokers go from 2.3 to 2.5, then an application is restarted twice: it has a producer for each thread then; all is copied once.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=no_faults,
    controllers=0,
    zookeeper_mode=True,
    settings={**SETTINGS, "kraftsim.release": FIRST, VERSION_KEY: FIRST},
    limit_seconds=ON_KRAFT.limit_seconds,
    workload=ON_KRAFT.workload,
    fewest_brokers=3,
    until=LAST,
)
