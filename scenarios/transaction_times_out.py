"""Transactions take longer than they may, and are aborted over their producers' heads; what is written late must not come back to life.

Half of the applications stand still within a transaction until it has timed out, and go on as if nothing had happened. Requests to write, too, come
late: they wait in the network until their clients have given them up and aborted. No partition may take them into a transaction that nobody will
end. Before 3.6 partitions did: `--release 3.5` shows KAFKA-14402 as it was, without a bug being put back.
Source: KIP-98, KIP-588, KIP-890 part 1.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from kraftsim.cluster.deals import MUST_EXERCISE, SETTINGS, WORKLOAD, AbortNeeded, Dealer, Deals, ProducerFailed
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, ProducerSettings, Scenario, Stage
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault, Value
from kraftsim.faults.trigger import AtTime, OnFrame

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

PRODUCE, ADD_PARTITIONS_TO_TXN = 0, 24
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 12.0
HURRIED = ProducerSettings(delivery_timeout_ms=750, request_timeout_ms=700)
"""What is not acknowledged soon is given up, and its transaction aborted."""


async def play(stage: Stage) -> None:
    """Deal in a hurry, and too slowly."""
    hurried, slow = Deals(producer=HURRIED), Deals(transaction_timeout_ms=2000)
    await hurried.open(stage)
    dealers = stage.workload("dealers")
    work = [hurried.trade(stage, number) for number in range(1, dealers + 1)]
    work += [_too_slow(stage, slow, number) for number in range(dealers + 1, 2 * dealers + 1)]
    await under_faults(stage, *work, seconds=stage.workload("work_ms") / 1000)
    await slow.audit(stage)


async def _too_slow(stage: Stage, deals: Deals, number: int) -> None:
    dealer = deals.dealer(stage, f"slow-{number}", f"slow-{number}")
    random = stage.random(f"slow-{number}")

    async def work() -> None:
        for _ in range(max(1, stage.workload("transactions") // 4)):
            await _go_on_late(stage, deals, dealer, random.uniform(2.5, 5.0))

    await dealer.workplace.run(work())


async def _go_on_late(stage: Stage, deals: Deals, dealer: Dealer, seconds: float) -> None:
    """Send, stand still until the transaction is over, send more, and commit: that must fail."""
    client = await dealer.begin_life()
    try:
        await client.begin()
        await deals.send(stage, client, "early", [0])
        await stage.sleep(0.3)
        client.freeze()
        await stage.sleep(seconds)
        client.thaw()
        await deals.send(stage, client, "late", [1, 2])
        await client.commit()
    except AbortNeeded:
        with suppress(AbortNeeded, ProducerFailed):
            await client.abort()
    except ProducerFailed:
        pass
    await client.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw requests that wait in the network for longer than their clients do; over sockets a broker that stands still."""
    if mode is not Mode.SIM:
        return (Fault(kind="pause", target="broker-1", trigger=AtTime(at_ms=random.randint(500, 3000)), params={"duration_ms": 2500}),)
    return tuple(_late(random) for _ in range(random.randint(3, 8)))


def _late(random: "Random") -> Fault:
    """A request to write is done when its client has given it up, and aborted; or a broker hears of a transaction when that is over."""
    waits_ms = random.randint(700, 1600)
    if random.random() < 0.4:
        asker = random.choice(BROKERS)
        trigger = OnFrame(api_key=ADD_PARTITIONS_TO_TXN, is_response=True, client=asker, nth=random.randint(1, 20), moment="before")
        return Fault(kind="late-reply", target=AT_THE_TRIGGER, trigger=trigger, params={"is_given_up": False, "duration_ms": waits_ms + 200})
    trigger = OnFrame(api_key=PRODUCE, nth=random.randint(1, 60), moment="before")
    params: dict[str, Value] = {"overtaken_by": 1, "same_client": False, "after_ms": waits_ms, "duration_ms": 6000}
    return Fault(kind="overtaken-request", target=AT_THE_TRIGGER, trigger=trigger, params=params)


SCENARIO = Scenario(
    name="transaction_times_out",
    story="Transactions time out and are aborted, and what their producers write late is in no transaction.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=faults,
    settings=SETTINGS,
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
