"""A member of a group stands still until its partitions are another's, comes back, and commits: it is fenced by its group, and must be (KIP-447).

It has a producer of its thread, whose epoch nobody raised: only the group knows that it is a zombie. By what it is fenced differs between runs:
- its session expired, and the group removed it: UNKNOWN_MEMBER_ID (a member without group.instance.id);
- the group went on without it and kept its place, as it does with a static member: its member id is valid, and its generation alone is not;
- another process took its group.instance.id, which begins no generation: its generation is valid, and its member id alone is not.
Where it had sent its offsets already, the new owner of the partition is not told where to go on until that transaction ends. In some runs they are on
their way for that long: the group's coordinator asks that of the transaction about them, and is answered when the partitions are another's.
Source: KIP-345, KIP-447; the seed of its design document: the fencing point is the group's coordinator; KAFKA-15784;
GroupCoordinator.{validateOffsetCommit, onCompleteJoinPhase, updateStaticMemberAndRebalance}.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING

from kraftsim.cluster.copying import MUST_EXERCISE, SETTINGS, WORKLOAD, Copying, Point
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, ProducerSettings, Scenario, Stage
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault, Value
from kraftsim.faults.trigger import OnEvent, OnFrame

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

WORK_SECONDS = 15.0
ADD_PARTITIONS, TXN_OFFSET_COMMIT = 24, 28
WAITS_LONG = ProducerSettings(delivery_timeout_ms=40_000, request_timeout_ms=20_000)
"""Whoever has stood still finds the answer to its last request, and not that it should ask again."""
ZOMBIE = 1
JOINS, REPLACES = 0, 3
"""The number of the member that joins later: a lower one than the zombie's, so that the range assignor moves its partitions."""
INSTANCE = "copier-1"
STATIC_SESSION_MS, REBALANCE_MS = 12_000, 4000
COMMITS_SECONDS = 1.0
"""How long the group is kept after the zombie is back: it has to hear of a group that has members."""


class Fencing(Enum):
    """By what the zombie is fenced."""

    MEMBER_REMOVED = auto()
    GENERATION = auto()
    INSTANCE = auto()


async def play(stage: Stage) -> None:
    """Copy; the first member stands still until its partitions are another's."""
    random = stage.random("zombie")
    # Its transaction outlives the pause: it is its group that fences it. In some runs of members that are removed it is the other way round.
    timeout_ms, assignor = random.choice((40_000, 40_000, 4000)), random.choice(("range", "cooperative-sticky"))
    point, seconds = random.choice((Point.SENT, Point.SENT, Point.OFFSETS_SENT, Point.BEGUN, Point.POLLED)), random.uniform(7.0, 14.0)
    fencing = stage.random("fencing").choice((Fencing.MEMBER_REMOVED, Fencing.MEMBER_REMOVED, Fencing.GENERATION, Fencing.INSTANCE))
    if fencing is Fencing.MEMBER_REMOVED:
        copying = Copying(transaction_timeout_ms=timeout_ms, assignor=assignor, producer=WAITS_LONG)
        await copying.open(stage)
        zombie = _pause(stage, copying, point, seconds)
    else:
        copying = Copying(
            transaction_timeout_ms=40_000,
            producer=WAITS_LONG,
            session_timeout_ms=STATIC_SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            instance_ids={ZOMBIE: INSTANCE, REPLACES: INSTANCE},
        )
        await copying.open(stage)
        zombie = _replace(stage, copying, fencing, point)
    await under_faults(stage, copying.run(stage), zombie, seconds=stage.workload("work_ms") / 1000)
    await copying.audit(stage)


async def _pause(stage: Stage, copying: Copying, point: Point, seconds: float) -> None:
    """Let the first member stand still at a point of its next transaction."""
    while ZOMBIE not in copying.copiers:
        await stage.sleep(0.1)
    await stage.sleep(1.0)
    copying.copiers[ZOMBIE].pause_at(point, seconds)


async def _replace(stage: Stage, copying: Copying, fencing: Fencing, point: Point) -> None:
    """Let the first member, which is static, stand still, and another one come in its place, or beside it.

    It is back after the rebalance, which waits for it for REBALANCE_MS, and before the group stops waiting for it to sync, which takes as long again.
    """
    seconds = stage.random("fencing").uniform(1.5, 1.9) * REBALANCE_MS / 1000
    await _pause(stage, copying, point, seconds)
    while not copying.copiers[ZOMBIE].stands_still:
        if copying.is_done:
            return
        await stage.sleep(0.05)
    back_at = stage.now_seconds() + seconds + COMMITS_SECONDS
    copying.is_awaited = lambda: stage.now_seconds() < back_at
    await copying.copy(stage, JOINS if fencing is Fencing.GENERATION else REPLACES)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw up to two restarts of whoever coordinates the group or the transaction, or that the one asks the other for too long."""
    if mode is not Mode.SIM:
        return ()
    if random.random() < 0.5:
        return _question_takes_long(random)
    moments = ("PendingOffsetAdded", "GroupsLoaded", "TransactionStateChanged", "OffsetMaterialised")
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
    """The first member sends its offsets and stands still, and what is asked about them stays in the network for as long."""
    sent = OnFrame(api_key=TXN_OFFSET_COMMIT, client="copier-1", nth=random.randint(1, 6), moment="after")
    duration_ms = random.randint(9_000, 12_000)
    asked: dict[str, Value] = {"api_key": ADD_PARTITIONS, "asked_by_server": True, "overtaken_by": 0, "duration_ms": duration_ms}
    return (
        Fault(kind="pause", target="copier-1", trigger=sent, params={"duration_ms": duration_ms}),
        Fault(kind="overtaken-request", target=AT_THE_TRIGGER, trigger=sent, params=asked),
    )


SCENARIO = Scenario(
    name="zombie_fenced_by_generation",
    story="A member that lost its partitions while it stood still comes back and commits; its group fences it, and every line is copied once.",
    must_exercise=(*MUST_EXERCISE, "offsets-told-are-stable", "group-offsets-equal-log"),
    play=play,
    faults=faults,
    settings=SETTINGS,
    limit_seconds=600.0,
    workload={**WORKLOAD, "copiers": 2, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
