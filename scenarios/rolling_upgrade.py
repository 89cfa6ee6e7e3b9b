"""Upgrades a KRaft cluster under idempotent and transactional load: binaries node by node, then
feature levels. Clients see retriable errors only.

The run starts with a release and upgrades to one or more later ones, all drawn from the seed
(`kraftsim.release` is the first release, `hops` the largest number of steps). Some upgrades leave
the feature levels for a while, as cautious operators do: nodes then have different binaries and the
same finalized levels. After each restart new clients request producer ids, so that blocks of every
release are in use.
Source: Kafka's upgrade guides for KRaft, KIP-778, KIP-890 (transaction.version), KIP-730.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, TRANSACTION_APIS, WRITER_APIS
from kraftsim.lab.faults.upgrade_spaces import upgrade_fault_space
from kraftsim.lab.workloads.course import COURSE_FAULT_SECONDS
from kraftsim.lab.workloads.transform_app import SETTINGS as COPYING_SETTINGS
from kraftsim.lab.workloads.under_load import PROVEN_WITH_APP, UnderLoad, while_clients_work
from kraftsim.lab.workloads.upgrading import ContinuousTransformApp, kraft_lines, path_from

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

IDS_PER_RESTART = 40
STEPS_MAX = 7
"""Six restarts and the levels of one hop."""
SKIPPED = 0.3
"""The share of upgrades that leave the feature levels until the next release."""
CLIENTS = ("writer-of-ledger-1", "writer-of-ledger-2", "copier-1", "copier-2", "asker")
SETTINGS = {**COPYING_SETTINGS, "kraftsim.release": "3.3", "broker.session.timeout.ms": "2000"}
"""From 4.1 on a restarted broker waits until the session of its previous incarnation has expired:
that would take half of a run.
"""


async def run(stage: ScenarioEnvironment) -> None:
    """Upgrade step by step under load, finalize the levels, and check what the clients wrote."""
    await while_clients_work(
        stage,
        climb,
        ids_per_restart=IDS_PER_RESTART,
        steps_max=STEPS_MAX,
        transform_app=ContinuousTransformApp(partitions=2),
    )


async def climb(load: UnderLoad) -> None:
    """Run the upgrades."""
    stage, upgrade = load.stage, load.upgrade
    path, patience = (
        path_from(stage, kraft_lines(), stage.workload("hops")),
        stage.random("patience"),
    )
    for line in path:
        await upgrade.roll_all(line)
        if line == path[-1] or patience.random() >= SKIPPED:
            await upgrade.finalize(line)
    await load.ask()


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: restarts alone must be harmless, too."""
    return ()


def begin(random: "Random") -> dict[str, str]:
    """Draw the first release."""
    return {"kraftsim.release": random.choice(kraft_lines()[:-1])}


SCENARIO = Scenario(
    name="rolling_upgrade",
    summary="A cluster is upgraded to later releases, node by node and level by level; clients see "
    "retriable errors only.",
    must_exercise=(
        *PROVEN_WITH_APP,
        "each-input-processed-once",
        "transactions-atomic",
        "read-committed-isolation",
        "metadata-log-matching",
    ),
    run=run,
    faults=no_faults,
    controllers=3,
    settings=SETTINGS,
    draw_parameters=begin,
    limit_seconds=3600.0,
    workload={"copiers": 2, "writers": 2, "hops": 2, "pause_ms": 250, "crashes": 0, "pauses": 0},
    fault_space=upgrade_fault_space(
        controllers=3,
        brokers=3,
        clients=CLIENTS,
        apis=(*WRITER_APIS, *PRODUCER_ID_APIS, *TRANSACTION_APIS),
        fault_seconds=COURSE_FAULT_SECONDS,
    ),
    fewest_controllers=1,
    fewest_brokers=3,
    until=kraft_lines()[-2],
)
