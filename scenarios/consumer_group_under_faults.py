"""Members of a consumer group (KIP-848) join, leave, crash and change their subscriptions while
brokers, coordinators and links fail; checks who owns what, and that each record is copied once.

Four members copy a topic in transactions and commit their offsets with member epochs. Some speak
the classic protocol, and change to the other one when they restart, and back: the group is migrated
online, in both directions. Some are static, and leave for a while (epoch -2). Subscriptions change
between names and a regular expression, and leave the input topic out for a while. Members pause
longer than their session, so that they come back fenced. In the end the members subscribe to the
input again, and the assignment must settle: each partition has one owner, which then gets the last
records.
Source: KIP-848, KIP-1082, KIP-1251 (4.3), KIP-447;
org.apache.kafka.coordinator.group.GroupMetadataManager.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftsim.clients.rules_member_steps import GroupProtocol, MemberSettings
from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, within
from kraftsim.lab.faults.fault import AtTime, Fault, OneOf
from kraftsim.lab.faults.fault_space import (
    CONSUMER_GROUP_APIS,
    CONSUMER_GROUP_MOMENTS,
    TRANSACTION_APIS,
    WRITER_APIS,
    cluster_fault_space,
)
from kraftsim.lab.workloads.phases import CALLS_SECONDS, under_faults
from kraftsim.lab.workloads.transform_app import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    Point,
    TransformApp,
    Variant,
)

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 12.0
SIDE_TOPIC = "copy-side"
EXPRESSION = "copy-(in|side)"
SESSION_MS = 6000
CHANGE_SECONDS = (0.5, 3.0)
DESCRIBE_SECONDS = 0.2
SILENT_SECONDS = 40.0

COPIERS = ("copier-1", "copier-2", "copier-3", "copier-4")


async def run(stage: ScenarioEnvironment) -> None:
    """Run the members under faults, heal, wait until the assignment settles, and check the copy."""
    random = stage.random("members")
    app = TransformApp(
        variant=random.choice((Variant.PER_THREAD, Variant.PER_TASK)),
        assignor=random.choice(("range", "cooperative-sticky")),
        session_timeout_ms=SESSION_MS,
        departures=stage.workload("departures"),
    )
    numbers = range(1, stage.workload("copiers") + 1)
    habits = {
        number: random.choice(("consumer", "consumer", "classic", "moves")) for number in numbers
    }
    habits[1] = "consumer"  # in the end the group is a consumer group
    static = {number for number in numbers if random.random() < 0.3}

    def group_of(number: int, usual: MemberSettings, incarnation: int) -> MemberSettings:
        speaks_classic = habits[number] == "classic" or (
            habits[number] == "moves" and incarnation % 2 == 1
        )
        return replace(
            usual,
            group_protocol=GroupProtocol.CLASSIC if speaks_classic else GroupProtocol.CONSUMER,
            group_instance_id=f"instance-{number}" if number in static else None,
            returns_soon=True,
        )

    app.group_of = group_of
    await app.open(stage)
    await stage.create_topic(SIDE_TOPIC, 2, app.replicas)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    is_settled = asyncio.Event()
    app.is_awaited = lambda: not is_settled.is_set()
    app.last_may_be_written = asyncio.Event()  # else classic members alone may copy everything
    may_write = app.last_may_be_written

    async def settle() -> None:
        await _change_subscriptions(stage, app, until=over_at)
        if numbers:
            await _settle(stage, app)
        may_write.set()
        if len(numbers) > 1:
            # A member that says nothing any more loses its partitions to the others.
            app.transform_workers[max(numbers)].pause_at(Point.POLLED, SILENT_SECONDS)
            await stage.sleep(SESSION_MS / 1000 + 2.0)
            await _settle(stage, app, SILENT_SECONDS / 2)
        is_settled.set()

    await under_faults(
        stage,
        app.run(stage, until=lambda: stage.now_seconds() >= over_at),
        settle(),
        seconds=seconds,
    )
    await app.audit(stage)


async def _change_subscriptions(
    stage: ScenarioEnvironment, app: TransformApp, *, until: float
) -> None:
    """Change the subscription of one member after the other; in the end all read the input."""
    random = stage.random("subscriptions")
    choices: tuple[tuple[tuple[str, ...], str | None], ...] = (
        ((app.input_topic,), None),
        ((app.input_topic, SIDE_TOPIC), None),
        ((SIDE_TOPIC,), None),
        ((), EXPRESSION),
    )
    while stage.now_seconds() < until:
        await stage.sleep(random.uniform(*CHANGE_SECONDS))
        workers = [app.transform_workers[number] for number in sorted(app.transform_workers)]
        if workers:
            random.choice(workers).resubscribe(*random.choice(choices))
    for worker in app.transform_workers.values():
        worker.resubscribe((app.input_topic,), None)


async def _settle(
    stage: ScenarioEnvironment, app: TransformApp, seconds: float = CALLS_SECONDS
) -> None:
    """Wait until every partition of the input has one owner, in the epoch of the group."""
    questions = stage.questions("describer")

    async def until_settled() -> None:
        while True:
            owners = await questions.owners(app.group_id, app.input_topic)
            counts = [] if owners is None else [len(each) for each in owners.values()]
            if counts == [1] * app.partitions:
                return
            await stage.sleep(DESCRIBE_SECONDS)

    await within(stage, "the assignment of the group", until_settled(), seconds)
    questions.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """All faults are random ones, but over sockets: there brokers end and start again."""
    if mode is Mode.SIM:
        return ()
    return tuple(
        Fault(
            kind="restart",
            target=random.choice(("broker-1", "broker-2", "broker-3")),
            trigger=AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000))),
            params={"power_loss": False, "after_ms": random.randint(20, 4000)},
        )
        for _ in range(random.randint(1, 3))
    )


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw a release: epochs of partitions are kept since 4.3, and assignments may be delayed."""
    return {
        "kraftsim.release": random.choice(("4.0", "4.1", "4.2", "4.3", "4.4", "4.4")),
        "group.consumer.assignors": random.choice(("uniform,range", "range,uniform")),
        "group.consumer.heartbeat.interval.ms": random.choice(("300", "1000", "2000")),
    }


SCENARIO = Scenario(
    name="consumer_group_under_faults",
    summary="Members of a consumer group join, leave, crash, resubscribe and change their protocol "
    "while nodes fail: a partition has one owner, and each record is copied once.",
    must_exercise=(
        *MUST_EXERCISE,
        "partitions-owned-once-per-epoch",
        "member-assignments-exclusive",
        "offsets-committed-by-owners",
    ),
    run=run,
    faults=faults,
    has_own_faults=False,
    settings={
        **SETTINGS,
        "kraftsim.release": "4.4",
        "group.consumer.session.timeout.ms": str(SESSION_MS),
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.migration.policy": "bidirectional",
    },
    draw_parameters=draw_parameters,
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=("writer-1", "writer-2", *COPIERS),
        may_answer_fatal=COPIERS,
        apis=(*WRITER_APIS, *TRANSACTION_APIS, *CONSUMER_GROUP_APIS),
        brokers_keep_records=True,
        brokers_replicate=True,
        moments=CONSUMER_GROUP_MOMENTS,
        settings={"group.consumer.assignment.interval.ms": OneOf(("0", "300", "1000", "3000"))},
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={
        **WORKLOAD,
        "copiers": 4,
        "crashes": 6,
        "departures": 10,
        "pauses": 5,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
    since="4.0",
)
