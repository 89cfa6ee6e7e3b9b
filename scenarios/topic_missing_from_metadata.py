"""Returns stale metadata in which a topic is unknown; checks that producers wait for the topic and
continue with their sequences.

Three producers start before their topic exists, and receive UNKNOWN_TOPIC_OR_PARTITION. It is
created; connections break, so that they refresh their metadata, and receive the old response. A
producer that treated the topic as deleted would restart at sequence 0, and its new records would be
treated as duplicates of its old ones.
Source: KIP-98; librdkafka 1.9.0.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    LivenessLost,
    Mode,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnFrame
from kraftsim.lab.faults.fault_space import CLEAN_STOPS, WRITER_APIS, Mix, cluster_fault_space
from kraftsim.lab.workloads.phases import CALLS_SECONDS, under_faults
from kraftsim.lab.workloads.replication_workload import UNDER_ANY_CLOCK
from kraftsim.lab.workloads.worn_sequences import producer_of

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "ledger"
BROKERS = ("broker-1", "broker-2")
PARTITIONS = 4
PRODUCE = 0
LATE_SECONDS = 0.4
WORK_SECONDS = 4.0
OLDEST = 8
WORKLOAD = {
    "writers": 3,
    "records_per_writer": 60,
    "pause_ms": 50,
    "work_ms": int(WORK_SECONDS * 1000),
}


async def run(stage: ScenarioEnvironment) -> None:
    """Produce to a topic that is created late and reported as unknown now and then, and read
    everything back.
    """
    writers = range(1, stage.workload("writers") + 1)
    work = (_write(stage, number) for number in writers)
    await under_faults(stage, _create(stage), *work, seconds=stage.workload("work_ms") / 1000)
    reader = stage.reader("reader-1")
    read = await reader.read_all(TOPIC, range(PARTITIONS))
    await reader.close()
    sent = {
        f"{number}.{index}"
        for number in writers
        for index in range(stage.workload("records_per_writer"))
    }
    if len(read) != len(sent) or {record.key for record in read} != sent:
        raise ScenarioFailed(
            f"{len(sent)} records were sent, but the consumer read {len(read)}, "
            f"{len(sent & {each.key for each in read})} of them"
        )


async def _create(stage: ScenarioEnvironment) -> None:
    await stage.sleep(LATE_SECONDS)
    await stage.create_topic(TOPIC, PARTITIONS)


async def _write(stage: ScenarioEnvironment, number: int) -> None:
    writer = producer_of(stage, f"writer-{number}")
    await writer.start()
    for index in range(stage.workload("records_per_writer")):
        await writer.send(
            TOPIC,
            index % PARTITIONS,
            f"{number}.{index}",
            f"line {index} of writer {number}".encode(),
        )
        await stage.sleep(stage.workload("pause_ms") / 1000)
    left = await writer.flush(CALLS_SECONDS)
    await writer.close()
    if left:
        raise LivenessLost(
            f"writer-{number} has {left} unacknowledged records {CALLS_SECONDS:g} s after it "
            "sent the last one"
        )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw stale Metadata responses and broken connections; over sockets the latter only."""
    breaks = tuple(_break_connection(random) for _ in range(random.randint(2, 8)))
    return (
        breaks
        if mode is not Mode.SIM
        else (*breaks, *(_old_answer(random) for _ in range(random.randint(2, 4))))
    )


def _old_answer(random: "Random") -> Fault:
    params: dict[str, int | str | bool | None] = {
        "age": OLDEST,
        "times": random.randint(1, 3),
        "duration_ms": 3000,
    }
    return Fault(
        kind="stale-metadata",
        target=random.choice(BROKERS),
        trigger=AtTime(at_ms=random.randint(450, 2500)),
        params=params,
    )


def _break_connection(random: "Random") -> Fault:
    trigger = OnFrame(api_key=PRODUCE, is_response=True, nth=random.randint(1, 60), moment="before")
    return Fault(
        kind="cut-connection",
        target=AT_THE_TRIGGER,
        trigger=trigger,
        params={"after_bytes": random.choice((0, 5, 30))},
    )


SCENARIO = Scenario(
    name="topic_missing_from_metadata",
    summary=(
        "Brokers report a topic as unknown for a moment; producers continue with their sequences."
    ),
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
        "auto.create.topics.enable": "false",
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
