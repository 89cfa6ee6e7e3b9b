"""Drops, delays and reorders Produce requests and responses; checks that each record is in the log
once, in order and at its acknowledged offset.

Three idempotent producers keep several batches in flight to each of a few partitions. Produce
responses are lost or late, requests are duplicated or reordered, connections break in the middle of
either, and brokers are killed. The same batch is retried again and again, alone or with later
batches, by a broker that still has the producer's state or rebuilds it from its log. Disks keep
everything.
Source: KIP-98, KIP-360, KAFKA-5494 (several requests in flight).
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
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnFrame
from kraftsim.lab.faults.fault_space import CLEAN_STOPS, WRITER_APIS, Mix, cluster_fault_space
from kraftsim.lab.workloads.drawn_faults import drawn_time, produce_mishap, produce_response
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.replication_workload import UNDER_ANY_CLOCK
from kraftsim.lab.workloads.worn_sequences import producer_of

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "ledger"
BROKERS = ("broker-1", "broker-2")
PARTITIONS = 4
WORK_SECONDS = 4.0
SETTLE_SECONDS = 60.0
WORKLOAD = {
    "writers": 3,
    "records_per_writer": 150,
    "pause_ms": 20,
    "work_ms": int(WORK_SECONDS * 1000),
}


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while responses are lost, heal, and read everything back; invariants are checked from
    the events.
    """
    await stage.create_topic(TOPIC, PARTITIONS)
    writers = [
        producer_of(stage, f"writer-{number}") for number in range(1, stage.workload("writers") + 1)
    ]
    work = (_write(stage, writer, number) for number, writer in enumerate(writers, 1))
    await under_faults(stage, *work, seconds=stage.workload("work_ms") / 1000)
    for writer in writers:
        await writer.close()
    reader = stage.reader("reader-1")
    read = await reader.read_all(TOPIC, range(PARTITIONS))
    await reader.close()
    sent = stage.workload("writers") * stage.workload("records_per_writer")
    if len(read) != sent:
        raise ScenarioFailed(f"{sent} records were sent, but the consumer read {len(read)}")


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw eight to twenty faults on Produce requests, and up to two kills of brokers; over sockets
    kills only.
    """
    if mode is not Mode.SIM:
        return tuple(
            _kill(random, random.choice(BROKERS), drawn_time(random, WORK_SECONDS, from_ms=100))
            for _ in range(random.randint(1, 2))
        )
    deaths = tuple(
        _kill(random, AT_THE_TRIGGER, produce_response(random)) for _ in range(random.randint(0, 3))
    )
    return (
        *deaths,
        *(produce_mishap(random, MISHAPS, (1, 150)) for _ in range(random.randint(8, 20))),
    )


MISHAPS = (
    ("lost-reply", True),
    ("lost-reply", True),
    ("duplicate-request", False),
    ("duplicate-request", False),
    ("overtaken-request", False),
    ("cut-connection", True),
    ("cut-connection", False),
)


def _kill(random: "Random", target: str, trigger: AtTime | OnFrame) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": False, "after_ms": random.randint(20, 800)},
    )


async def _write(stage: ScenarioEnvironment, writer: ProducerDriver, number: int) -> None:
    await writer.start()
    for index in range(stage.workload("records_per_writer")):
        await writer.send(
            TOPIC,
            index % PARTITIONS,
            f"{number}.{index}",
            f"line {index} of writer {number}".encode(),
        )
        await stage.sleep(stage.workload("pause_ms") / 1000)
    left = await writer.flush(SETTLE_SECONDS)
    if left:
        raise LivenessLost(
            f"writer-{number} has {left} unacknowledged records {SETTLE_SECONDS:g} s after it "
            "sent the last one"
        )


SCENARIO = Scenario(
    name="lost_produce_responses",
    summary="Produce responses are lost and producers retry; every record is in the log once, at "
    "its acknowledged offset.",
    must_exercise=(
        "one-append-per-sequence",
        "records-in-final-log-once",
        "acknowledged-records-in-final-log",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    brokers=2,
    settings={
        **UNDER_ANY_CLOCK,
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    },
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=2,
        clients=(
            "writer-1",
            "writer-2",
            "writer-3",
        ),
        apis=WRITER_APIS,
        brokers_keep_records=True,
        brokers_may_flush=True,
        fault_seconds=WORK_SECONDS,
        mix=Mix.ON_TOP,
        omits=CLEAN_STOPS,
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=1,
    fewest_brokers=2,
)
