"""Draws variants of producer-id allocation that KIP-730 allows or rejects, under failures; checks
that no producer id is returned twice.

A run draws when brokers request the next block (at 90 %, as shipped, with the first id, or when
none is left), where blocks come from (the shared channel, a separate channel, numbered requests,
after replay, or the broker's own disk), and how the controller allocates them (as shipped, with
another size, or one per request). The block size is changed while brokers run and hold blocks.
Clients use up block after block, nodes are killed, and in simulation AllocateProducerIds responses
are lost. The costs of the variants are measured in docs/producer-variants.md.
Source: KIP-730 (proposed changes and rejected alternatives).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnEvent, OnFrame, Trigger
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, WRITER_APIS, Mix, cluster_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICK_ELECTIONS, QUICK_SESSIONS
from kraftsim.lab.workloads.replication_workload import KEEPS_ANY_DATE
from kraftsim.lab.workloads.under_load import write_lines

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "ledger"
PARTITIONS = 3
CONTROLLERS = ("controller-101", "controller-102", "controller-103")
BROKERS = ("broker-1", "broker-2", "broker-3")
ALLOCATE_PRODUCER_IDS = 67
PAUSE_SECONDS = 0.1
WORK_SECONDS = 6.0
SIZES = (1, 3, 10, 100, 1000, 100_000)
WORKLOAD = {
    "records": 50,
    "requesters": 3,
    "ids_per_requester": 500,
    "resizes": 4,
    "work_ms": int(WORK_SECONDS * 1000),
}


async def run(stage: ScenarioEnvironment) -> None:
    """Request ids and produce under faults while the block size changes; invariants are checked
    from the events.
    """
    await stage.create_topic(TOPIC, PARTITIONS)
    ids: list[int] = []
    clients, ids_each = stage.workload("requesters"), stage.workload("ids_per_requester")
    asked = (_ask(stage, number, ids_each, ids) for number in range(1, clients + 1))
    await under_faults(
        stage,
        write_lines(
            stage, TOPIC, PARTITIONS, stage.workload("records"), pause_seconds=PAUSE_SECONDS
        ),
        _resize(stage),
        *asked,
        seconds=stage.workload("work_ms") / 1000,
    )
    if len(set(ids)) != clients * ids_each:
        raise ScenarioFailed(
            f"{len(ids)} producer ids were returned, {len(set(ids))} of them distinct"
        )


async def _resize(stage: ScenarioEnvironment) -> None:
    random, resizes = stage.random("block sizes"), stage.workload("resizes")
    for number in range(resizes):
        size = random.choice(SIZES)
        await stage.exact_client(f"resizer-{number}", TOPIC).set_block_size(size)
        await stage.sleep(stage.workload("work_ms") / 1000 / resizes)


async def _ask(stage: ScenarioEnvironment, number: int, count: int, ids: list[int]) -> None:
    client = stage.producer_id_client(f"asker-{number}")
    ids += await client.ask(count)
    await client.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw one to three kills of any node; in simulation also one of a controller that has
    allocated a block, and up to four lost responses.
    """
    deaths = [
        _kill(random, random.choice((*BROKERS, *CONTROLLERS)), AtTime(at_ms=_moment(random)))
        for _ in range(random.randint(1, 3))
    ]
    if mode is not Mode.SIM:
        return tuple(deaths)
    given = OnEvent(kind="ProducerIdBlockAllocated", nth=random.randint(1, 8))
    lost = [
        Fault(
            kind="lost-reply",
            target=AT_THE_TRIGGER,
            trigger=OnFrame(
                api_key=ALLOCATE_PRODUCER_IDS,
                is_response=True,
                nth=random.randint(1, 12),
                moment="before",
            ),
        )
        for _ in range(random.randint(0, 4))
    ]
    return (*deaths, _kill(random, AT_THE_TRIGGER, given), *lost)


def _moment(random: "Random") -> int:
    return random.randint(200, int(WORK_SECONDS * 1000))


def _kill(random: "Random", target: str, trigger: Trigger) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": False, "after_ms": random.randint(50, 1500)},
    )


def draw_variants(random: "Random") -> Mapping[str, str]:
    """Draw when blocks are requested, where they come from, and how they are allocated."""
    return {
        "kraftsim.producer.ids": random.choice(("as-released", "on-demand", "eager", "ending")),
        "kraftsim.producer.id.blocks": random.choice(
            ("shared-channel", "own-channel", "numbered", "numbered", "after-replay", "own-disk")
        ),
        "kraftsim.producer.id.control": random.choice(
            ("as-released", "resizable", "repeating", "repeating", "last-id")
        ),
        "kraftsim.producer.id.block.size": str(random.choice(SIZES)),
        "kraftsim.producer.id.blocks.per.second": random.choice(("0", "0", "20")),
        "kraftsim.release": random.choice(("3.3", "3.5", "3.9", "4.4")),
    }


SCENARIO = Scenario(
    name="producer_id_variants",
    summary="Blocks allocated as KIP-730 allows or rejects: early, late, of any size, numbered, "
    "after replay, or from a broker's own disk.",
    must_exercise=(
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "producer-id-inside-owned-block",
        "acknowledged-records-in-final-log",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    draw_parameters=draw_variants,
    controllers=3,
    settings={**QUICK_SESSIONS, **QUICK_ELECTIONS, **KEEPS_ANY_DATE},
    fault_space=cluster_fault_space(
        controllers=3,
        brokers=3,
        clients=(
            "writer-1",
            "asker-1",
            "asker-2",
            "asker-3",
        ),
        apis=(*WRITER_APIS, *PRODUCER_ID_APIS),
        brokers_keep_records=True,
        fault_seconds=WORK_SECONDS,
        mix=Mix.ON_TOP,
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=1,
    fewest_brokers=1,
)
