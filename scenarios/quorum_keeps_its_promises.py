"""Some controllers are gone for long: as long as a majority is there somebody leads soon, and goes on leading, and whoever asks is served in time.

Three, four or five controllers have at most as many away at a time as they can spare: dead, or cut off from everybody, the leader among them or not.
Nobody comes back to help before the bound of the story is over, so the others must do it alone: notice that the leader is gone, elect another one
though all of them noticed at once and split their votes, commit without those who are away, and not give up a leader whom a majority hears. Releases
with and without a question before each election (KIP-996) are drawn; some answers between controllers come out of epochs that are over.

Over sockets there are three controllers, and nobody is held to more than that everything settles in the end.
Source: KIP-595, KIP-996, KAFKA-15489; canMakeProgressIfMajorityIsReachable of org.apache.kafka.raft.RaftEventSimulationTest.
"""

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.quorum_story import PROVEN, SETTINGS
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed, within
from kraftsim.cluster.workload import IdAsker
from kraftsim.faults.fault import Fault
from kraftsim.faults.targets import LEADER_WORD
from kraftsim.faults.trigger import AtTime, OnEvent

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

SPARED = ("controller-10[15]", "controller-10[25]", "controller-10[35]", LEADER_WORD, LEADER_WORD)
"""Who may be away: of five controllers two, of three or four one."""
AWAY_MS = 9000
BACK_MS = 3500
"""How long all are together again before the next ones go."""
PARTS = 2
WORKLOAD = {"ids": 20, "ids_after": 100, "work_ms": PARTS * (AWAY_MS + BACK_MS)}
"""`ids` are asked for at a time: each time at least one block must be committed."""
SERVED_SECONDS = 7.0
"""How long whoever asks may wait. An election takes up to two time-outs and is repeated when votes are split, which gets rarer each time."""
PAUSE_SECONDS = 0.4


async def play(stage: Stage) -> None:
    """Ask for ids all the time, each time within the bound."""
    told: list[int] = []
    await stage.wait_for_leader()
    seconds = stage.workload("work_ms") / 1000
    await under_faults(stage, _ask_all_the_time(stage, seconds, told), seconds=seconds)
    last = stage.id_asker("asker-last")
    await _ask(last, stage.workload("ids_after"), told)
    await last.close()
    if len(set(told)) != len(told):
        raise StoryFailed(f"{len(told)} producer ids were handed out, of which {len(set(told))} are different")


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw who is away and how, one after the other; in simulation some answers are of former epochs, too."""
    schedule = []
    targets = random.sample((LEADER_WORD, random.choice(SPARED)), PARTS) if mode is Mode.SIM else [LEADER_WORD] * PARTS
    for number, target in enumerate(targets):
        trigger = AtTime(at_ms=500 + number * (AWAY_MS + BACK_MS) + random.randint(0, 700))
        if random.random() < DEAD_SHARE:
            schedule.append(Fault(kind="restart", target=target, trigger=trigger, params={"power_loss": False, "after_ms": AWAY_MS}))
        else:
            schedule.append(Fault(kind="partition", target=target, trigger=trigger, params={"duration_ms": AWAY_MS}))
    if mode is Mode.SIM and random.random() < OLD_ANSWERS_SHARE:
        schedule += [_old_answers(random) for _ in range(3)]
    return tuple(schedule)


DEAD_SHARE = 0.6
OLD_ANSWERS_SHARE = 0.5


def _old_answers(random: "Random") -> Fault:
    """Whoever stands for election is told what was said in an election before."""
    trigger = OnEvent(kind="RaftRoleChanged", fields={"role": "Candidate"}, nth=random.randint(2, 8))
    return Fault(kind="old-epoch-answer", trigger=trigger, params={"times": random.randint(1, 4), "duration_ms": 3000})


def swarm(random: "Random") -> Mapping[str, str]:
    """Draw the release: from 4.0 on voters ask before they stand."""
    return {"kraftsim.release": random.choice(("3.3", "3.9", "4.0", "4.4"))}


async def _ask_all_the_time(stage: Stage, seconds: float, told: list[int]) -> None:
    ends_at = stage.now_seconds() + seconds
    asker = stage.id_asker("asker-1")
    while stage.now_seconds() < ends_at:
        await _served(stage, _ask(asker, stage.workload("ids"), told))
        await stage.sleep(PAUSE_SECONDS)
    await asker.close()


async def _served(stage: Stage, ask: Awaitable[None]) -> None:
    """Wait for an answer; in virtual time, where nothing is slow that the story did not slow down, no longer than the bound."""
    if stage.mode is Mode.SIM:
        await within(stage, f"ids with a majority of the controllers there ({stage.spec.controllers} in all)", ask, SERVED_SECONDS)
    else:
        await ask


async def _ask(asker: IdAsker, count: int, told: list[int]) -> None:
    told += await asker.ask(count)


SCENARIO = Scenario(
    name="quorum_keeps_its_promises",
    story="As many controllers are gone for long as can be spared; the others elect in time, go on leading, and serve whoever asks.",
    must_exercise=PROVEN,
    play=play,
    faults=faults,
    controllers=3,
    controllers_drawn=(3, 3, 4, 5),
    brokers=1,
    settings=SETTINGS,
    swarm=swarm,
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
