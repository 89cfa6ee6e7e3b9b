"""Members of a streams group (KIP-1071) join, leave, crash and pause while brokers, coordinators
and links fail; checks who runs which task, and that each record is copied once.

Four members have a topology of two subtopologies, one for each input topic, and commit offsets in
transactions with member epochs, as with processing.guarantee=exactly_once_v2. Tasks move one step
at a time: the next owner gets a task only after the former one has said that it is revoked. Members
pause longer than their session, so that they come back fenced; since 4.4 some are static, and leave
for a while (epoch -2). In the end the assignment must settle: each task has one owner, which then
gets the last records.
Source: KIP-1071, KIP-447; org.apache.kafka.coordinator.group.GroupMetadataManager,
org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftsim.clients.rules_member_steps import GroupProtocol, MemberSettings
from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, within
from kraftsim.cluster.spec import RELEASE_KEY
from kraftsim.lab.faults.fault import AtTime, Fault, OneOf
from kraftsim.lab.faults.fault_space import (
    STREAMS_GROUP_APIS,
    STREAMS_GROUP_MOMENTS,
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
from kraftsim.releases.release import release
from kraftsim.releases.traits import STREAMS_ROLES

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 12.0
SIDE_TOPIC = "copy-side"
SIDE_PARTITIONS = 2
SESSION_MS = 6000
DESCRIBE_SECONDS = 0.2
SILENT_SECONDS = 40.0
INPUT, SIDE = "0", "1"
"""The subtopologies: of the input, and of the side topic, which stays empty."""

COPIERS = ("copier-1", "copier-2", "copier-3", "copier-4")


async def run(stage: ScenarioEnvironment) -> None:
    """Run the members under faults, heal, wait until the assignment settles, and check the copy."""
    random = stage.random("members")
    app = TransformApp(
        variant=random.choice((Variant.PER_THREAD, Variant.PER_THREAD, Variant.PER_TASK)),
        session_timeout_ms=SESSION_MS,
        departures=stage.workload("departures"),
    )
    numbers = range(1, stage.workload("copiers") + 1)
    may_be_static = release(stage.spec.settings.get(RELEASE_KEY, stage.spec.release)).has(
        STREAMS_ROLES
    )
    static = {number for number in numbers if random.random() < 0.3 and may_be_static}
    shares_process = random.random() < 0.5

    def group_of(number: int, usual: MemberSettings, incarnation: int) -> MemberSettings:
        process = (number + 1) // 2 if shares_process else number
        return replace(
            usual,
            group_protocol=GroupProtocol.STREAMS,
            subtopologies={INPUT: (app.input_topic,), SIDE: (SIDE_TOPIC,)},
            process_id=f"process-{process}",
            group_instance_id=f"instance-{number}" if number in static else None,
            returns_soon=True,
        )

    app.group_of = group_of
    await app.open(stage)
    await stage.create_topic(SIDE_TOPIC, SIDE_PARTITIONS, app.replicas)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    is_settled = asyncio.Event()
    app.is_awaited = lambda: not is_settled.is_set()
    app.last_may_be_written = asyncio.Event()
    may_write = app.last_may_be_written

    async def settle() -> None:
        await stage.sleep(seconds)
        if numbers:
            await _settle(stage, app)
        may_write.set()
        if len(numbers) > 1:
            # A member that says nothing any more loses its tasks to the others.
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


async def _settle(
    stage: ScenarioEnvironment, app: TransformApp, seconds: float = CALLS_SECONDS
) -> None:
    """Wait until every task has one owner, in the epoch of the group."""
    questions = stage.questions("describer")
    tasks = [
        *((INPUT, number) for number in range(app.partitions)),
        *((SIDE, number) for number in range(SIDE_PARTITIONS)),
    ]

    async def until_settled() -> None:
        while True:
            owners = await questions.task_owners(app.group_id)
            found = {} if owners is None else owners
            if sorted(found) == tasks and all(len(each) == 1 for each in found.values()):
                return
            await stage.sleep(DESCRIBE_SECONDS)

    await within(stage, "the tasks of the group", until_settled(), seconds)
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
    """Draw a release: tasks change roles, and members are static, since 4.4."""
    return {
        "kraftsim.release": random.choice(("4.2", "4.3", "4.4", "4.4")),
        "group.streams.heartbeat.interval.ms": random.choice(("300", "1000", "2000")),
    }


SCENARIO = Scenario(
    name="streams_group_under_faults",
    summary="Members of a streams group join, leave, crash and pause while nodes fail: an active "
    "task has one owner, and each record is copied once.",
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
        "group.streams.session.timeout.ms": str(SESSION_MS),
        "group.streams.min.session.timeout.ms": "1000",
        "group.streams.heartbeat.interval.ms": "1000",
        "group.streams.min.heartbeat.interval.ms": "100",
    },
    draw_parameters=draw_parameters,
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=("writer-1", "writer-2", *COPIERS),
        may_answer_fatal=COPIERS,
        apis=(*WRITER_APIS, *TRANSACTION_APIS, *STREAMS_GROUP_APIS),
        brokers_keep_records=True,
        brokers_replicate=True,
        moments=STREAMS_GROUP_MOMENTS,
        settings={"group.streams.initial.rebalance.delay.ms": OneOf(("0", "300", "1000", "3000"))},
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
    since="4.2",
)
