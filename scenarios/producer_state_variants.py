"""Sends the same records to a broker that caches five batches per producer and to one that caches
the latest; checks both for loss and duplicates.

The partitions are twins: one producer with up to five requests in flight writes each record to
both. Responses are lost, requests are duplicated, late, or reordered, connections break, and
sequences wrap. The broker that caches the latest batch is killed as well: it treats every batch
within its range as a duplicate, at whatever sequence it begins. The other broker would have one
batch per producer after a restart, reject four of five as out of order, and append their records
again; that is correct, but would make the comparison meaningless.

The broker with the latest batch may lack one kind of record only: if the first requests of a
producer are reordered, it appends a later batch first, because the producer is unknown, and treats
the earlier ones as duplicates. `acknowledged-records-in-final-log` distinguishes these from any
other loss (kraftsim/invariants/permitted_losses.py). The responses and costs of both brokers,
and where KIP-758 loses records that shipped brokers keep, are measured in
docs/producer-variants.md.
Source: KIP-98, KIP-758.
"""

from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    LivenessLost,
    Mode,
    ProducerSettings,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.lab.faults.fault import AtTime, Fault
from kraftsim.lab.faults.fault_space import ENDS_A_NODE, WRITER_APIS, Mix, cluster_fault_space
from kraftsim.lab.workloads.drawn_faults import produce_mishap
from kraftsim.lab.workloads.partition_administrator import PartitionAdministrator
from kraftsim.lab.workloads.phases import CALLS_SECONDS, under_faults
from kraftsim.lab.workloads.replication_workload import UNDER_ANY_CLOCK

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "twins"
TWINS = 2
FIVE_BATCHES, LATEST_BATCH = "broker-1", "broker-2"
WRAPS_SOON = 2**31 - 40
WORK_SECONDS = 4.0
WORKLOAD = {
    "writers": 3,
    "records_per_writer": 120,
    "pause_ms": 25,
    "work_ms": int(WORK_SECONDS * 1000),
}
MISHAPS = (
    ("lost-reply", True),
    ("duplicate-request", False),
    ("duplicate-request", False),
    ("overtaken-request", False),
    ("cut-connection", True),
)


async def run(stage: ScenarioEnvironment) -> None:
    """Write everything to both twins; the one with five batches has all records, the other one may
    lack first records of a producer.
    """
    await stage.create_topic(TOPIC, TWINS)
    ordered = await _twins(stage)
    writers = range(1, stage.workload("writers") + 1)
    await under_faults(
        stage,
        *(_write(stage, number) for number in writers),
        seconds=stage.workload("work_ms") / 1000,
    )
    reader = stage.reader("reader-1")
    twins = [
        sorted(record.key for record in await reader.read_all(TOPIC, [twin])) for twin in ordered
    ]
    await reader.close()
    sent = sorted(
        f"{number}.{index}"
        for number in writers
        for index in range(stage.workload("records_per_writer"))
    )
    complete, latest = twins
    missing = [
        first for number in writers for first in _missing_beginning(stage, number, set(latest))
    ]
    if complete != sent or sorted([*latest, *missing]) != sent:
        raise ScenarioFailed(
            f"of {len(sent)} records the twins have "
            f"{' and '.join(str(len(twin)) for twin in twins)}"
        )


async def _twins(stage: ScenarioEnvironment) -> list[int]:
    """Return the partition of the broker with five batches, and that of the other one: controllers
    place the first partition at either.
    """
    administrator = PartitionAdministrator(stage.client_host("administrator"))
    leaders = {
        f"broker-{leader}": twin for twin, leader in (await administrator.leaders(TOPIC)).items()
    }
    administrator.close()
    if set(leaders) != {FIVE_BATCHES, LATEST_BATCH}:
        raise ScenarioFailed(f"the twins are led by {', '.join(sorted(leaders))}")
    return [leaders[FIVE_BATCHES], leaders[LATEST_BATCH]]


def _missing_beginning(stage: ScenarioEnvironment, number: int, found: set[str]) -> list[str]:
    """Return the missing first records of a producer: none, unless its first requests were
    reordered.
    """
    keys = [f"{number}.{index}" for index in range(stage.workload("records_per_writer"))]
    return list(takewhile(lambda key: key not in found, keys))


async def _write(stage: ScenarioEnvironment, number: int) -> None:
    first_sequence = WRAPS_SOON - number if number % 2 else 0
    writer = stage.producer(f"writer-{number}", ProducerSettings(first_sequence=first_sequence))
    await writer.start()
    for index in range(stage.workload("records_per_writer")):
        for twin in range(TWINS):
            await writer.send(
                TOPIC, twin, f"{number}.{index}", f"record {index} of writer {number}".encode()
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
    """Draw six to sixteen faults on Produce, and up to two kills of the broker that caches the
    latest batch; over sockets kills only.
    """
    deaths = tuple(_kill(random) for _ in range(random.randint(0, 2)))
    if mode is not Mode.SIM:
        return deaths
    return (
        *deaths,
        *(produce_mishap(random, MISHAPS, (1, 250)) for _ in range(random.randint(6, 16))),
    )


def _kill(random: "Random") -> Fault:
    trigger = AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))
    return Fault(
        kind="restart",
        target=LATEST_BATCH,
        trigger=trigger,
        params={"power_loss": False, "after_ms": random.randint(20, 800)},
    )


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw the range before the latest batch that counts as duplicate; the smallest is more than
    five requests hold here.
    """
    return {
        "max.in.flight.sequence.number.per.connection": random.choice(
            ("500", "10000000", str(2**30))
        )
    }


SCENARIO = Scenario(
    name="producer_state_variants",
    summary="The same records go to a broker with five cached batches per producer and to one with "
    "the latest; losses of KIP-758 are reported.",
    must_exercise=(
        "one-append-per-sequence",
        "records-in-final-log-once",
        "acknowledged-records-in-final-log",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    draw_parameters=draw_parameters,
    brokers=2,
    settings={
        **UNDER_ANY_CLOCK,
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    },
    node_settings={
        FIVE_BATCHES: {"kraftsim.producer.state": "five-batches"},
        LATEST_BATCH: {"kraftsim.producer.state": "latest-batch"},
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
        omits=ENDS_A_NODE,  # with a broker that starts again the twins could not be compared
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=1,
    fewest_brokers=2,
)
