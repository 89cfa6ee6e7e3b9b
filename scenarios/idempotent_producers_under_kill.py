"""Four producers write every line of a text while a broker and then the controller are killed;
checks that consumers read each line exactly once.

The text ships with Python: the help topics of `pydoc`. In process mode producers and consumers are
librdkafka clients. The other modes write a part of the text.

Source: KIP-98.
"""

from pydoc_data.topics import topics
from typing import TYPE_CHECKING

from kraftsim.clients.reader import ReadRecord
from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import AtTime, Fault
from kraftsim.lab.faults.fault_space import CLEAN_STOPS, WRITER_APIS, Mix, cluster_fault_space
from kraftsim.lab.workloads.phases import CALLS_SECONDS, under_faults
from kraftsim.lab.workloads.replication_workload import UNDER_ANY_CLOCK
from kraftsim.lab.workloads.worn_sequences import producer_of

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "lines"
PARTITIONS = 8
WRITERS = 4
READERS = 2
LINES_AT_A_TIME = 25
WRITING_SECONDS = 8.0
"""How long the producers take without faults: the kills happen within this time."""
KILLS = (("broker-2", 2000), ("controller-101", 5000))
DOWN_MS = 700
PART_OF_TEXT = 800
WORKLOAD = {"writers": WRITERS, "lines": PART_OF_TEXT, "work_ms": int(WRITING_SECONDS * 1000)}
"""`lines` of the text are written in all modes but process mode, where all of it would take too
long.
"""


def text(mode: Mode, lines_max: int = PART_OF_TEXT) -> list[str]:
    """Return the lines to write; the number of a line is its key."""
    lines = [line for _, text in sorted(topics.items()) for line in text.splitlines()]
    return lines if mode is Mode.PROCESSES else lines[:lines_max]


async def run(stage: ScenarioEnvironment) -> None:
    """Produce, kill, restart, read back and compare."""
    writers = stage.workload("writers")
    lines = text(stage.mode, stage.workload("lines")) if writers else []
    await stage.create_topic(TOPIC, PARTITIONS)
    await under_faults(
        stage,
        *(_write(stage, lines, number) for number in range(writers)),
        seconds=stage.workload("work_ms") / 1000,
    )
    read: list[ReadRecord] = []
    await stage.gather(*(_read(stage, number, read) for number in range(READERS)))
    _compare(lines, read)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Return two kills: always the same, so that every run gives the same picture."""
    return tuple(
        Fault(
            kind="restart",
            target=target,
            trigger=AtTime(at_ms=at_ms),
            params={"power_loss": False, "after_ms": DOWN_MS},
        )
        for target, at_ms in KILLS
    )


async def _write(stage: ScenarioEnvironment, lines: list[str], number: int) -> None:
    writer = producer_of(stage, f"writer-{number + 1}")
    await writer.start()
    own = range(number, len(lines), stage.workload("writers"))
    pause = stage.workload("work_ms") / 1000 * LINES_AT_A_TIME / max(len(own), 1)
    for count, index in enumerate(own, 1):
        await writer.send(TOPIC, index % PARTITIONS, str(index), lines[index].encode())
        if count % LINES_AT_A_TIME == 0:
            await stage.sleep(pause)
    left = await writer.flush(CALLS_SECONDS)
    await writer.close()
    if left:
        raise ScenarioFailed(
            f"writer-{number + 1} has {left} unacknowledged lines {CALLS_SECONDS:g} s after it "
            "sent the last one"
        )


async def _read(stage: ScenarioEnvironment, number: int, read: list[ReadRecord]) -> None:
    reader = stage.reader(f"reader-{number + 1}")
    read += await reader.read_all(TOPIC, range(number, PARTITIONS, READERS))
    await reader.close()


def _compare(lines: list[str], read: list[ReadRecord]) -> None:
    """Raise ScenarioFailed unless every line was read exactly once, unchanged."""
    times = [0] * len(lines)
    for record in read:
        index = int(record.key)
        times[index] += 1
        if record.value.decode() != lines[index]:
            raise ScenarioFailed(f"line {index} was corrupted")
    lost, doubled = times.count(0), sum(count > 1 for count in times)
    if lost or doubled:
        raise ScenarioFailed(f"of {len(lines)} lines {lost} are lost and {doubled} are duplicated")


SCENARIO = Scenario(
    name="idempotent_producers_under_kill",
    summary="Producers write a text while a broker and the controller are killed; consumers read "
    "every line exactly once.",
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
        **UNDER_ANY_CLOCK,
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    },
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=(
            "writer-1",
            "writer-2",
            "writer-3",
            "writer-4",
        ),
        apis=WRITER_APIS,
        brokers_keep_records=True,
        brokers_may_flush=True,
        fault_seconds=WRITING_SECONDS,
        mix=Mix.ON_TOP,
        omits=CLEAN_STOPS,
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_brokers=1,
)
