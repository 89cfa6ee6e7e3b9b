"""Kills a broker at segment rolls and log writes; checks that its producer state survives: no batch
is appended twice or lost.

Segments are small, so that producer snapshots are taken all the time; in simulation producers start
shortly before sequence 2^31-1 and wrap. Produce responses are lost, and the same batches are
retried at a broker that has just loaded its snapshots and its log. It loses power only in runs in
which it flushes every batch.

One request is in flight at a time, because a snapshot has one batch per producer: of five batches
whose responses are lost, a broker that is restarted twice rejects four as out of order, and the
producer appends them again. Apache Kafka does so as well, and it violates no guarantee.
Source: KIP-98, KAFKA-5435, KAFKA-6683, KAFKA-7692.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    LivenessLost,
    Mode,
    ProducerSettings,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    AtTime,
    Fault,
    FileClass,
    OnDisk,
    OnFrame,
    Trigger,
)
from kraftsim.lab.faults.fault_space import (
    SEGMENT_FILES,
    SNAPSHOT_OF_PRODUCERS_MOMENTS,
    WRITER_APIS,
    Mix,
    cluster_fault_space,
)
from kraftsim.lab.workloads.phases import CALLS_SECONDS, under_faults
from kraftsim.lab.workloads.replication_workload import UNDER_ANY_CLOCK

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "ledger"
PARTITIONS = 2
PRODUCE = 0
WRITERS = 3
BEFORE_THE_END = 2**31 - 30
WORK_SECONDS = 5.0
WORKLOAD = {
    "writers": WRITERS,
    "bursts_per_writer": 60,
    "records_per_burst": 5,
    "pause_ms": 60,
    "work_ms": int(WORK_SECONDS * 1000),
}


async def run(stage: ScenarioEnvironment) -> None:
    """Produce in bursts while the broker is killed again and again, and read everything back."""
    await stage.create_topic(TOPIC, PARTITIONS)
    writers = range(1, stage.workload("writers") + 1)
    await under_faults(
        stage,
        *(_write(stage, number) for number in writers),
        seconds=stage.workload("work_ms") / 1000,
    )
    reader = stage.reader("reader-1")
    read = await reader.read_all(TOPIC, range(PARTITIONS))
    await reader.close()
    sent = len(writers) * stage.workload("bursts_per_writer") * stage.workload("records_per_burst")
    if len(read) != sent:
        raise ScenarioFailed(f"{sent} records were sent, but the consumer read {len(read)}")


async def _write(stage: ScenarioEnvironment, number: int) -> None:
    """Send several records at once: a batch that wraps has some before the last sequence and some
    after it.
    """
    writer = stage.producer(
        f"writer-{number}",
        ProducerSettings(
            first_sequence=BEFORE_THE_END - number, max_in_flight_requests_per_connection=1
        ),
    )
    await writer.start()
    for burst in range(stage.workload("bursts_per_writer")):
        for index in range(stage.workload("records_per_burst")):
            key = f"{number}.{burst}.{index}"
            await writer.send(
                TOPIC,
                burst % PARTITIONS,
                key,
                f"record {index} of burst {burst} of writer {number}".encode(),
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
    """Draw one to four kills and up to ten lost responses; over sockets kills at random times
    only.
    """
    if mode is not Mode.SIM:
        return tuple(_kill(random, _time(random)) for _ in range(random.randint(1, 2)))
    deaths = tuple(
        _kill(random, random.choice((_time, _write_of_log, _write_of_log, _answer))(random))
        for _ in range(random.randint(1, 4))
    )
    return (*deaths, *(_lost_answer(random) for _ in range(random.randint(2, 10))))


def _kill(random: "Random", trigger: Trigger) -> Fault:
    return Fault(
        kind="restart",
        target="broker-1",
        trigger=trigger,
        params={"power_loss": False, "after_ms": random.randint(20, 500)},
    )


def _time(random: "Random") -> Trigger:
    return AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))


def _write_of_log(random: "Random") -> Trigger:
    moment = random.choice(("before", "after"))
    return OnDisk(
        operation="write",
        file_class=FileClass.PARTITION_LOG,
        host="broker-1",
        nth=random.randint(1, 150),
        moment=moment,
    )


def _answer(random: "Random") -> Trigger:
    return OnFrame(api_key=PRODUCE, is_response=True, nth=random.randint(1, 120), moment="before")


def _lost_answer(random: "Random") -> Fault:
    return Fault(
        kind=random.choice(("lost-reply", "cut-connection")),
        target=AT_THE_TRIGGER,
        trigger=_answer(random),
    )


SCENARIO = Scenario(
    name="producer_state_recovery",
    summary="A broker is killed at every segment roll; retries of its producers are still "
    "recognised as duplicates, also where sequences wrap.",
    must_exercise=(
        "one-append-per-sequence",
        "producer-snapshot-below-its-offset",
        "records-in-final-log-once",
        "acknowledged-records-in-final-log",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    brokers=1,
    settings={
        **UNDER_ANY_CLOCK,
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "300",
        "log.segment.bytes": "1200",
    },
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=1,
        clients=(
            "writer-1",
            "writer-2",
            "writer-3",
        ),
        apis=WRITER_APIS,
        brokers_keep_records=True,
        brokers_may_flush=True,
        fault_seconds=WORK_SECONDS,
        files=SEGMENT_FILES,
        moments=SNAPSHOT_OF_PRODUCERS_MOMENTS,
        mix=Mix.ON_TOP,
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=1,
    fewest_brokers=1,
)
