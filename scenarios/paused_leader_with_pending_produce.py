"""Pauses a partition leader with unanswered requests, so that later batches reach its successor
first; checks that they are retried in order.

Idempotent producers send a record to each partition now and then. A broker is paused for longer
than its session timeout; its partitions get other leaders, and while a producer waits for the old
one, a restarted broker makes it refresh its metadata. Its next batch then goes to the new leader
before the one in flight, and is rejected with OUT_OF_ORDER_SEQUENCE_NUMBER. The producer keeps its
sequence and waits until the earlier batch is settled; it neither retries at once again and again
nor bumps its epoch, because nothing is lost.
Source: KAFKA-5494 (several requests in flight), KIP-360;
org.apache.kafka.clients.producer.internals.{RecordAccumulator, TransactionManager}.
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
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 11.0


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while leaders are paused, heal, and read everything back."""
    await LEDGER.run(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw one broker to pause, and others to restart meanwhile; embedded mode cannot pause
    brokers.
    """
    still, *others = random.sample(BROKERS, len(BROKERS))
    at_ms = random.randint(1500, 4000)
    duration_ms = random.randint(4000, 6000)
    restarts = (
        _restart(random, broker, at_ms + random.randint(1300, 2600))
        for broker in others[: random.randint(1, 2)]
    )
    return (
        Fault(
            kind="pause",
            target=still,
            trigger=AtTime(at_ms=at_ms),
            params={"duration_ms": duration_ms},
        ),
        *restarts,
    )


def _restart(random: "Random", broker: str, at_ms: int) -> Fault:
    params = {"power_loss": False, "after_ms": random.choice((20, 200))}
    return Fault(kind="restart", target=broker, trigger=AtTime(at_ms=at_ms), params=params)


SCENARIO = Scenario(
    name="paused_leader_with_pending_produce",
    summary="A leader is paused with unanswered requests; batches that reach its successor out of "
    "order are retried in order, and nothing is lost.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings={
        **SETTINGS,
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
    },
    fault_space=replication_fault_space(fault_seconds=WORK_SECONDS),
    limit_seconds=600.0,
    workload={
        **WORKLOAD,
        "records_per_writer": 50,
        "pause_ms": 220,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
)
