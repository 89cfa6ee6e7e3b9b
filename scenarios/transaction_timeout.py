"""Transactions exceed transaction.timeout.ms and are aborted; checks that late writes of their
producers are in no transaction.

Half of the apps are paused within a transaction until it has timed out, and continue as if nothing
had happened. Produce requests are late, too: they stay in the network until their clients have
timed them out and aborted. No partition may append them to a transaction that no coordinator will
end. Before 3.6 partitions did: `--release 3.5` reproduces KAFKA-14402 without injecting a bug.
Source: KIP-98, KIP-588, KIP-890 part 1.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, ProducerSettings, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnFrame, Value
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

PRODUCE, ADD_PARTITIONS_TO_TXN = 0, 24
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 12.0
HURRIED = ProducerSettings(delivery_timeout_ms=750, request_timeout_ms=700)
"""What is not acknowledged soon times out, and its transaction is aborted."""


async def run(stage: ScenarioEnvironment) -> None:
    """Run the orders workload with short client timeouts, and with transactions that exceed
    theirs.
    """
    hurried, slow = OrdersWorkload(producer=HURRIED), OrdersWorkload(transaction_timeout_ms=2000)
    await hurried.open(stage)
    order_apps = stage.workload("order_apps")
    work = [hurried.run_orders(stage, number) for number in range(1, order_apps + 1)]
    work += [_too_slow(stage, slow, number) for number in range(order_apps + 1, 2 * order_apps + 1)]
    await under_faults(stage, *work, seconds=stage.workload("work_ms") / 1000)
    await slow.audit(stage)


async def _too_slow(stage: ScenarioEnvironment, orders: OrdersWorkload, number: int) -> None:
    app = orders.order_app(stage, f"slow-{number}", f"slow-{number}")
    random = stage.random(f"slow-{number}")

    async def work() -> None:
        for _ in range(max(1, stage.workload("transactions") // 4)):
            await _go_on_late(stage, orders, app, random.uniform(2.5, 5.0))

    await app.client_host.run(work())


async def _go_on_late(
    stage: ScenarioEnvironment, orders: OrdersWorkload, app: OrderApp, seconds: float
) -> None:
    """Send, pause until the transaction has timed out, send more, and commit: that must fail."""
    client = await app.restart_producer()
    try:
        await client.begin()
        await orders.send(stage, client, "early", [0])
        await stage.sleep(0.3)
        client.freeze()
        await stage.sleep(seconds)
        client.thaw()
        await orders.send(stage, client, "late", [1, 2])
        await client.commit()
    except AbortNeeded:
        with suppress(AbortNeeded, ProducerFailed):
            await client.abort()
    except ProducerFailed:
        pass
    await client.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw requests that stay in the network for longer than their clients wait; over sockets a
    paused broker.
    """
    if mode is not Mode.SIM:
        return (
            Fault(
                kind="pause",
                target="broker-1",
                trigger=AtTime(at_ms=random.randint(500, 3000)),
                params={"duration_ms": 2500},
            ),
        )
    return tuple(_late(random) for _ in range(random.randint(3, 8)))


def _late(random: "Random") -> Fault:
    """A Produce request arrives after its client has timed it out and aborted; or
    AddPartitionsToTxn arrives after the transaction ended.
    """
    waits_ms = random.randint(700, 1600)
    if random.random() < 0.4:
        requester = random.choice(BROKERS)
        trigger = OnFrame(
            api_key=ADD_PARTITIONS_TO_TXN,
            is_response=True,
            client=requester,
            nth=random.randint(1, 20),
            moment="before",
        )
        return Fault(
            kind="late-reply",
            target=AT_THE_TRIGGER,
            trigger=trigger,
            params={"is_given_up": False, "duration_ms": waits_ms + 200},
        )
    trigger = OnFrame(api_key=PRODUCE, nth=random.randint(1, 60), moment="before")
    params: dict[str, Value] = {
        "overtaken_by": 1,
        "same_client": False,
        "after_ms": waits_ms,
        "duration_ms": 6000,
    }
    return Fault(kind="overtaken-request", target=AT_THE_TRIGGER, trigger=trigger, params=params)


SCENARIO = Scenario(
    name="transaction_timeout",
    summary="Transactions time out and are aborted; late writes of their producers are in no "
    "transaction.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings=SETTINGS,
    fault_space=transaction_fault_space(
        clients=("dealer-1", "dealer-2", "slow-3", "slow-4"), fault_seconds=WORK_SECONDS
    ),
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
