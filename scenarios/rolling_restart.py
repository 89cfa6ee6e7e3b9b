"""Restarts every broker with a controlled shutdown, one after the other, under idempotent load;
checks that no record is lost or duplicated.

A broker that stops requests a controlled shutdown from the controller, which moves its leaderships
to other in-sync replicas. Some brokers are slow to return, so that the next one stops while they
still catch up; one may be killed instead, because its shutdown took too long.
Source: KIP-631 (controlled shutdown by BrokerHeartbeat), KIP-98.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AtTime, Fault
from kraftsim.lab.workloads.replication_workload import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    ReplicationWorkload,
)
from kraftsim.lab.workloads.workload_spaces import replication_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

LEDGER = ReplicationWorkload(partitions=4)
BROKERS = ["broker-1", "broker-2", "broker-3"]
WORK_SECONDS = 10.0
APART_MS = 2800
"""The time between two shutdowns."""


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while the brokers are restarted, and read everything back."""
    await LEDGER.run(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw the order, when each broker stops, how long it is down, and after which time its
    shutdown is forced.
    """
    order = random.sample(BROKERS, len(BROKERS))
    return tuple(
        Fault(
            kind="stop",
            target=broker,
            trigger=AtTime(at_ms=random.randint(200, 1000) + number * APART_MS),
            params={
                "after_ms": random.randint(20, 2500),
                "kill_after_ms": random.choice((500, 10_000, 10_000)),
            },
        )
        for number, broker in enumerate(order)
    )


SCENARIO = Scenario(
    name="rolling_restart",
    summary="All brokers are restarted with a controlled shutdown, one after the other, under "
    "idempotent load; no record is lost or duplicated.",
    must_exercise=(*MUST_EXERCISE, "isr-joined-after-epoch-start"),
    run=run,
    faults=faults,
    settings=SETTINGS,
    fault_space=replication_fault_space(fault_seconds=WORK_SECONDS),
    limit_seconds=600.0,
    workload={**WORKLOAD, "pause_ms": 70, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
