"""Kills and restarts brokers and the controller under load; checks that no producer id is returned
twice and no record is lost or duplicated.

Producers send numbered records with idempotence and acks=all; producer-id clients use up block
after block, so that the controller is always requested for new ones. In simulation the controller
also loses power just before or after a flush of its log, and right after it returned a block.
Brokers are only killed: with replication factor 1 and Kafka's default flush settings a broker that
loses power loses acknowledged records, which Kafka allows.

Source: KIP-730, KIP-98, KAFKA-10533.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    LivenessLost,
    Mode,
    ProducerDriver,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.lab.faults.fault import AtTime, Fault, FileClass, OnDisk, OnEvent, Trigger
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, WRITER_APIS, cluster_fault_space
from kraftsim.lab.workloads.phases import CALLS_SECONDS, under_faults
from kraftsim.lab.workloads.replication_workload import KEEPS_ANY_DATE
from kraftsim.lab.workloads.worn_sequences import producer_of

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "ledger"
PARTITIONS = 6
PAUSE_SECONDS = 0.05
WORK_SECONDS = 6.0
"""How long faults are injected; the clients take about as long without faults."""
WORKLOAD = {
    "writers": 4,
    "records_per_writer": 120,
    "requesters": 2,
    "ids_per_requester": 1200,
    "work_ms": int(WORK_SECONDS * 1000),
}
BROKERS = ("broker-1", "broker-2", "broker-3")
CONTROLLER = "controller-101"


async def run(stage: ScenarioEnvironment) -> None:
    """Run the workload under faults, heal, and check that the cluster recovers; invariants are
    checked from the events.
    """
    await stage.create_topic(TOPIC, PARTITIONS)
    writers = [
        producer_of(stage, f"writer-{number}") for number in range(1, stage.workload("writers") + 1)
    ]
    work = [_write(stage, writer, number) for number, writer in enumerate(writers, 1)]
    work += [_ask(stage, number) for number in range(1, stage.workload("requesters") + 1)]
    await under_faults(stage, *work, seconds=stage.workload("work_ms") / 1000)
    for writer in writers:
        await writer.close()
    reader = stage.reader("reader-1")
    read = await reader.read_all(TOPIC, range(PARTITIONS))
    await reader.close()
    sent, found = (
        len(writers) * stage.workload("records_per_writer"),
        len({record.key for record in read}),
    )
    if found < sent:
        raise ScenarioFailed(f"{sent} records were sent, but the consumer read {found} of them")


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw two to five restarts; in simulation at least one of them is a power loss of the
    controller around a flush or a response.
    """
    schedule = [_timed(random) for _ in range(random.randint(1, 3))]
    if mode is Mode.SIM:
        schedule += [_triggered(random) for _ in range(random.randint(1, 2))]
    return tuple(schedule)


def _timed(random: "Random") -> Fault:
    target = random.choice((*BROKERS, CONTROLLER))
    at_ms = random.randint(200, int(WORK_SECONDS * 1000))
    return _restart(target, AtTime(at_ms=at_ms), random, power_loss=False)


def _triggered(random: "Random") -> Fault:
    trigger = random.choice(
        (
            OnEvent(kind="ProducerIdBlockAllocated", host=CONTROLLER, nth=random.randint(1, 8)),
            OnDisk(
                operation="flush",
                file_class=FileClass.METADATA_LOG,
                host=CONTROLLER,
                nth=random.randint(1, 30),
                moment=random.choice(("before", "after")),
            ),
            OnDisk(
                operation="write",
                file_class=FileClass.METADATA_LOG,
                host=CONTROLLER,
                nth=random.randint(1, 30),
            ),
        )
    )
    return _restart(CONTROLLER, trigger, random, power_loss=True)


def _restart(target: str, trigger: Trigger, random: "Random", *, power_loss: bool) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": power_loss, "after_ms": random.randint(50, 1500)},
    )


async def _write(stage: ScenarioEnvironment, writer: ProducerDriver, number: int) -> None:
    await writer.start()
    for index in range(stage.workload("records_per_writer")):
        key = f"{number}-{index}"
        await writer.send(
            TOPIC, (number + index) % PARTITIONS, key, f"line {index} of writer {number}".encode()
        )
        await stage.sleep(PAUSE_SECONDS)
    left = await writer.flush(CALLS_SECONDS)
    if left:
        raise LivenessLost(
            f"writer-{number} has {left} unacknowledged records {CALLS_SECONDS:g} s after it "
            "sent the last one"
        )


async def _ask(stage: ScenarioEnvironment, number: int) -> None:
    client = stage.producer_id_client(f"asker-{number}")
    await client.ask(stage.workload("ids_per_requester"))
    await client.close()


SCENARIO = Scenario(
    name="producer_ids_survive_failover",
    summary="Brokers and the controller are killed and restarted under load; no producer id is "
    "returned twice, no record is lost or duplicated.",
    must_exercise=(
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "one-append-per-sequence",
        "acknowledged-records-in-final-log",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    settings={
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        **KEEPS_ANY_DATE,
    },
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=("writer-1", "writer-2", "writer-3", "writer-4", "asker-1", "asker-2"),
        apis=(*PRODUCER_ID_APIS, *WRITER_APIS),
        brokers_keep_records=True,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_brokers=1,
)
