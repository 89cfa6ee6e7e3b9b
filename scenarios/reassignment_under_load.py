"""Partitions move between brokers and between log directories while an exactly-once application
runs and leaders fail; checks that each input record is in the output exactly once.

An administrator reassigns partitions of the input, the output, `__transaction_state` and
`__consumer_offsets` to other brokers of four, cancels some of the moves, moves replicas between the
two log directories of a broker, throttles the replication, and elects preferred leaders. Brokers
are killed and isolated right after a reassignment begins, when a new replica joins the ISR, when
the old ones leave, and while a future replica replaces the current one.

A reassignment that is acknowledged and not followed by another one is completed in the end.
Source: KIP-455, KIP-113, KIP-858, KIP-73, KIP-966; KAFKA-20961, KAFKA-15608;
org.apache.kafka.controller.{PartitionReassignmentReplicas, PartitionChangeBuilder}.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    Mode,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
    within,
)
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnEvent, Value
from kraftsim.lab.faults.fault_space import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    CLIENTS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    Api,
    FaultMoment,
)
from kraftsim.lab.faults.fault_space import BROKERS as BROKER_ROLE
from kraftsim.lab.workloads.drawn_faults import Failures, drawn_time, peers_of
from kraftsim.lab.workloads.orders import MUST_EXERCISE as TRANSACTIONS_MUST_EXERCISE
from kraftsim.lab.workloads.partition_administrator import PartitionAdministrator, Reassigned
from kraftsim.lab.workloads.phases import elect_now_and_then, replicas_settle, under_faults
from kraftsim.lab.workloads.replica_reads import read_through_each_replica
from kraftsim.lab.workloads.transform_app import (
    MUST_EXERCISE,
    OFFSETS_TOPIC,
    SETTINGS,
    WORKLOAD,
    TransformApp,
    Variant,
)
from kraftsim.lab.workloads.workload_spaces import administration_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

STATE_TOPIC = "__transaction_state"
COORDINATED_PARTITIONS = 3
REPLICAS = 3
BROKERS = ("broker-1", "broker-2", "broker-3", "broker-4")
RELEASE = "4.2"
"""In 4.3 and 4.4 a reassignment that is replaced by one without its new replica is not completed
before that replica is in sync: it stays an adding one, is a removing one as well, and KAFKA-19975
waits for all adding ones. So does Apache Kafka 4.4.0, while 4.2.2 completes it at once
(tests/apache_kafka/replaced_reassignments.py; docs/replayed-bugs.md).
"""
DIRECTORIES = ("/data", "/data/second")
FAILURES = Failures(peers=peers_of(BROKERS))
WORK_SECONDS = 10.0
ELECTION_SECONDS = 2.0
CHANGE_SECONDS = 0.25
CANCELLED_SHARE = 0.2
MOVED_SHARE = 0.4
THROTTLED_SHARE = 0.1
COMPLETED_SECONDS = 60.0
RATE_BYTES = "20000"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
MOMENTS: tuple[tuple[str, int, dict[str, Value]], ...] = (
    ("PartitionChanged", 60, {}),
    ("IsrChangeAsked", 30, {}),
    ("IsrChanged", 30, {}),
    ("LeaderElected", 60, {}),
    ("LeaderFollowed", 100, {}),
    ("ReplicaMoveBegan", 10, {}),
    ("ReplicaMoved", 10, {}),
    ("LogRecovered", 60, {}),
    ("BatchReplicated", 300, {}),
    ("MarkerAppended", 60, {}),
)
"""Events right after which a node fails, and their approximate number per run."""

Place = tuple[str, int]
"""A topic and a partition."""


async def run(stage: ScenarioEnvironment) -> None:
    """Run the app while its partitions move, heal, and check output and replicas."""
    app = TransformApp(
        variant=stage.random("variant").choice((Variant.PER_THREAD, Variant.PER_TASK))
    )
    await app.open(stage)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    targets: dict[Place, tuple[int, ...] | None] = {}
    await under_faults(
        stage,
        app.run(stage, until=lambda: stage.now_seconds() >= over_at),
        _reassign(stage, app, over_at, targets),
        elect_now_and_then(stage, seconds=seconds, every_seconds=ELECTION_SECONDS),
        seconds=seconds,
    )
    await _complete(stage, targets)
    for topic in (app.input_topic, app.output_topic):
        await replicas_settle(stage, topic, app.partitions)
    await app.audit(stage)
    await read_through_each_replica(stage, app.output_topic, app.partitions, read_committed=True)


async def _reassign(
    stage: ScenarioEnvironment,
    app: TransformApp,
    over_at: float,
    targets: dict[Place, tuple[int, ...] | None],
) -> None:
    """Move partitions and replicas until the time is over; `targets` gets the last acknowledged
    replicas of each partition, None where they are in doubt.
    """
    administrator = PartitionAdministrator(stage.client_host("administrator"))
    random = stage.random("administrator")
    topics = {
        app.input_topic: app.partitions,
        app.output_topic: app.partitions,
        STATE_TOPIC: COORDINATED_PARTITIONS,
        OFFSETS_TOPIC: COORDINATED_PARTITIONS,
    }
    await administrator.configure_brokers(dict.fromkeys(RATES, RATE_BYTES))
    while stage.now_seconds() < over_at and stage.workload("moves"):
        await stage.sleep(random.uniform(0, 2 * CHANGE_SECONDS))
        topic = random.choice(list(topics))
        partition = random.randrange(topics[topic])
        choice = random.random()
        if choice < MOVED_SHARE:
            on = await administrator.replicas(topic, partition)
            for broker_id in on:
                await administrator.move_replica(
                    broker_id, topic, partition, random.choice(DIRECTORIES)
                )
        elif choice < MOVED_SHARE + THROTTLED_SHARE:
            await _throttle(administrator, random, app)
        else:
            await _move(stage, administrator, random, (topic, partition), targets)
    for topic in (app.input_topic, app.output_topic):
        await administrator.configure(topic, dict.fromkeys(THROTTLES))
    administrator.close()


async def _throttle(
    administrator: PartitionAdministrator, random: "Random", app: TransformApp
) -> None:
    """Throttle the replicas of a topic, or no longer."""
    value = random.choice(("*", None))
    topic = random.choice((app.input_topic, app.output_topic))
    await administrator.configure(topic, dict.fromkeys(THROTTLES, value))


async def _move(
    stage: ScenarioEnvironment,
    administrator: PartitionAdministrator,
    random: "Random",
    place: Place,
    targets: dict[Place, tuple[int, ...] | None],
) -> None:
    """Reassign a partition to some brokers, in any order; or cancel that soon after."""
    topic, partition = place
    on = tuple(random.sample(range(1, stage.spec.brokers + 1), REPLICAS))
    _note(targets, place, on, await administrator.reassign(topic, {partition: on}))
    if random.random() < CANCELLED_SHARE:
        await stage.sleep(random.uniform(0, CHANGE_SECONDS))
        result = (await administrator.reassign(topic, {partition: None}))[partition]
        if result is not Reassigned.REFUSED:
            targets[place] = None


def _note(
    targets: dict[Place, tuple[int, ...] | None],
    place: Place,
    on: tuple[int, ...],
    results: Mapping[int, Reassigned],
) -> None:
    """Note what a request asked for. One without an answer may be carried out at any time: from
    then on its partition is in doubt.
    """
    result = results[place[1]]
    if result is Reassigned.IN_DOUBT:
        targets[place] = None
    elif result is Reassigned.DONE and targets.get(place, ()) is not None:
        targets[place] = on


async def _complete(
    stage: ScenarioEnvironment, targets: Mapping[Place, tuple[int, ...] | None]
) -> None:
    """Wait until no reassignment is in progress.

    Raises ScenarioFailed if one that was acknowledged has another result.
    """
    administrator = PartitionAdministrator(stage.client_host("looker"))
    await within(
        stage, "reassignments are completed", administrator.until_reassigned(), COMPLETED_SECONDS
    )
    for (topic, partition), on in targets.items():
        found: Sequence[int] = await administrator.replicas(topic, partition)
        if on is not None and tuple(found) != on:
            raise ScenarioFailed(
                f"{topic}-{partition} is on {list(found)}, and its last reassignment to {list(on)} "
                "was acknowledged"
            )
    administrator.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw three to eight failures of brokers; over sockets restarts at random times."""
    if mode is not Mode.SIM:
        return tuple(
            FAILURES.draw(
                random, random.choice(BROKERS), drawn_time(random, WORK_SECONDS), ("restart",)
            )
            for _ in range(random.randint(1, 3))
        )
    return tuple(_drawn(random) for _ in range(random.randint(3, 8)))


