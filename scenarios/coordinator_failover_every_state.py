"""Fails the transaction coordinator in every transaction state; checks that its successor resumes
and that every decision stands.

Right after a transaction-state record is committed, its coordinator is killed, stopped, paused or
isolated; two may fail in succession. The successor completes prepared transactions; ongoing ones
continue or time out, and responses to the former coordinator are ignored. In some runs a
coordinator returns while requests of its predecessor are still in flight: elections move its
partition to a broker that is killed as soon as it is leader.
Source: KIP-98, KAFKA-9777, KAFKA-10080, KAFKA-16352.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnEvent, Value
from kraftsim.lab.workloads.drawn_faults import Failures
from kraftsim.lab.workloads.orders import MUST_EXERCISE, SETTINGS, WORKLOAD, OrdersWorkload
from kraftsim.lab.workloads.phases import elect_now_and_then, under_faults
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

FAILURES = Failures(restart_ms=3000, duration_ms=(2000, 6000))
WORK_SECONDS = 12.0
BROKERS = ("broker-1", "broker-2", "broker-3")
WRITE_TXN_MARKERS = 27
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)


async def run(stage: ScenarioEnvironment) -> None:
    """Run the orders workload while coordinators fail."""
    orders = OrdersWorkload()
    await orders.open(stage)
    order_apps = (
        orders.run_orders(stage, number) for number in range(1, stage.workload("order_apps") + 1)
    )
    seconds = stage.workload("work_ms") / 1000
    # Where preferred elections end early, the new coordinators stay: no later coordinator completes
    # what they leave incomplete.
    elections = elect_now_and_then(
        stage,
        seconds=seconds * stage.random("elections").choice((0.55, 0.55, 1.0)),
        every_seconds=1.0,
    )
    await under_faults(stage, *order_apps, elections, seconds=seconds)
    await orders.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw two to five failures of a coordinator at a state; over sockets one failure of a broker
    at a random time.
    """
    if mode is not Mode.SIM:
        params: dict[str, Value] = {"power_loss": False, "after_ms": 500}
        return (
            Fault(
                kind="restart",
                target="broker-1",
                trigger=AtTime(at_ms=random.randint(300, 3000)),
                params=params,
            ),
        )
    if random.random() < 0.4:
        return _there_and_back(random)
    return tuple(_failure(random) for _ in range(random.randint(2, 5)))


def _there_and_back(random: "Random") -> tuple[Fault, ...]:
    """A broker is killed, so that another becomes coordinator, whose requests stay in flight; the
    first is killed again once it is back.
    """
    first = random.choice(BROKERS)
    quick: dict[str, Value] = {"power_loss": False, "after_ms": random.randint(20, 300)}
    held: dict[str, Value] = {
        "api_key": WRITE_TXN_MARKERS,
        "asked_by_server": True,
        "overtaken_by": 0,
        "duration_ms": random.randint(3000, 4300),
    }
    decided = OnEvent(
        kind="TransactionStateChanged",
        fields={"coordinator_epoch": 1, "state": random.choice(("PrepareAbort", "PrepareCommit"))},
    )
    return (
        Fault(
            kind="restart",
            target=first,
            trigger=AtTime(at_ms=random.randint(400, 1500)),
            params=quick,
        ),
        Fault(kind="overtaken-request", target=AT_THE_TRIGGER, trigger=decided, params=held),
        Fault(
            kind="restart",
            target=first,
            trigger=OnEvent(kind="TransactionsLoaded", host=first, nth=2),
            params=quick,
        ),
    )


def _failure(random: "Random") -> Fault:
    trigger = OnEvent(
        kind="TransactionStateChanged",
        nth=random.randint(1, 8),
        fields={"state": random.choice(STATES)},
    )
    if random.random() < 0.2:
        trigger = OnEvent(
            kind=random.choice(("TransactionsLoaded", "MarkerAppended")), nth=random.randint(1, 12)
        )
    return FAILURES.draw(random, AT_THE_TRIGGER, trigger)


SCENARIO = Scenario(
    name="coordinator_failover_every_state",
    summary="Transaction coordinators fail in every transaction state; their successors resume, "
    "and every decision stands.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings=SETTINGS,
    fault_space=transaction_fault_space(
        clients=("dealer-1", "dealer-2", "dealer-3"), fault_seconds=WORK_SECONDS
    ),
    limit_seconds=600.0,
    workload={**WORKLOAD, "order_apps": 3, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
