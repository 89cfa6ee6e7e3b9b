"""Isolates a leader at a segment roll, so that it truncates there and leads again; checks that
truncated batches are not taken for duplicates.

Two brokers hold both replicas of each partition, with min.insync.replicas=2. A leader that rolls a
segment, and takes a producer snapshot for it, is isolated from then on: the batch that caused the
roll is in its log only. The other broker becomes leader and rejects all writes, because the ISR is
too small. Then the first broker returns and truncates the batch; as soon as it is in sync again the
other one is killed, and it becomes leader. The producer retries the batch at a broker whose
producer state is that of its snapshot. If the snapshot contained the batch, the retry would be
acknowledged and lost.
Source: KAFKA-6683; KIP-98, KIP-101.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AtTime, Fault, OnEvent
from kraftsim.lab.faults.fault_space import SEGMENT_FILES, SNAPSHOT_OF_PRODUCERS_MOMENTS
from kraftsim.lab.workloads.replication_workload import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    ReplicationWorkload,
)
from kraftsim.lab.workloads.workload_spaces import replication_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

LEDGER = ReplicationWorkload(partitions=2, replicas=2)
BROKERS = (1, 2)
WORK_SECONDS = 12.0


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while leaders fail over, and read everything back."""
    await LEDGER.run(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw one to three leaders isolated at a roll, and kills of the leaders that add them to the
    ISR again; over sockets kills at times.
    """
    if mode is not Mode.SIM:
        return tuple(
            _kill(random, random.choice(BROKERS), AtTime(at_ms=random.randint(200, 8000)))
            for _ in range(2)
        )
    schedule = []
    for _ in range(random.randint(1, 3)):
        first, other = random.sample(BROKERS, 2)
        alone = OnEvent(
            kind="ProducerSnapshotTaken", host=f"broker-{first}", nth=random.randint(1, 12)
        )
        params = {"duration_ms": random.randint(2000, 4000)}
        schedule.append(
            Fault(kind="partition", target=f"broker-{first}", trigger=alone, params=params)
        )
        let_in = OnEvent(
            kind="IsrChanged",
            host=f"broker-{other}",
            nth=random.randint(1, 3),
            fields={"isr": f"{other},{first}"},
        )
        schedule.append(_kill(random, other, let_in))
    return tuple(schedule)


def _kill(random: "Random", broker: int, trigger: AtTime | OnEvent) -> Fault:
    params = {"power_loss": False, "after_ms": random.choice((50, 500, 2000))}
    return Fault(kind="restart", target=f"broker-{broker}", trigger=trigger, params=params)


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw the segment size, and how long batches are delayed in the network."""
    return {
        "log.segment.bytes": random.choice(("400", "800", "1500")),
        "replica.fetch.wait.max.ms": random.choice(("50", "500")),
    }


SCENARIO = Scenario(
    name="truncated_leader_reelected",
    summary="A leader is isolated at a segment roll, truncates its log there, and leads again; "
    "retried batches are appended again.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    draw_parameters=draw_parameters,
    brokers=2,
    settings={
        **SETTINGS,
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "300",
    },
    fault_space=replication_fault_space(
        brokers=2,
        files=SEGMENT_FILES,
        moments=SNAPSHOT_OF_PRODUCERS_MOMENTS,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=600.0,
    workload={**WORKLOAD, "records_per_writer": 160, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=2,
)
