"""Members of a share group acquire records and accept, release, reject and renew them while
brokers, coordinators and links fail; checks that what is done with is not delivered again, that
deliveries are counted, and that every record is delivered.

Two writers with acks=all fill a topic with three replicas, three workers share it. The leaders of
its partitions, the coordinator of the group and the coordinators of the share-partitions fail over
in any combination. Workers crash, leave, and pause longer than the lock of their records; locks are
short, so that others get these records while the first worker still believes that it has them. A
record that no worker acknowledges is archived after ten deliveries; so many are lost in no run.
Source: KIP-932, KIP-1206, KIP-1222; kafka.server.share.SharePartition,
org.apache.kafka.coordinator.share.ShareCoordinatorShard.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AtTime, Fault, OneOf
from kraftsim.lab.faults.fault_space import (
    SHARE_GROUP_APIS,
    SHARE_GROUP_MOMENTS,
    WRITER_APIS,
    cluster_fault_space,
)
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.replication_workload import MUST_EXERCISE, SETTINGS, ReplicationWorkload
from kraftsim.lab.workloads.share_app import ShareApp

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 10.0
WORKERS = ("worker-1", "worker-2", "worker-3")
WRITERS = ("writer-1", "writer-2")
NO_INTERVAL = "0"
"""The interval between two assignments counts on the wall clock, as in Apache Kafka: a coordinator
whose clock was an hour ahead assigns nothing for an hour.
"""
LEDGER = ReplicationWorkload(partitions=2)


async def run(stage: ScenarioEnvironment) -> None:
    """Write and share records under faults, heal, and wait until all are delivered."""
    app = ShareApp()
    await LEDGER.open(stage)
    await app.open(stage)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    numbers = range(1, stage.workload("writers") + 1)

    async def write_all() -> None:
        await stage.gather(*(LEDGER.write(stage, number) for number in numbers))
        await stage.sleep(max(0.0, over_at - stage.now_seconds()))
        await app.finish(
            stage,
            [
                f"{number}.{index}"
                for number in numbers
                for index in range(stage.workload("records_per_writer"))
            ],
        )

    await under_faults(
        stage,
        write_all(),
        *(
            app.work(stage, name, are_over=lambda: stage.now_seconds() >= over_at)
            for name in WORKERS[: stage.workload("workers")]
        ),
        seconds=seconds,
    )
    await LEDGER.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """All faults are random ones, but over sockets: there brokers end and start again."""
    if mode is Mode.SIM:
        return ()
    return tuple(
        Fault(
            kind="restart",
            target=random.choice(("broker-1", "broker-2", "broker-3")),
            trigger=AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000))),
            params={"power_loss": False, "after_ms": random.randint(20, 4000)},
        )
        for _ in range(random.randint(1, 3))
    )


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw a release, and how long records are locked."""
    return {
        "kraftsim.release": random.choice(("4.2", "4.3", "4.4", "4.4")),
        "group.share.record.lock.duration.ms": random.choice(("1000", "2000", "5000")),
    }


SCENARIO = Scenario(
    name="share_group_under_faults",
    summary="Members of a share group accept, release, reject and renew records while nodes fail: "
    "what is done with is not delivered again, deliveries are counted, and no record is missed.",
    must_exercise=(
        *MUST_EXERCISE,
        "finished-records-not-delivered",
        "released-deliveries-counted",
    ),
    run=run,
    faults=faults,
    has_own_faults=False,
    settings={
        **SETTINGS,
        "kraftsim.release": "4.4",
        "group.share.delivery.count.limit": "10",
        "group.share.record.lock.duration.ms": "2000",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.session.timeout.ms": "6000",
        "group.share.min.session.timeout.ms": "1000",
        "group.share.heartbeat.interval.ms": "1000",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.assignment.interval.ms": NO_INTERVAL,
    },
    draw_parameters=draw_parameters,
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=(*WRITERS, *WORKERS),
        may_answer_fatal=WORKERS,
        apis=(*WRITER_APIS, *SHARE_GROUP_APIS),
        brokers_keep_records=True,
        brokers_replicate=True,
        moments=SHARE_GROUP_MOMENTS,
        settings={
            "share.coordinator.snapshot.update.records.per.snapshot": OneOf(("0", "10", "500"))
        },
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={
        "writers": 2,
        "records_per_writer": 120,
        "pause_ms": 40,
        "workers": 3,
        "crashes": 10,
        "departures": 15,
        "pauses": 10,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
    since="4.2",
)
