"""Upgrades a ZooKeeper cluster under load in two rolling rounds: new binaries first, then
inter.broker.protocol.version.

The run starts with a release from 2.3 on and upgrades to later ones up to 3.9, drawn from the seed
(`kraftsim.release` with inter.broker.protocol.version is the first release, `hops` the largest
number of steps). In the first round every broker is restarted with the new release and the old
protocol version; in the second round inter.broker.protocol.version is raised. On the way brokers
start to use AllocateProducerIds (3.0), topics get ids (2.8), and any broker may be the controller.
Source: Kafka's upgrade guides 2.8 to 3.9, KIP-497, KIP-516, KIP-730.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import (
    EPOCH_APIS,
    PRODUCER_ID_APIS,
    TRANSACTION_APIS,
    WRITER_APIS,
    zookeeper_fault_space,
)
from kraftsim.lab.workloads.course import COURSE_FAULT_SECONDS
from kraftsim.lab.workloads.transform_app import SETTINGS as COPYING_SETTINGS
from kraftsim.lab.workloads.under_load import PROVEN_WITH_APP, UnderLoad, while_clients_work
from kraftsim.lab.workloads.upgrading import (
    VERSION_KEY,
    ContinuousTransformApp,
    path_from,
    zookeeper_lines,
)

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

IDS_PER_RESTART = 40
FIRST = "2.3"
STEPS_MAX = 6
"""Both rounds of one hop."""


async def run(stage: ScenarioEnvironment) -> None:
    """Upgrade step by step under load, and check what the clients wrote."""
    await while_clients_work(
        stage,
        climb,
        ids_per_restart=IDS_PER_RESTART,
        steps_max=STEPS_MAX,
        transform_app=ContinuousTransformApp(partitions=2),
    )


async def climb(load: UnderLoad) -> None:
    """Run the upgrades, binaries first, then the protocol version, in separate rounds."""
    for line in path_from(load.stage, zookeeper_lines(), load.stage.workload("hops")):
        await load.upgrade.brokers_to(line)
        await load.upgrade.raise_version(line)
    await load.ask()


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: restarts alone must be harmless, too."""
    return ()


def begin(random: "Random") -> dict[str, str]:
    """Draw the first release; its brokers use its own protocol version."""
    line = random.choice(zookeeper_lines()[zookeeper_lines().index(FIRST) : -1])
    return {"kraftsim.release": line, VERSION_KEY: line}


SCENARIO = Scenario(
    name="rolling_upgrade_on_zookeeper",
    summary="A ZooKeeper cluster is upgraded to later releases, binaries first and protocol "
    "versions in a second round; clients continue.",
    must_exercise=(
        *PROVEN_WITH_APP,
        "each-input-processed-once",
        "transactions-atomic",
    ),
    run=run,
    faults=no_faults,
    controllers=0,
    zookeeper_mode=True,
    settings={**COPYING_SETTINGS, "kraftsim.release": FIRST, VERSION_KEY: FIRST},
    draw_parameters=begin,
    limit_seconds=3600.0,
    workload={"copiers": 1, "writers": 1, "hops": 1, "pause_ms": 300, "crashes": 0, "pauses": 0},
    fault_space=zookeeper_fault_space(
        brokers=3,
        clients=("writer-of-ledger-1", "copier-1", "asker"),
        apis=(*EPOCH_APIS, *WRITER_APIS, *PRODUCER_ID_APIS, *TRANSACTION_APIS),
        fault_seconds=COURSE_FAULT_SECONDS,
    ),
    fewest_brokers=3,
    until=zookeeper_lines()[-2],
)
