"""One of three replicas loses its disk under load and replicates everything again; checks that no
acknowledged record is lost or duplicated.

The broker, a leader or follower, is killed right after an append, a replicated batch or an advance
of the high watermark, and restarted with an empty disk. The other replicas have what was
acknowledged, as long as they keep their disks. Produce responses are lost meanwhile. Over sockets
no disk is lost.
Source: KIP-98, KIP-853 (directory ids), KIP-966.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AtTime, Fault, OnEvent, Trigger
from kraftsim.lab.faults.fault_space import Mix
from kraftsim.lab.workloads.drawn_faults import lost_produce_response
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
WORK_SECONDS = 8.0
MOMENTS = (
    ("BatchAppended", 60),
    ("BatchReplicated", 120),
    ("PartitionHighWatermarkMoved", 120),
    ("LeaderElected", 2),
)


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while a disk is lost, and read everything back."""
    await LEDGER.run(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw the disk loss, at a random time or at an event, and up to four lost responses."""
    victim = random.choice(BROKERS)
    trigger: Trigger = AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))
    if random.random() < 0.6:
        kind, times_max = random.choice(MOMENTS)
        trigger = OnEvent(kind=kind, host=victim, nth=random.randint(1, times_max))
    loss = Fault(
        kind="lost-disk",
        target=victim,
        trigger=trigger,
        params={"after_ms": random.randint(20, 5000)},
    )
    return (loss, *(lost_produce_response(random) for _ in range(random.randint(0, 4))))


SCENARIO = Scenario(
    name="replica_disk_loss",
    summary="One of three replicas loses its disk and replicates everything again; no acknowledged "
    "record is lost or duplicated.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings=SETTINGS,
    fault_space=replication_fault_space(mix=Mix.APART, fault_seconds=WORK_SECONDS),
    limit_seconds=600.0,
    workload={**WORKLOAD, "pause_ms": 60, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
