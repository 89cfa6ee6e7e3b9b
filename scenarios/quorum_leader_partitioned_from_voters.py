"""Partitions the quorum leader from the other controllers but not from brokers; checks that it
resigns and brokers follow the new leader.

The link between the leader's site and that of the other controllers is down for long, and brokers
reach both. Brokers see no failure, because the old leader responds. But it cannot commit anything,
so every broker that stayed with it would wait for as long as the link is down. Fetches from brokers
must not keep it leader, only fetches from voters count; and it must not wait for a higher epoch,
because no voter can reach it.

Before 4.0 an isolated controller bumps its epoch again and again, and a broker that sees that epoch
accepts no leader of a lower one until all controllers are connected again (which KIP-996 prevents):
the scenario runs with later releases.
Source: KIP-595, KIP-996, KAFKA-15489.
"""

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import LEADER_TARGET, AtTime, Fault
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, Mix
from kraftsim.lab.faults.quorum_spaces import quorum_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import PROVEN, SETTINGS, served_in_time

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

PARTITION_MS = 10_000
BACK_MS = 3000
PARTITIONS = 2
WORKLOAD = {"ids": 20, "ids_after": 100, "work_ms": PARTITIONS * (PARTITION_MS + BACK_MS)}
"""`ids` are requested at a time from each broker: each time at least one block must be
committed.
"""
SERVED_SECONDS = 7.0
"""How long a client may wait.

The old leader resigns after one and a half fetch timeouts, and a request to it times out after 1.5
s.
"""
PAUSE_SECONDS = 0.4


async def run(stage: ScenarioEnvironment) -> None:
    """Request ids from every broker all the time, each time within the bound."""
    returned: list[int] = []
    await stage.wait_for_leader()
    seconds = stage.workload("work_ms") / 1000
    await under_faults(
        stage,
        *(
            _ask_all_the_time(stage, broker, seconds, returned)
            for broker in stage.spec.broker_names
        ),
        seconds=seconds,
    )
    last = stage.producer_id_client("asker-last")
    returned += await last.ask(stage.workload("ids_after"))
    await last.close()
    if len(set(returned)) != len(returned):
        raise ScenarioFailed(
            f"{len(returned)} producer ids were returned, {len(set(returned))} of them distinct"
        )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw when the link is down."""
    begins = (
        500 + number * (PARTITION_MS + BACK_MS) + random.randint(0, 700)
        for number in range(PARTITIONS)
    )
    link = f"{LEADER_TARGET}<>controller-*"
    return tuple(
        Fault(
            kind="partition",
            target=link,
            trigger=AtTime(at_ms=at_ms),
            params={"duration_ms": PARTITION_MS},
        )
        for at_ms in begins
    )


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw the release."""
    return {"kraftsim.release": random.choice(("4.0", "4.2", "4.4"))}


async def _ask_all_the_time(
    stage: ScenarioEnvironment, broker: str, seconds: float, returned: list[int]
) -> None:
    ends_at = stage.now_seconds() + seconds
    client = stage.producer_id_client(f"asker-at-{broker}", broker=broker)
    while stage.now_seconds() < ends_at:
        await served_in_time(
            stage,
            f"producer ids from {broker}, which reaches every controller",
            _take(client.ask(stage.workload("ids")), returned),
            SERVED_SECONDS,
            faults,
        )
        await stage.sleep(PAUSE_SECONDS)
    await client.close()


async def _take(ids: Awaitable[list[int]], returned: list[int]) -> None:
    returned += await ids


SCENARIO = Scenario(
    name="quorum_leader_partitioned_from_voters",
    summary="The quorum leader reaches brokers but no other controller: it resigns in time, and "
    "the brokers follow the next leader.",
    must_exercise=(*PROVEN, "resignation-only-below-majority"),
    run=run,
    faults=faults,
    controllers=3,
    controllers_drawn=(3, 4, 5),
    brokers=2,
    settings={**SETTINGS, "kraftsim.release": "4.4"},
    draw_parameters=draw_parameters,
    fault_space=quorum_fault_space(
        controllers=3,
        brokers=2,
        clients=("asker-at-broker-1", "asker-at-broker-2"),
        apis=PRODUCER_ID_APIS,
        fault_seconds=PARTITIONS * (PARTITION_MS + BACK_MS) / 1000,
        mix=Mix.ON_TOP,  # its bounds hold with its own faults alone
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
