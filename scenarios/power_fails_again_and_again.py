"""Controllers lose their power again and again, most of all in the middle of what they write: whatever they told anybody is still there.

Three controllers and one broker, small segments, a snapshot every few hundred bytes, and logs that are cut behind it. Power fails around single
writes, flushes and renames, at one controller, at the leader that was just elected, at one that is cutting its log or taking in a snapshot, or at
all three at once; leaders are cut off in between, so that there is something to cut. Nothing is refused and nothing lies: a disk keeps what it
says that it has flushed, and loses any part of the rest. So every promise must hold, however often that happens.

Over sockets there is no loss of power: controllers are killed at times.
Source: KIP-595, KIP-630, KAFKA-10533; Pillai et al., All File Systems Are Not Created Equal (2014), for crashes between any two writes.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.quorum_story import QUICK_SESSIONS, QUICKER_ELECTIONS
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault
from kraftsim.faults.targets import LEADER_WORD
from kraftsim.faults.trigger import AtTime, FileClass, OnDisk, OnEvent, Trigger

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

CONTROLLERS = ("controller-101", "controller-102", "controller-103")
WORK_SECONDS = 8.0
WORKLOAD = {"ids": 3500, "ids_after": 1100, "work_ms": int(WORK_SECONDS * 1000)}
"""`ids_after` are asked for once everything is healed."""
OPERATIONS = {
    FileClass.METADATA_LOG: (("write", "flush", "flush"), 250),
    FileClass.QUORUM_STATE: (("write", "flush", "rename"), 10),
    FileClass.CHECKPOINT: (("write", "flush", "rename"), 30),
}
"""What is done to the files of a class, and about how often."""
MOMENTS = (
    ("VoteTold", 8),
    ("ControllerElected", 4),
    ("MetadataTruncated", 3),
    ("SnapshotLoaded", 3),
    ("SnapshotWritten", 12),
    ("HighWatermarkMoved", 300),
    ("MetadataAppended", 150),
)
"""Facts right behind which power may fail, and about how often they are noted."""


async def play(stage: Stage) -> None:
    """Ask for ids while the power fails, heal, and ask again; what was promised is judged from the events."""
    await stage.create_topic("before", 2)
    told: list[int] = []
    await under_faults(stage, _ask(stage, "asker-1", stage.workload("ids"), told), seconds=stage.workload("work_ms") / 1000)
    await _ask(stage, "asker-2", stage.workload("ids_after"), told)
    await stage.create_topic("after", 2)
    if len(set(told)) != stage.workload("ids") + stage.workload("ids_after"):
        raise StoryFailed(f"{len(told)} producer ids were handed out, of which {len(set(told))} are different")


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw a schedule: over sockets kills at times; in simulation seven to fifteen losses of power, and leaders that are cut off."""
    if mode is not Mode.SIM:
        return tuple(_restart(random, random.choice(CONTROLLERS), _time(random), power_loss=False) for _ in range(random.randint(2, 4)))
    schedule = [_loss(random) for _ in range(random.randint(6, 14))]
    schedule += [_cut_off(random) for _ in range(random.randint(0, 3))]
    if random.random() < BLACKOUT_SHARE:
        at = _time(random)
        schedule += [_restart(random, name, at) for name in CONTROLLERS]
    # However the rest strikes, somebody must take over from a leader that had told something: else nothing is learned of what leaders must have.
    return (*schedule, _restart(random, LEADER_WORD, AtTime(at_ms=int(WORK_SECONDS * 500))))


BLACKOUT_SHARE = 0.3


def _loss(random: "Random") -> Fault:
    """One controller loses its power at a moment of its disk, or of the quorum."""
    if random.random() < 0.7:
        file_class = random.choice(tuple(OPERATIONS))
        operations, times = OPERATIONS[file_class]
        trigger: Trigger = OnDisk(
            operation=random.choice(operations),
            file_class=file_class,
            host=random.choice(CONTROLLERS),
            nth=random.randint(1, times),
            moment=random.choice(("before", "after")),
        )
    else:
        kind, times = random.choice(MOMENTS)
        trigger = OnEvent(kind=kind, nth=random.randint(1, times))
    return _restart(random, AT_THE_TRIGGER, trigger)


def _cut_off(random: "Random") -> Fault:
    """Whoever leads is alone for a while: what it writes then has no future."""
    kind, times = random.choice((("ControllerElected", 4), ("MetadataAppended", 150)))
    return Fault(kind="partition", trigger=OnEvent(kind=kind, nth=random.randint(1, times)), params={"duration_ms": random.randint(300, 2500)})


def _time(random: "Random") -> AtTime:
    return AtTime(at_ms=random.randint(300, int(WORK_SECONDS * 1000)))


def _restart(random: "Random", target: str, trigger: Trigger, *, power_loss: bool = True) -> Fault:
    return Fault(kind="restart", target=target, trigger=trigger, params={"power_loss": power_loss, "after_ms": random.choice((20, 100, 400, 1500))})


def _swarm(random: "Random") -> dict[str, str]:
    """Draw what one run is set to: how often files are changed for others."""
    return {
        "metadata.log.max.record.bytes.between.snapshots": random.choice(("500", "1500", "4000")),
        "metadata.log.segment.bytes": random.choice(("600", "2000", "6000")),
        "metadata.max.retention.bytes": random.choice(("2000", "8000", "100000")),
        "controller.quorum.fetch.snapshot.max.bytes": random.choice(("300", "8388608")),
        "log.flush.offset.checkpoint.interval.ms": random.choice(("50", "500", "60000")),
    }


async def _ask(stage: Stage, client_id: str, count: int, told: list[int]) -> None:
    asker = stage.id_asker(client_id)
    told += await asker.ask(count)
    await asker.close()


SCENARIO = Scenario(
    name="power_fails_again_and_again",
    story="Controllers lose their power in the middle of what they write; whatever they told anybody is still there.",
    must_exercise=(
        "one-leader-per-epoch",
        "durable-metadata-stays",
        "quorum-state-taken-up",
        "metadata-log-matching",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "leader-completeness",
        "snapshot-equals-log",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "settles-after-heal",
    ),
    play=play,
    faults=faults,
    controllers=3,
    brokers=1,
    settings={
        **QUICK_SESSIONS,
        **QUICKER_ELECTIONS,
        "metadata.max.idle.interval.ms": "50",
    },
    swarm=_swarm,
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
