"""Idempotent producers write to topics that were just created, with several batches in flight;
checks that every record is written once, and which ones are out of order (KAFKA-15591).

The leader of a new partition refuses the first batch, because it does not know the partition yet,
or because a fault answers NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION. Then the second
batch arrives, with a sequence that is not 0. Apache Kafka 2.5 to 4.4 accepts any first sequence of
an unknown producer, so that the first batch is out of order for ever. The producer here gives it
the first sequence of its next epoch (KIP-360): it is written, but behind those that were accepted.
A producer that retries it as it is loses it when its delivery time-out ends; librdkafka, the
producer of runs over sockets, counts it as written once the second one is: such a run violates
`acknowledged-records-on-replicas`, and rightly so.

In simulation the order is what released brokers do, and no failure: `FirstBatchesOvertaken` reports
it. No other order of the records is permitted. Half of the seeds run brokers with the rule of the
release after 4.4 (`kraftsim.unknown.producer=out-of-order-in-new-logs`, or `--release trunk`), in
which a log that never had a record begins with sequence 0: then all records must be in the order in
which they were sent.
Source: KAFKA-15591, KAFKA-14312, KAFKA-19880; KIP-360; ProducerAppendInfo.checkSequence.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    LivenessLost,
    Mode,
    ProducerSettings,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.events.runs import FirstBatchesOvertaken
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import BROKERS as BROKER_ROLE
from kraftsim.lab.faults.fault_space import CLIENTS, CONTROLLERS, CREATE_TOPICS, Api, FaultMoment
from kraftsim.lab.faults.kinds.request_faults import of_requests
from kraftsim.lab.workloads.drawn_faults import Failures, drawn_time, peers_of
from kraftsim.lab.workloads.partition_administrator import PartitionAdministrator
from kraftsim.lab.workloads.phases import CALLS_SECONDS, replicas_settle, under_faults
from kraftsim.lab.workloads.replication_workload import MUST_EXERCISE, SETTINGS
from kraftsim.lab.workloads.workload_spaces import replication_fault_space
from kraftsim.releases.release import release
from kraftsim.releases.traits import LOGS_BEGIN_WITH_SEQUENCE_ZERO

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

BROKERS = ("broker-1", "broker-2", "broker-3")
FAILURES = Failures(peers=peers_of(BROKERS), restart_ms=3000, stop_ms=2000)
WORK_SECONDS = 6.0
REPLICAS = 3
WRITERS, TOPICS_EACH = 3, 8
RULE = "kraftsim.unknown.producer"
AS_RELEASED, ZERO_FIRST = "as-released", "out-of-order-in-new-logs"
REFUSALS = ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION")


async def run(stage: ScenarioEnvironment) -> None:
    """Create topics and write to them at once, under faults; heal, and compare what is read."""
    writers = range(1, stage.workload("writers") + 1)
    await under_faults(
        stage,
        *(_write(stage, number) for number in writers),
        seconds=stage.workload("work_ms") / 1000,
    )
    reader = stage.reader("reader-1")
    for number in writers:
        for topic in _topics(stage, number):
            await replicas_settle(stage, topic, 1)
            read = [record.key for record in await reader.read_all(topic, [0])]
            overtaken_count = overtaken(_keys(stage), read)
            if overtaken_count is None:
                raise ScenarioFailed(f"{topic} has {', '.join(read)}")
            if overtaken_count and _begins_with_zero(stage):
                raise ScenarioFailed(
                    f"{topic} began with a sequence other than 0: {', '.join(read)}"
                )
            if overtaken_count:
                stage.emit(FirstBatchesOvertaken(topic=topic, records=overtaken_count))
    await reader.close()


def _begins_with_zero(stage: ScenarioEnvironment) -> bool:
    """Return whether a log that never had a record accepts sequence 0 only."""
    rule = stage.spec.settings.get(RULE, AS_RELEASED)
    of_release = release(stage.spec.release).has(LOGS_BEGIN_WITH_SEQUENCE_ZERO)
    return of_release if rule == AS_RELEASED else rule == ZERO_FIRST


def overtaken(sent: Sequence[str], read: Sequence[str]) -> int | None:
    """Return how many of the first records are behind later ones, each of them once and in order;
    None: records are missing, double, or in another order.
    """
    if not sent or not read:
        return 0 if list(sent) == list(read) else None
    begins_at = list(sent).index(read[0]) if read[0] in sent else 0
    for ends_at in range(begins_at, len(sent) + 1):
        if [*sent[begins_at:ends_at], *sent[:begins_at], *sent[ends_at:]] == list(read):
            return begins_at
    return None


async def _write(stage: ScenarioEnvironment, number: int) -> None:
    """Create one topic after the other, and write to each as soon as it exists."""
    random = stage.random(f"writer-{number}")
    administrator = PartitionAdministrator(stage.client_host(f"administrator-{number}"))
    writer = stage.producer(f"writer-{number}", ProducerSettings(linger_ms=0))
    await writer.start()
    for topic in _topics(stage, number):
        await administrator.make_topic(topic, 1, REPLICAS)
        for key in _keys(stage):
            await writer.send(topic, 0, key, b"line")
            await stage.sleep(random.uniform(0, 2) * stage.workload("pause_ms") / 1000)
        left = await writer.flush(CALLS_SECONDS)
        if left:
            raise LivenessLost(
                f"writer-{number} has {left} records of {topic} in flight after {CALLS_SECONDS:g} s"
            )
    administrator.close()
    await writer.close()


def _topics(stage: ScenarioEnvironment, number: int) -> list[str]:
    return [_topic(number, turn) for turn in range(1, stage.workload("topics_each") + 1)]


def _topic(number: int, turn: int) -> str:
    return f"fresh-{number}-{turn}"


def _keys(stage: ScenarioEnvironment) -> list[str]:
    return [str(index) for index in range(stage.workload("records"))]


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw two to five topics whose first Produce requests are refused, and in simulation up to two
    failures of brokers.
    """
    refusals = tuple(
        of_requests(
            f"Produce error={random.choice(REFUSALS)} times={random.randint(1, 2)} "
            f"topic={_topic(random.randint(1, WRITERS), random.randint(1, TOPICS_EACH))}"
        )
        for _ in range(random.randint(2, 5))
    )
    if mode is not Mode.SIM:
        return refusals
    failures = (
        FAILURES.draw(random, random.choice(BROKERS), drawn_time(random, WORK_SECONDS))
        for _ in range(random.randint(0, 2))
    )
    return (*refusals, *failures)


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw whether brokers accept any first sequence in a new log."""
    return {RULE: random.choice((AS_RELEASED, ZERO_FIRST))}


SCENARIO = Scenario(
    name="first_sequence_is_not_zero",
    provoked_errors=(45,),  # OUT_OF_ORDER_SEQUENCE_NUMBER: what it is about
    summary="Producers with several batches in flight write to topics just created; a refused "
    "first batch is overtaken in releases up to 4.4, and never with the rule after it.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    draw_parameters=draw_parameters,
    settings={**SETTINGS, "kraftsim.release": "4.4"},
    controllers_drawn=(1, 3),
    fault_space=replication_fault_space(
        controllers=3,
        fault_seconds=WORK_SECONDS,
        readers=tuple(f"administrator-{number}" for number in range(1, WRITERS + 1)),
        apis=(Api(CREATE_TOPICS, CLIENTS, BROKER_ROLE, WRITERS * TOPICS_EACH),),
        moments=(FaultMoment("TopicCreated", CONTROLLERS, WRITERS * TOPICS_EACH),),
    ),
    limit_seconds=600.0,
    workload={
        "writers": WRITERS,
        "topics_each": TOPICS_EACH,
        "records": 8,
        "pause_ms": 2,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
    since="3.0",
)
