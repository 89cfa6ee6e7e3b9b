"""Brokers reject oversized records with several batches in flight and lost responses; checks that
no other record is lost, duplicated or reordered.

Idempotent producers keep several batches in flight to each of a few partitions, one record per
batch. Some records exceed message.max.bytes: the batches after them have a sequence gap, and are
rejected as out of order. Only when all of them are settled may the producer bump its epoch; while
one of them may be in the log, it keeps its sequence. Responses are lost, connections break, also in
the middle of a frame. No broker ends, for one that is restarted twice has one batch per producer.
So the log must be what was sent, in order, without the oversized records.

Source: KIP-98, KIP-360 (why a producer may bump its epoch by itself), KAFKA-5494 (several requests
in flight).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    LivenessLost,
    Mode,
    ProducerDriver,
    ProducerSettings,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.lab.faults.fault import AtTime, Fault
from kraftsim.lab.faults.fault_space import ENDS_A_NODE, WRITER_APIS, Mix, cluster_fault_space
from kraftsim.lab.workloads.drawn_faults import produce_mishap
from kraftsim.lab.workloads.phases import CALLS_SECONDS, under_faults
from kraftsim.lab.workloads.replication_workload import UNDER_ANY_CLOCK
from kraftsim.lab.workloads.worn_sequences import producer_of

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "ledger"
BROKERS = ("broker-1", "broker-2")
PARTITIONS = 3
MISHAPS = (
    ("lost-reply", True),
    ("lost-reply", True),
    ("cut-connection", True),
    ("cut-connection", False),
)
LARGEST_BYTES = 500
TOO_LARGE = b"x" * (2 * LARGEST_BYTES)
WORK_SECONDS = 4.0
WORKLOAD = {
    "writers": 3,
    "records_per_writer": 120,
    "too_large_per_mille": 60,
    "pause_ms": 10,
    "work_ms": int(WORK_SECONDS * 1000),
}
SINGLY = ProducerSettings(linger_ms=0, batch_size_bytes=1, request_timeout_ms=3000)
"""Each record is its own batch, so that no other record is rejected with it."""


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while some records are rejected and responses are lost, and compare the log with the
    expected records.
    """
    await stage.create_topic(TOPIC, PARTITIONS)
    writers = [
        producer_of(stage, f"writer-{number}", SINGLY)
        for number in range(1, stage.workload("writers") + 1)
    ]
    for number, writer in enumerate(writers, 1):
        await writer.start()
        await _send(stage, writer, number, range(PARTITIONS), {})
    refused = [_drawn(stage, number) for number in range(1, len(writers) + 1)]
    work = (
        _write(stage, writer, number, refused[number - 1])
        for number, writer in enumerate(writers, 1)
    )
    await under_faults(stage, *work, seconds=stage.workload("work_ms") / 1000)
    for writer in writers:
        await writer.close()
    await _audit(stage, refused)


async def _write(
    stage: ScenarioEnvironment, writer: ProducerDriver, number: int, refused: Mapping[int, bytes]
) -> None:
    await _send(
        stage,
        writer,
        number,
        range(PARTITIONS, PARTITIONS + stage.workload("records_per_writer")),
        refused,
    )


async def _send(
    stage: ScenarioEnvironment,
    writer: ProducerDriver,
    number: int,
    indices: Sequence[int],
    refused: Mapping[int, bytes],
) -> None:
    """Send records, and wait until all are settled.

    The first ones are sent before all faults, so that each leader knows the producer.
    """
    for index in indices:
        await writer.send(
            TOPIC, index % PARTITIONS, f"{number}.{index}", refused.get(index, b"line %d" % index)
        )
        await stage.sleep(stage.workload("pause_ms") / 1000)
    left = await writer.flush(CALLS_SECONDS)
    if left:
        raise LivenessLost(
            f"writer-{number} has {left} unacknowledged records {CALLS_SECONDS:g} s after it "
            "sent the last one"
        )


def _drawn(stage: ScenarioEnvironment, number: int) -> Mapping[int, bytes]:
    """Draw which records of a writer are too large."""
    random = stage.random(f"records of writer-{number}")
    indices = range(PARTITIONS, PARTITIONS + stage.workload("records_per_writer"))
    return {
        index: TOO_LARGE
        for index in indices
        if random.randrange(1000) < stage.workload("too_large_per_mille")
    }


async def _audit(stage: ScenarioEnvironment, refused: Sequence[Mapping[int, bytes]]) -> None:
    """Read everything.

    Raises ScenarioFailed unless each partition has all records of each writer once and in order,
    without those too large.

    A client that batches several records loses the others in a batch with an oversized one: missing
    records are then not checked.
    """
    reader = stage.reader("reader-1")
    read = [
        (record.partition, *map(int, record.key.split(".")))
        for record in await reader.read_all(TOPIC, range(PARTITIONS))
    ]
    await reader.close()
    for number, too_large in enumerate(refused, 1):
        sent = [
            index
            for index in range(PARTITIONS + stage.workload("records_per_writer"))
            if index not in too_large
        ]
        for partition in range(PARTITIONS):
            found = [
                index for where, writer, index in read if (where, writer) == (partition, number)
            ]
            wanted = [index for index in sent if index % PARTITIONS == partition]
            if found != (wanted if stage.mode is not Mode.PROCESSES else sorted(set(found))):
                raise ScenarioFailed(
                    f"of writer-{number} partition {partition} has {found} instead of {wanted}"
                )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw five to fifteen lost responses and requests; over sockets paused brokers."""
    if mode is not Mode.SIM:
        at_ms = random.randint(200, int(WORK_SECONDS * 1000))
        return (
            Fault(
                kind="pause",
                target=random.choice(BROKERS),
                trigger=AtTime(at_ms=at_ms),
                params={"duration_ms": 800},
            ),
        )
    return tuple(produce_mishap(random, MISHAPS, (10, 250)) for _ in range(random.randint(5, 15)))


SCENARIO = Scenario(
    provoked_errors=(10,),  # MESSAGE_TOO_LARGE: the scenario sends such records
    name="record_too_large",
    summary="Brokers reject some records among many in flight, and responses are lost; all others "
    "are in the log once, in order.",
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
        "message.max.bytes": str(LARGEST_BYTES),
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
        fault_seconds=WORK_SECONDS,
        mix=Mix.ON_TOP,
        omits=ENDS_A_NODE,  # see above: the log must be what was sent
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=1,
    fewest_brokers=2,
)
