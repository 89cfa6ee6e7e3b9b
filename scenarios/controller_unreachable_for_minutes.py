"""Makes all controllers unreachable for longer than the request timeout; checks that brokers reject
producer-id requests and recover by themselves.

A broker times out an AllocateProducerIds request after a minute. It must retry by itself once a
controller is reachable: blocks are small here, so that each broker has a request in flight when the
controllers fail. They are down, isolated, or do not respond; before and after that responses are
lost or late. A broker that never retries after a timeout or an error would have to be restarted.

Over sockets the outage lasts a few seconds only, and no request times out.
Source: KIP-730, KAFKA-14694; kafka.server.NodeToControllerChannelManager (the request timeout).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, within
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnFrame
from kraftsim.lab.faults.fault_space import ALLOCATE_PRODUCER_IDS, PRODUCER_ID_APIS, Mix
from kraftsim.lab.faults.quorum_spaces import quorum_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICK_SESSIONS, SMALL_BLOCKS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

CONTROLLER = "controller-101"
BROKERS = ("broker-1", "broker-2", "broker-3")
FIRST_GAP_MS = 3000
GIVEN_UP_MS = 60_000
"""The request timeout of a broker."""
WORK_SECONDS = 100.0
SECONDS_OVER_SOCKETS = 10.0
PAUSE_SECONDS = 0.4
AFTERWARDS_SECONDS = 15.0
"""A broker that retries has a block within a second; a waiting client must not have to wait for its
own timeout.
"""
LATE = {"late-reply": {"is_given_up": False}}
"""The request timeout is longer than any delay of a response."""
WORKLOAD = {"ids_after": 40, "work_ms": int(WORK_SECONDS * 1000)}


async def run(stage: ScenarioEnvironment) -> None:
    """Request ids from every broker before, during and after the outage; check that each returns
    ids again in time.
    """
    is_over: list[bool] = []
    clients = [_keep_asking(stage, name, is_over) for name in stage.spec.broker_names]
    await stage.gather(_go_without(stage, is_over), *clients)
    for name in stage.spec.broker_names:
        await within(
            stage, f"{name} returns producer ids again", _ask(stage, name), AFTERWARDS_SECONDS
        )


async def _go_without(stage: ScenarioEnvironment, is_over: list[bool]) -> None:
    seconds = stage.workload("work_ms") / 1000 if stage.mode is Mode.SIM else SECONDS_OVER_SOCKETS
    await under_faults(stage, stage.sleep(1.0), seconds=seconds)
    is_over.append(True)


async def _keep_asking(stage: ScenarioEnvironment, broker: str, is_over: list[bool]) -> None:
    client = stage.producer_id_client(f"asker-of-{broker}", broker=broker)
    while not is_over:
        await client.ask_once()
        await stage.sleep(PAUSE_SECONDS)
    await client.close()


async def _ask(stage: ScenarioEnvironment, broker: str) -> None:
    client = stage.producer_id_client(f"asker-of-{broker}-afterwards", broker=broker)
    await client.ask(stage.workload("ids_after"))
    await client.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw how the controllers are unreachable, for more than a minute, and which other responses
    are lost or late.
    """
    begins_ms = random.randint(500, FIRST_GAP_MS)
    lasts_ms = (
        random.randint(GIVEN_UP_MS + 5000, GIVEN_UP_MS + 30_000) if mode is Mode.SIM else 4000
    )
    away = random.choice(
        ("restart", "partition", "pause" if mode is not Mode.EMBEDDED else "restart")
    )
    match away:
        case "restart":
            gone = Fault(
                kind=away,
                target=CONTROLLER,
                trigger=AtTime(at_ms=begins_ms),
                params={"power_loss": False, "after_ms": lasts_ms},
            )
        case _:
            gone = Fault(
                kind=away,
                target=CONTROLLER,
                trigger=AtTime(at_ms=begins_ms),
                params={"duration_ms": lasts_ms},
            )
    return (gone, *(_spoilt_answer(random) for _ in range(random.randint(0, 3))))


def _spoilt_answer(random: "Random") -> Fault:
    kind = random.choice(("lost-reply", "late-reply"))
    trigger = OnFrame(api_key=ALLOCATE_PRODUCER_IDS, is_response=True, nth=random.randint(1, 12))
    return Fault(
        kind=kind,
        target=AT_THE_TRIGGER,
        trigger=trigger,
        params={"duration_ms": random.randint(500, 8000), **LATE.get(kind, {})},
    )


def draw_release(random: "Random") -> Mapping[str, str]:
    """Draw the release: up to 3.5 clients wait for a block, since 3.6 they receive an error at
    once.
    """
    return {"kraftsim.release": random.choice(("3.5", "3.9", "4.4"))}


SCENARIO = Scenario(
    name="controller_unreachable_for_minutes",
    summary="No broker reaches a controller for longer than its request timeout; afterwards each "
    "broker gets producer ids again by itself.",
    must_exercise=(
        "producer-id-unique",
        "producer-id-blocks-disjoint",
        "producer-id-inside-owned-block",
        "one-block-request-in-flight",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    draw_parameters=draw_release,
    settings={**QUICK_SESSIONS, **SMALL_BLOCKS},
    fault_space=quorum_fault_space(
        controllers=1,
        brokers=3,
        clients=tuple(f"asker-of-broker-{number}" for number in range(1, 4)),
        apis=PRODUCER_ID_APIS,
        fault_seconds=WORK_SECONDS,
        mix=Mix.ON_TOP,
    ),
    limit_seconds=600.0,
    workload=WORKLOAD,
    fewest_brokers=1,
)
