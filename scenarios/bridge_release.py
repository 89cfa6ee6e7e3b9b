"""Mixes brokers that allocate producer-id blocks in ZooKeeper with brokers that use
AllocateProducerIds; checks that no id is returned twice.

All binaries are of one release; inter.broker.protocol.version determines how a broker allocates:
below 3.0-IV0 it updates the producer-id znode itself, from there on it sends AllocateProducerIds,
and the controller updates the same znode. Clients request ids from every broker while brokers,
including the controller, are restarted; then the remaining brokers are upgraded one after the
other. No id is returned twice, and no two blocks overlap.
Source: KIP-730 (bridge release), kafka.coordinator.transaction.{ZkProducerIdManager,
RPCProducerIdManager}, Kafka's upgrade guide 3.0.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.events.runs import PhaseBegan
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, WRITER_APIS, zookeeper_fault_space
from kraftsim.lab.workloads.course import COURSE_FAULT_SECONDS, Course
from kraftsim.lab.workloads.replication_workload import SETTINGS
from kraftsim.lab.workloads.under_load import PROVEN
from kraftsim.lab.workloads.upgrading import VERSION_KEY, Traffic, Upgrade

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "ledger"
PARTITIONS = 3
OLD, NEW = "2.8", "3.0"
DIRECT = ("broker-1", "broker-2")
"""These start with direct allocation; the others send AllocateProducerIds."""
IDS_PER_RESTART = 300
STEPS_MAX = 5
"""A restart of each broker, and one more of those that are upgraded."""


async def run(stage: ScenarioEnvironment) -> None:
    """Request producer ids in the mixed cluster, restart its brokers, and then upgrade the rest."""
    traffic = Traffic(topic=TOPIC, partitions=PARTITIONS)
    await traffic.open(stage)
    course = Course(stage=stage, steps_max=STEPS_MAX, seconds=COURSE_FAULT_SECONDS)
    writers = [
        traffic.write(stage, f"writer-{number}")
        for number in range(1, stage.workload("writers") + 1)
    ]
    clients = [
        _ask_all_the_time(stage, traffic, course, f"asker-{number}")
        for number in range(1, stage.workload("requesters") + 1)
    ]
    await course.run(_cross(stage, traffic, course), *writers, *clients)
    await traffic.audit(stage)


async def _ask_all_the_time(
    stage: ScenarioEnvironment, traffic: Traffic, course: Course, name: str
) -> None:
    client = stage.producer_id_client(name)
    while not traffic.is_over:
        await course.ask(client, IDS_PER_RESTART)
        await stage.sleep(stage.workload("pause_ms") / 1000)
    await client.close()


async def _cross(stage: ScenarioEnvironment, traffic: Traffic, course: Course) -> None:
    upgrade = Upgrade(stage=stage, topics={TOPIC: PARTITIONS}, course=course)
    order = stage.random("order").sample(stage.spec.broker_names, len(stage.spec.broker_names))
    stage.emit(PhaseBegan(phase="mixed"))
    await upgrade.roll(order)
    stage.emit(PhaseBegan(phase="raise-the-rest"))
    await upgrade.roll([name for name in order if name in DIRECT], settings={VERSION_KEY: NEW})
    await course.finish()
    await upgrade.settled()
    traffic.is_over = True


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: restarts alone must be harmless, too."""
    return ()


def begin(random: "Random") -> dict[str, str]:
    """Draw the release of all binaries: from 3.0 on they support both."""
    return {"kraftsim.release": random.choice(("3.0", "3.1", "3.2", "3.3", "3.5", "3.6", "3.9"))}


SCENARIO = Scenario(
    name="bridge_release",
    summary="Brokers that allocate producer ids in ZooKeeper and brokers that use "
    "AllocateProducerIds share a cluster; no id is returned twice.",
    must_exercise=PROVEN,
    run=run,
    faults=no_faults,
    controllers=0,
    zookeeper_mode=True,
    settings={**SETTINGS, "kraftsim.release": "3.0", VERSION_KEY: NEW},
    node_settings={name: {VERSION_KEY: OLD} for name in DIRECT},
    draw_parameters=begin,
    fault_space=zookeeper_fault_space(
        brokers=3,
        clients=("writer-1", "asker-1", "asker-2"),
        apis=(*WRITER_APIS, *PRODUCER_ID_APIS),
        fault_seconds=COURSE_FAULT_SECONDS,
    ),
    limit_seconds=1200.0,
    workload={"writers": 1, "requesters": 2, "pause_ms": 100},
    fewest_brokers=3,
    since="3.0",
)
