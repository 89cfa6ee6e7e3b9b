"""Pauses a group member until its partitions are reassigned, then lets it commit; checks that the
group coordinator fences it (KIP-447).

The member has one producer per thread, whose epoch was not bumped: only the group coordinator knows
that it is a zombie. The reason for fencing differs between runs:
- its session expired, and the group removed it: UNKNOWN_MEMBER_ID (a member without
  group.instance.id);
- the group rebalanced without it and kept its place, as for a static member: its member id is
  valid, and only its generation is not;
- another process took its group.instance.id, which starts no generation: its generation is valid,
  and only its member id is not. If it had sent its offsets already, OffsetFetch with require_stable
  does not return an offset to the new owner until that transaction ends. In some runs the offsets
  are in flight for that long: the group coordinator verifies the transaction for them, and the
  response arrives when the partitions are reassigned.
Source: KIP-345, KIP-447; its design document: the fencing point is the group coordinator;
KAFKA-15784; GroupCoordinator.{validateOffsetCommit, onCompleteJoinPhase,
updateStaticMemberAndRebalance}.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, ProducerSettings, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnEvent, OnFrame, Value
from kraftsim.lab.faults.fault_space import GROUP_MOMENTS, TRANSACTION_APIS, WRITER_APIS
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.transform_app import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    Point,
    TransformApp,
)
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 15.0
ADD_PARTITIONS, TXN_OFFSET_COMMIT = 24, 28
WAITS_LONG = ProducerSettings(delivery_timeout_ms=40_000, request_timeout_ms=20_000)
"""A resumed member finds the response to its last request, and no timeout."""
ZOMBIE = 1
JOINS, REPLACES = 0, 3
"""The number of the member that joins later: a lower one than the zombie's, so that the range
assignor moves its partitions.
"""
INSTANCE = "copier-1"
STATIC_SESSION_MS, REBALANCE_MS = 10_500, 4000
"""A static member keeps its place while it is paused: its last heartbeat was a quarter of the
session before that.
"""
QUESTION_MS = (12_000, 14_000)
"""How long a slow verification takes: a session, also a static member's, a rebalance, and the copy
by the new owners. It ends within the fault phase.
"""
COMMITS_SECONDS = 1.0
"""How long the group is kept after the zombie resumes: its commit must reach a group that has
members.
"""


class Fencing(Enum):
    """How the zombie is fenced."""

    MEMBER_REMOVED = auto()
    GENERATION = auto()
    INSTANCE = auto()


async def run(stage: ScenarioEnvironment) -> None:
    """Run the app; the first member is paused until its partitions are reassigned."""
    random = stage.random("zombie")
    # Its transaction outlasts the pause, so the group fences it. In some runs with removed members,
    # the transaction times out first.
    timeout_ms, assignor = (
        random.choice((40_000, 40_000, 4000)),
        random.choice(("range", "cooperative-sticky")),
    )
    point, seconds = (
        random.choice((Point.SENT, Point.SENT, Point.OFFSETS_SENT, Point.BEGUN, Point.POLLED)),
        random.uniform(7.0, 14.0),
    )
    fencing = stage.random("fencing").choice(
        (Fencing.MEMBER_REMOVED, Fencing.MEMBER_REMOVED, Fencing.GENERATION, Fencing.INSTANCE)
    )
    if fencing is Fencing.MEMBER_REMOVED:
        app = TransformApp(
            transaction_timeout_ms=timeout_ms, assignor=assignor, producer=WAITS_LONG
        )
        await app.open(stage)
        zombie = _pause(stage, app, point, seconds)
    else:
        app = TransformApp(
            transaction_timeout_ms=40_000,
            producer=WAITS_LONG,
            session_timeout_ms=STATIC_SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            instance_ids={ZOMBIE: INSTANCE, REPLACES: INSTANCE},
        )
        await app.open(stage)
        zombie = _replace(stage, app, fencing, point)
    await under_faults(stage, app.run(stage), zombie, seconds=stage.workload("work_ms") / 1000)
    await app.audit(stage)


async def _pause(
    stage: ScenarioEnvironment, app: TransformApp, point: Point, seconds: float
) -> None:
    """Pause the first member at a point of its next transaction."""
    while ZOMBIE not in app.transform_workers:
        await stage.sleep(0.1)
    await stage.sleep(1.0)
    app.transform_workers[ZOMBIE].pause_at(point, seconds)


async def _replace(
    stage: ScenarioEnvironment, app: TransformApp, fencing: Fencing, point: Point
) -> None:
    """Pause the first member, which is static, and let another one replace it, or join the group.

    It resumes after the rebalance, which waits for it for REBALANCE_MS, and before the sync
    timeout, which is as long again.
    """
    seconds = stage.random("fencing").uniform(1.5, 1.9) * REBALANCE_MS / 1000
    await _pause(stage, app, point, seconds)
    while not app.transform_workers[ZOMBIE].is_paused:
        if app.is_done:
            return
        await stage.sleep(0.05)
    back_at = stage.now_seconds() + seconds + COMMITS_SECONDS
    app.is_awaited = lambda: stage.now_seconds() < back_at
    await app.copy(stage, JOINS if fencing is Fencing.GENERATION else REPLACES)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw up to two restarts of the group or transaction coordinator, or a slow verification
    between them.
    """
    if mode is not Mode.SIM:
        return ()
    if random.random() < 0.5:
        return _question_takes_long(random)
    moments = (
        "PendingOffsetAdded",
        "GroupsLoaded",
        "TransactionStateChanged",
        "OffsetMaterialised",
    )
    return tuple(
        Fault(
            kind="restart",
            target=AT_THE_TRIGGER,
            trigger=OnEvent(kind=random.choice(moments), nth=random.randint(1, 20)),
            params={"power_loss": False, "after_ms": random.randint(20, 3000)},
        )
        for _ in range(random.randint(0, 2))
    )


def _question_takes_long(random: "Random") -> tuple[Fault, ...]:
    """The first member sends its offsets and is paused, and the verification request for them stays
    in the network for as long.
    """
    sent = OnFrame(
        api_key=TXN_OFFSET_COMMIT, client="copier-1", nth=random.randint(1, 6), moment="after"
    )
    duration_ms = random.randint(*QUESTION_MS)
    asked: dict[str, Value] = {
        "api_key": ADD_PARTITIONS,
        "asked_by_server": True,
        "overtaken_by": 0,
        "duration_ms": duration_ms,
    }
    return (
        Fault(kind="pause", target="copier-1", trigger=sent, params={"duration_ms": duration_ms}),
        Fault(kind="overtaken-request", target=AT_THE_TRIGGER, trigger=sent, params=asked),
    )


SCENARIO = Scenario(
    name="zombie_fenced_by_generation",
    summary="A paused member that lost its partitions resumes and commits; the group coordinator "
    "fences it, and every record is copied once.",
    must_exercise=(*MUST_EXERCISE, "fetched-offsets-stable", "group-offsets-equal-log"),
    run=run,
    faults=faults,
    settings=SETTINGS,
    fault_space=transaction_fault_space(
        clients=("writer-1", "writer-2", "copier-1", "copier-2"),
        apis=(*WRITER_APIS, *TRANSACTION_APIS),
        moments=GROUP_MOMENTS,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=600.0,
    workload={**WORKLOAD, "copiers": 2, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
