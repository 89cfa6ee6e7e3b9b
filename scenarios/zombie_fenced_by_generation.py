"""A member of a group stands still until its partitions are another's, comes back, and commits: its generation is over, and it must not (KIP-447).

It has a producer of its thread, whose epoch nobody raised: only the group knows that it is a zombie. Where it had sent its offsets already, the new
owner of the partition is not told where to go on until that transaction ends. In some runs they are on their way for that long: the group's
coordinator asks that of the transaction about them, and is answered when the partitions are another's.
Source: KIP-447; the seed of its design document: the fencing point is the group's coordinator; KAFKA-15784.
"""

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


async def play(stage: Stage) -> None:
    """Copy; the first member stands still for longer than its session lasts."""
    random = stage.random("zombie")
    # Its transaction outlives the pause: it is its generation that fences it. In some runs it is the other way round.
    copying = Copying(
        transaction_timeout_ms=random.choice((40_000, 40_000, 4000)),
        assignor=random.choice(("range", "cooperative-sticky")),
        producer=WAITS_LONG,
    )
    point, seconds = random.choice((Point.SENT, Point.SENT, Point.OFFSETS_SENT, Point.BEGUN, Point.POLLED)), random.uniform(7.0, 14.0)
    await copying.open(stage)
    await under_faults(stage, copying.run(stage), _pause(stage, copying, point, seconds), seconds=stage.workload("work_ms") / 1000)
    await copying.audit(stage)


async def _pause(stage: Stage, copying: Copying, point: Point, seconds: float) -> None:
    """Let the first member stand still at a point of its next transaction."""
    while 1 not in copying.copiers:
        await stage.sleep(0.1)
    await stage.sleep(1.0)
    copying.copiers[1].pause_at(point, seconds)


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
    story="A member that lost its partitions while it stood still comes back and commits; its generation is over, and every line is copied once.",
    must_exercise=(*MUST_EXERCISE, "offsets-told-are-stable", "group-offsets-equal-log"),
    play=play,
    faults=faults,
    settings=SETTINGS,
    limit_seconds=600.0,
    workload={**WORKLOAD, "copiers": 2, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
