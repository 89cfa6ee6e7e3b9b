"""Brokers cannot reach any controller for longer than they wait for an answer: those who ask for producer ids are sent away, and served again after.

A broker gives AllocateProducerIds up when nobody has answered it for a minute. It must ask anew by itself once somebody may answer: blocks are small
here, so that each broker has asked when the controllers go. They are down, cut off, or answer nobody; before and after it answers are lost or late.
A broker that has given up, or was refused, once and never asks again would have to be restarted by hand.

Over sockets it lasts some seconds only, and no broker gives up.
Source: KIP-730, KAFKA-14694; kafka.server.NodeToControllerChannelManager (the time-out of a request).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.quorum_story import QUICK_SESSIONS, SMALL_BLOCKS
from kraftsim.cluster.scenario import Mode, Scenario, Stage, within
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault
from kraftsim.faults.terrain import ALLOCATE_PRODUCER_IDS
from kraftsim.faults.trigger import AtTime, OnFrame

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

CONTROLLER = "controller-101"
BROKERS = ("broker-1", "broker-2", "broker-3")
FIRST_GAP_MS = 3000
GIVEN_UP_MS = 60_000
"""For so long a broker tries."""
WORK_SECONDS = 100.0
SECONDS_OVER_SOCKETS = 10.0
PAUSE_SECONDS = 0.4
AFTERWARDS_SECONDS = 15.0
"""A broker that asks anew has a block within a second; a client that waits for one must not wait for its own time-out."""
LATE = {"late-reply": {"is_given_up": False}}
"""A broker waits longer for an answer than any comes late."""
WORKLOAD = {"ids_after": 40, "work_ms": int(WORK_SECONDS * 1000)}


async def play(stage: Stage) -> None:
    """Ask every broker for ids before, meanwhile and after, and see that each of them has some again in good time."""
    is_over: list[bool] = []
    askers = [_keep_asking(stage, name, is_over) for name in stage.spec.broker_names]
    await stage.gather(_go_without(stage, is_over), *askers)
    for name in stage.spec.broker_names:
        await within(stage, f"{name} hands out producer ids again", _ask(stage, name), AFTERWARDS_SECONDS)


async def _go_without(stage: Stage, is_over: list[bool]) -> None:
    seconds = stage.workload("work_ms") / 1000 if stage.mode is Mode.SIM else SECONDS_OVER_SOCKETS
    await under_faults(stage, stage.sleep(1.0), seconds=seconds)
    is_over.append(True)


async def _keep_asking(stage: Stage, broker: str, is_over: list[bool]) -> None:
    asker = stage.id_asker(f"asker-of-{broker}", broker=broker)
    while not is_over:
        await asker.ask_once()
        await stage.sleep(PAUSE_SECONDS)
    await asker.close()


async def _ask(stage: Stage, broker: str) -> None:
    asker = stage.id_asker(f"asker-of-{broker}-afterwards", broker=broker)
    await asker.ask(stage.workload("ids_after"))
    await asker.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw how the controllers are out of reach, for more than a minute, and which answers are lost or late beside that."""
    begins_ms = random.randint(500, FIRST_GAP_MS)
    lasts_ms = random.randint(GIVEN_UP_MS + 5000, GIVEN_UP_MS + 30_000) if mode is Mode.SIM else 4000
    away = random.choice(("restart", "partition", "pause" if mode is not Mode.EMBEDDED else "restart"))
    match away:
        case "restart":
            gone = Fault(kind=away, target=CONTROLLER, trigger=AtTime(at_ms=begins_ms), params={"power_loss": False, "after_ms": lasts_ms})
        case _:
            gone = Fault(kind=away, target=CONTROLLER, trigger=AtTime(at_ms=begins_ms), params={"duration_ms": lasts_ms})
    return (gone, *(_spoilt_answer(random) for _ in range(random.randint(0, 3))))


def _spoilt_answer(random: "Random") -> Fault:
    kind = random.choice(("lost-reply", "late-reply"))
    trigger = OnFrame(api_key=ALLOCATE_PRODUCER_IDS, is_response=True, nth=random.randint(1, 12))
    return Fault(kind=kind, target=AT_THE_TRIGGER, trigger=trigger, params={"duration_ms": random.randint(500, 8000), **LATE.get(kind, {})})


def draw_release(random: "Random") -> Mapping[str, str]:
    """Draw by which rules blocks are asked for: up to 3.5 clients wait for one, since 3.6 they are sent away."""
    return {"kraftsim.release": random.choice(("3.5", "3.9", "4.4"))}


SCENARIO = Scenario(
    name="no_controller_for_minutes",
    story="No broker reaches a controller for longer than it waits for an answer; when one is there again, each broker has producer ids by itself.",
    must_exercise=(
        "producer-id-unique",
        "producer-id-blocks-disjoint",
        "producer-id-inside-owned-block",
        "one-block-request-at-a-time",
        "settles-after-heal",
    ),
    play=play,
    faults=faults,
    swarm=draw_release,
    settings={**QUICK_SESSIONS, **SMALL_BLOCKS},
    limit_seconds=600.0,
    workload=WORKLOAD,
    fewest_brokers=1,
)