def _drawn(random: "Random") -> Fault:
    if random.random() < 0.6:
        kind, times, fields = random.choice(MOMENTS)
        trigger = OnEvent(kind=kind, nth=random.randint(1, times), fields=fields)
        return FAILURES.draw(random, random.choice((AT_THE_TRIGGER, *BROKERS)), trigger)
    return FAILURES.draw(random, random.choice(BROKERS), drawn_time(random, WORK_SECONDS))


SCENARIO = Scenario(
    name="reassignment_under_load",
    summary="Partitions move between brokers and log directories while an app copies a topic in "
    "transactions and leaders fail; every line is in the output exactly once.",
    must_exercise=(
        *MUST_EXERCISE,
        *(name for name in TRANSACTIONS_MUST_EXERCISE if name not in MUST_EXERCISE),
        "acknowledged-records-on-replicas",
        "partition-leader-completeness",
        "replicas-equal",
    ),
    run=run,
    faults=faults,
    settings={
        **SETTINGS,
        "kraftsim.release": RELEASE,
        "log.dirs": ",".join(DIRECTORIES),
    },
    controllers_drawn=(1, 3),
    brokers=4,
    fault_space=administration_fault_space(
        brokers=4,
        clients=("writer-1", "writer-2", "copier-1", "copier-2", "copier-3"),
        apis=(
            Api(ALTER_PARTITION_REASSIGNMENTS, CLIENTS, BROKER_ROLE, 20),
            Api(ALTER_REPLICA_LOG_DIRS, CLIENTS, BROKER_ROLE, 10),
            Api(INCREMENTAL_ALTER_CONFIGS, CLIENTS, BROKER_ROLE, 8),
            Api(ELECT_LEADERS, CLIENTS, BROKER_ROLE, 4),
        ),
        moments=(
            FaultMoment("ReplicaMoveBegan", BROKER_ROLE, 10),
            FaultMoment("ReplicaMoved", BROKER_ROLE, 10),
        ),
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={
        **WORKLOAD,
        "crashes": 20,
        "pauses": 3,
        "moves": 1,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=4,
    since="3.9",
)
