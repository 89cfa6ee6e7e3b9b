"""Two producers, one transactional id: whoever took it last may write, the other may not, wherever in its transaction it stood still.

The first producer stands still before, within, or at the end of a transaction, as a process whose garbage is being collected; the second takes the
transactional id, finishes or drops what the first left, and deals. The first wakes up and goes on. Brokers fail meanwhile.
Source: KIP-98, KIP-588, KIP-890.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.deals import MUST_EXERCISE, SETTINGS, WORKLOAD, AbortNeeded, Dealer, Deals, ProducerFailed
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault
from kraftsim.faults.terrain import INIT_PRODUCER_ID
from kraftsim.faults.trigger import AtTime, OnEvent, OnFrame

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 10.0
POINTS = ("begun", "sent", "sent more")


async def play(stage: Stage) -> None:
    """Let one stand still, another take over, and the first come back."""
    deals = Deals(transaction_timeout_ms=60_000)
    await deals.open(stage)
    seconds = stage.workload("work_ms") / 1000
    rounds = [_round(stage, deals, number) for number in range(1, stage.workload("dealers") + 1)]
    await under_faults(stage, *rounds, seconds=seconds)
    await deals.audit(stage)


async def _round(stage: Stage, deals: Deals, number: int) -> None:
    first = deals.dealer(stage, f"first-{number}", f"deals-{number}")
    second = deals.dealer(stage, f"second-{number}", f"deals-{number}")
    point = stage.random(f"point-{number}").choice(POINTS)
    is_fenced = [False]
    await first.workplace.run(_stand_still(stage, deals, first, second, point, is_fenced))
    if not is_fenced[0]:
        raise StoryFailed(f"first-{number} stood still when it had {point}, its place was taken, and it committed all the same")


async def _stand_still(stage: Stage, deals: Deals, first: Dealer, second: Dealer, point: str, is_fenced: list[bool]) -> None:
    zombie = await first.begin_life()
    try:
        await zombie.begin()
        await deals.send(stage, zombie, "a")
        await zombie.commit()
    except AbortNeeded:
        await zombie.abort()
    await zombie.begin()
    if point != "begun":
        await deals.send(stage, zombie, "b")
        await stage.sleep(0.2 if point == "sent" else 0.0)
    zombie.freeze()
    await second.workplace.run(_take_over(stage, deals, second))
    zombie.thaw()
    try:
        await deals.send(stage, zombie, "c")
        await zombie.commit()
    except AbortNeeded:
        try:
            await zombie.abort()
        except ProducerFailed:
            is_fenced[0] = True
    except ProducerFailed:
        is_fenced[0] = True
    await zombie.close()


async def _take_over(stage: Stage, deals: Deals, dealer: Dealer) -> None:
    client = await dealer.begin_life()
    for _ in range(stage.workload("transactions") // 4):
        try:
            await client.begin()
            await deals.send(stage, client, "d")
            await client.commit()
        except AbortNeeded:
            try:
                await client.abort()
            except ProducerFailed:
                break
    await client.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw up to three deaths of brokers, at the changes of a transaction's state where those can be waited for."""
    if mode is not Mode.SIM:
        return tuple(_restart(random, random.choice(BROKERS), AtTime(at_ms=random.randint(100, 5000))) for _ in range(random.randint(0, 1)))
    if random.random() < 0.4:
        return _lonely(random)
    moments = ("TransactionStateChanged", "MarkerAppended", "ProducerFenced", "TransactionAbortForced")
    return tuple(
        _restart(random, AT_THE_TRIGGER, OnEvent(kind=random.choice(moments), nth=random.randint(1, 12))) for _ in range(random.randint(0, 3))
    )


def _lonely(random: "Random") -> tuple[Fault, ...]:
    """As somebody is about to be fenced two brokers stand still for so long that the third is alone in sync: nothing can be written about it."""
    duration_ms = random.randint(6000, 9000)
    taken_over = OnFrame(api_key=INIT_PRODUCER_ID, client=f"second-{random.randint(1, WORKLOAD['dealers'])}")
    two = random.sample(BROKERS, 2)
    return tuple(Fault(kind="pause", target=each, trigger=taken_over, params={"duration_ms": duration_ms}) for each in two)


def _restart(random: "Random", target: str, trigger: AtTime | OnEvent) -> Fault:
    return Fault(kind="restart", target=target, trigger=trigger, params={"power_loss": False, "after_ms": random.randint(20, 3000)})


SCENARIO = Scenario(
    name="zombie_fenced_by_epoch",
    story="A producer stands still, another takes its transactional id; the first comes back and is fenced, and nothing of it is committed.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=faults,
    settings=SETTINGS,
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
