"""Pauses a transactional producer until another one takes its transactional id; checks that the
paused producer is fenced in every state.

The first producer is paused before, within, or at the end of a transaction, like a process in a
long garbage collection; the second initializes the transactional id, completes or aborts the
transaction of the first, and runs its own. The first resumes and continues. Brokers fail meanwhile.
Source: KIP-98, KIP-588, KIP-890.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnEvent, OnFrame
from kraftsim.lab.faults.fault_space import INIT_PRODUCER_ID
from kraftsim.lab.workloads.orders import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    AbortNeeded,
    OrderApp,
    OrdersWorkload,
    ProducerFailed,
)
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 10.0
POINTS = ("begun", "sent", "sent more")


async def run(stage: ScenarioEnvironment) -> None:
    """Pause one producer, let another initialize its id, and resume the first."""
    orders = OrdersWorkload(transaction_timeout_ms=60_000)
    await orders.open(stage)
    seconds = stage.workload("work_ms") / 1000
    rounds = [
        _round(stage, orders, number) for number in range(1, stage.workload("order_apps") + 1)
    ]
    await under_faults(stage, *rounds, seconds=seconds)
    await orders.audit(stage)


async def _round(stage: ScenarioEnvironment, orders: OrdersWorkload, number: int) -> None:
    first = orders.order_app(stage, f"first-{number}", f"deals-{number}")
    second = orders.order_app(stage, f"second-{number}", f"deals-{number}")
    point = stage.random(f"point-{number}").choice(POINTS)
    is_fenced = [False]
    await first.client_host.run(_pause(stage, orders, first, second, point, is_fenced))
    if not is_fenced[0]:
        raise ScenarioFailed(
            f"first-{number} was paused when it had {point}, another producer took its id, and "
            "its commit succeeded"
        )


async def _pause(
    stage: ScenarioEnvironment,
    orders: OrdersWorkload,
    first: OrderApp,
    second: OrderApp,
    point: str,
    is_fenced: list[bool],
) -> None:
    zombie = await first.restart_producer()
    try:
        await zombie.begin()
        await orders.send(stage, zombie, "a")
        await zombie.commit()
    except AbortNeeded:
        await zombie.abort()
    await zombie.begin()
    if point != "begun":
        await orders.send(stage, zombie, "b")
        await stage.sleep(0.2 if point == "sent" else 0.0)
    zombie.freeze()
    await second.client_host.run(_take_over(stage, orders, second))
    zombie.thaw()
    try:
        await orders.send(stage, zombie, "c")
        await zombie.commit()
    except AbortNeeded:
        try:
            await zombie.abort()
        except ProducerFailed:
            is_fenced[0] = True
    except ProducerFailed:
        is_fenced[0] = True
    await zombie.close()


async def _take_over(stage: ScenarioEnvironment, orders: OrdersWorkload, app: OrderApp) -> None:
    client = await app.restart_producer()
    for _ in range(stage.workload("transactions") // 4):
        try:
            await client.begin()
            await orders.send(stage, client, "d")
            await client.commit()
        except AbortNeeded:
            try:
                await client.abort()
            except ProducerFailed:
                break
    await client.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw up to three kills of brokers, in simulation at changes of a transaction's state."""
    if mode is not Mode.SIM:
        return tuple(
            _restart(random, random.choice(BROKERS), AtTime(at_ms=random.randint(100, 5000)))
            for _ in range(random.randint(0, 1))
        )
    if random.random() < 0.4:
        return _lonely(random)
    moments = (
        "TransactionStateChanged",
        "MarkerAppended",
        "ProducerFenced",
        "TransactionAbortForced",
    )
    return tuple(
        _restart(
            random, AT_THE_TRIGGER, OnEvent(kind=random.choice(moments), nth=random.randint(1, 12))
        )
        for _ in range(random.randint(0, 3))
    )


def _lonely(random: "Random") -> tuple[Fault, ...]:
    """When a producer is about to be fenced two brokers are paused, so that the ISR is the third
    alone: the fence cannot be written.
    """
    duration_ms = random.randint(6000, 9000)
    taken_over = OnFrame(
        api_key=INIT_PRODUCER_ID, client=f"second-{random.randint(1, WORKLOAD['order_apps'])}"
    )
    two = random.sample(BROKERS, 2)
    return tuple(
        Fault(kind="pause", target=each, trigger=taken_over, params={"duration_ms": duration_ms})
        for each in two
    )


def _restart(random: "Random", target: str, trigger: AtTime | OnEvent) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": False, "after_ms": random.randint(20, 3000)},
    )


SCENARIO = Scenario(
    name="zombie_fenced_by_epoch",
    summary="A producer is paused while another initializes its transactional id; when it "
    "resumes it is fenced, and nothing of it is committed.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings=SETTINGS,
    fault_space=transaction_fault_space(
        clients=("first-1", "first-2", "second-1", "second-2"), fault_seconds=WORK_SECONDS
    ),
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
