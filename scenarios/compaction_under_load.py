"""Cleans compacted logs under load while brokers lose power; checks that the last acknowledged
record of every key remains.

Producers write the same few keys again and again, in small segments; every broker cleans its own
log, as leader or follower, as soon as a little of it is dirty. Power fails when segments are about
to be swapped, while files are renamed, or at any other time, and removes what was not flushed; or
brokers are killed. At the end a consumer finds for every key the last acknowledged record, or a
later one, on every replica.
Source: KIP-98, KIP-534; kafka.log.LogCleaner, LocalLog.replaceSegments.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    LivenessLost,
    Mode,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.lab.faults.fault import AtTime, Fault, FileClass, OnDisk, OnEvent, Trigger
from kraftsim.lab.faults.fault_space import (
    COMPACTED_FILES,
    COMPACTION_MOMENTS,
    SEGMENT_FILES,
    WRITER_APIS,
    Mix,
    cluster_fault_space,
)
from kraftsim.lab.workloads.phases import CALLS_SECONDS, replicas_settle, under_faults
from kraftsim.lab.workloads.replication_workload import SETTINGS
from kraftsim.lab.workloads.worn_sequences import producer_of

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC, PARTITIONS, REPLICAS = "states", 2, 3
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 10.0
KEYS = 6


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while brokers fail, then read the logs."""
    await stage.create_topic(TOPIC, PARTITIONS, REPLICAS)
    writers = [_write(stage, number) for number in _writers(stage)]
    await under_faults(stage, *writers, seconds=stage.workload("work_ms") / 1000)
    await _audit(stage)


async def _write(stage: ScenarioEnvironment, number: int) -> None:
    """Run one producer with its own keys, each written many times."""
    writer = producer_of(stage, f"writer-{number}")
    await writer.start()
    for index in range(stage.workload("records_per_writer")):
        value = b"turn %06d" % index + b"." * stage.workload("value_bytes")
        await writer.send(TOPIC, index % PARTITIONS, _key(number, index), value)
        await stage.sleep(stage.workload("pause_ms") / 1000)
    left = await writer.flush(CALLS_SECONDS)
    await writer.close()
    if left:
        raise LivenessLost(
            f"writer-{number} has {left} unacknowledged records {CALLS_SECONDS:g} s after it "
            "sent the last one"
        )


async def _audit(stage: ScenarioEnvironment) -> None:
    """Read everything once all replicas are in sync: every key that was written must be there."""
    await replicas_settle(stage, TOPIC, PARTITIONS)
    reader = stage.reader("reader-1")
    read = {record.key for record in await reader.read_all(TOPIC, range(PARTITIONS))}
    await reader.close()
    written = {
        _key(number, index)
        for number in _writers(stage)
        for index in range(stage.workload("records_per_writer"))
    }
    if read != written:
        raise ScenarioFailed(
            f"of {len(written)} keys {len(written - read)} are lost, and {len(read - written)} "
            "were never written"
        )


def _writers(stage: ScenarioEnvironment) -> range:
    return range(1, stage.workload("writers") + 1)


def _key(number: int, index: int) -> str:
    return f"{number}.{index % (KEYS * PARTITIONS)}"


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw up to four failures: repeated power losses of one broker, or kills of any.

    Kafka does not guarantee what two lose at once.
    """
    victim = random.choice(BROKERS)
    loses_power = random.random() < 0.6
    return tuple(
        _failure(random, mode, victim if loses_power else random.choice(BROKERS), loses_power)
        for _ in range(random.randint(1, 4))
    )


def _failure(random: "Random", mode: Mode, victim: str, loses_power: bool) -> Fault:
    """Fail at a random time, right after a segment swap, or within it, at a write, flush or rename
    of a file.
    """
    trigger: Trigger = AtTime(at_ms=random.randint(500, int(WORK_SECONDS * 1000)))
    choice = random.random()
    if mode is not Mode.SIM:
        pass  # over sockets events and disk operations cannot trigger faults
    elif choice < 0.4:
        operation = random.choice(("rename", "write", "flush"))
        trigger = OnDisk(
            operation=operation,
            file_class=FileClass.PARTITION_LOG,
            host=victim,
            nth=random.randint(1, 60),
            moment="after",
        )
    elif choice < 0.7:
        trigger = OnEvent(kind="SegmentsCleaned", host=victim, nth=random.randint(1, 20))
    return Fault(
        kind="restart",
        target=victim,
        trigger=trigger,
        params={"after_ms": random.randint(20, 3000), "power_loss": int(loses_power)},
    )


SCENARIO = Scenario(
    name="compaction_under_load",
    summary="Logs are compacted under load while brokers lose power; the last acknowledged "
    "record of every key remains.",
    must_exercise=(
        "acknowledged-records-on-replicas",
        "acknowledged-records-in-final-log",
        "partition-log-matching",
        "one-append-per-sequence",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    settings={
        **SETTINGS,
        "log.cleanup.policy": "compact",
        "log.segment.bytes": "1500",
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.min.cleanable.ratio": "0.01",
    },
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=(
            "writer-1",
            "writer-2",
        ),
        apis=WRITER_APIS,
        brokers_keep_records=True,
        brokers_may_flush=True,
        brokers_replicate=True,
        fault_seconds=WORK_SECONDS,
        files=(*SEGMENT_FILES, *COMPACTED_FILES),
        moments=COMPACTION_MOMENTS,
        mix=Mix.ON_TOP,
    ),
    limit_seconds=600.0,
    workload={
        "writers": 2,
        "records_per_writer": 150,
        "pause_ms": 50,
        "value_bytes": 60,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
)
