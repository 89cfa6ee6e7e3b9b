"""Delays an EndTxn request until its retry has ended the transaction and the next one is open;
checks that it does not end the next transaction.

With transaction.version 2, which this cluster has, each end of a transaction bumps the epoch, and
the late request is rejected. Clients limited to version 1 cannot be protected: KAFKA-17754 is such
a case, where half of the next transaction is committed (`--release 3.9` reproduces it). Source:
KIP-890 part 2; KAFKA-17754; Jepsen's report on Bufstream 0.1.0.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, ProducerSettings, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnFrame, Value
from kraftsim.lab.workloads.orders import MUST_EXERCISE, SETTINGS, WORKLOAD, OrdersWorkload
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

END_TXN = 26
WORK_SECONDS = 12.0
SHORT_TIMEOUT = ProducerSettings(delivery_timeout_ms=20_000, request_timeout_ms=600)
"""A producer retries EndTxn soon."""


async def run(stage: ScenarioEnvironment) -> None:
    """Run the orders workload while EndTxn requests are delayed."""
    orders = OrdersWorkload(producer=SHORT_TIMEOUT, transaction_timeout_ms=30_000)
    await orders.open(stage)
    order_apps = (
        orders.run_orders(stage, number) for number in range(1, stage.workload("order_apps") + 1)
    )
    await under_faults(stage, *order_apps, seconds=stage.workload("work_ms") / 1000)
    await orders.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw EndTxn requests that arrive after their retries; over sockets a broker that is paused
    for longer than its clients wait.
    """
    if mode is not Mode.SIM:
        return (
            Fault(
                kind="pause",
                target="broker-1",
                trigger=AtTime(at_ms=random.randint(500, 3000)),
                params={"duration_ms": 1500},
            ),
        )
    return tuple(_late(random) for _ in range(random.randint(2, 5)))


def _late(random: "Random") -> Fault:
    params: dict[str, Value] = {
        "overtaken_by": 1,
        "same_client": True,
        "after_ms": random.choice((70, 90, 110, 130, 150)),
        "duration_ms": 6000,
    }
    return Fault(
        kind="overtaken-request",
        target=AT_THE_TRIGGER,
        trigger=OnFrame(api_key=END_TXN, nth=random.randint(1, 20), moment="before"),
        params=params,
    )


SCENARIO = Scenario(
    name="delayed_end_txn",
    summary=(
        "A delayed EndTxn request arrives when the next transaction is open, and does not end it."
    ),
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings={**SETTINGS, "kraftsim.release": "4.1"},
    fault_space=transaction_fault_space(
        clients=("dealer-1", "dealer-2"), fault_seconds=WORK_SECONDS
    ),
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
