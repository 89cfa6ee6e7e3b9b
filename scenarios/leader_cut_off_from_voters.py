"""Whoever leads is heard by the brokers and by no other controller: it gives up by itself, and the brokers turn to the leader whom the others elect.

The link between the site of a leader and that of the other controllers is gone for long, and brokers reach both. To them nothing looks wrong: the old
leader answers. But it can commit nothing any more, so every broker that stayed with it would wait for as long as the link is gone. That many brokers
read from it must not keep it in office, only voters count; and it must not wait for a later epoch to be told of, for nobody can tell it.

Before 4.0 a controller that is cut off raises its epoch again and again, and a broker that hears of it believes no leader of a lower one until all
are together again (what KIP-996 is for): the story is played with later releases.
Source: KIP-595, KIP-996, KAFKA-15489.
"""

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.quorum_story import PROVEN, SETTINGS
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed, within
from kraftsim.faults.fault import Fault
from kraftsim.faults.targets import LEADER_WORD
from kraftsim.faults.trigger import AtTime

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

CUT_MS = 10_000
BACK_MS = 3000
CUTS = 2
WORKLOAD = {"ids": 20, "ids_after": 100, "work_ms": CUTS * (CUT_MS + BACK_MS)}
"""`ids` are asked for at a time, at each broker: each time at least one block must be committed."""
SERVED_SECONDS = 7.0
"""How long whoever asks may wait. The old leader gives up after one and a half fetch time-outs, and a request to it is given up after 1.5 s."""
PAUSE_SECONDS = 0.4


async def play(stage: Stage) -> None:
    """Ask every broker for ids all the time, each time within the bound."""
    told: list[int] = []
    await stage.wait_for_leader()
    seconds = stage.workload("work_ms") / 1000
    await under_faults(stage, *(_ask_all_the_time(stage, broker, seconds, told) for broker in stage.spec.broker_names), seconds=seconds)
    last = stage.id_asker("asker-last")
    told += await last.ask(stage.workload("ids_after"))
    await last.close()
    if len(set(told)) != len(told):
        raise StoryFailed(f"{len(told)} producer ids were handed out, of which {len(set(told))} are different")


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw when the link is gone."""
    begins = (500 + number * (CUT_MS + BACK_MS) + random.randint(0, 700) for number in range(CUTS))
    link = f"{LEADER_WORD}<>controller-*"
    return tuple(Fault(kind="partition", target=link, trigger=AtTime(at_ms=at_ms), params={"duration_ms": CUT_MS}) for at_ms in begins)


def swarm(random: "Random") -> Mapping[str, str]:
    """Draw the release."""
    return {"kraftsim.release": random.choice(("4.0", "4.2", "4.4"))}


async def _ask_all_the_time(stage: Stage, broker: str, seconds: float, told: list[int]) -> None:
    ends_at = stage.now_seconds() + seconds
    asker = stage.id_asker(f"asker-at-{broker}", broker=broker)
    while stage.now_seconds() < ends_at:
        answer = _take(asker.ask(stage.workload("ids")), told)
        if stage.mode is Mode.SIM:
            await within(stage, f"ids of {broker}, which reaches every controller", answer, SERVED_SECONDS)
        else:
            await answer
        await stage.sleep(PAUSE_SECONDS)
    await asker.close()


async def _take(ids: Awaitable[list[int]], told: list[int]) -> None:
    told += await ids


SCENARIO = Scenario(
    name="leader_cut_off_from_voters",
    story="The brokers hear a leader that no other controller hears: it gives up in time, and they are served by the next one.",
    must_exercise=(*PROVEN, "leaders-give-up-unheard"),
    play=play,
    faults=faults,
    controllers=3,
    controllers_drawn=(3, 4, 5),
    brokers=2,
    settings={**SETTINGS, "kraftsim.release": "4.4"},
    swarm=swarm,
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
