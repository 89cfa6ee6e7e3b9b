"""What a controller has to write is more than its disk can follow, and its power fails in the middle of it: a gap in its log must not pass for a log.

Flushes of whoever leads do not return for a while. The others commit without it, so it goes on, begins segment after segment, and then has to flush
them one by one; a loss of power meanwhile takes some of them and leaves others that come behind them. Or a controller was away for long, and is given
a snapshot in place of its log; a loss of power leaves the snapshot and brings back the log that had given way to it. Or a leader was cut off, and has
cut its log; a loss of power must not bring back what it wrote alone, in front of what it copied since. Whoever comes up must end its log where the
first record is missing, or begin it behind the snapshot, and copy the rest once more.

Over sockets controllers are killed at times.
Source: KIP-595, KIP-630, kafka.raft.KafkaMetadataLog; Pillai et al., All File Systems Are Not Created Equal (2014).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.quorum_story import SETTINGS
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed
from kraftsim.faults.fault import Fault, Value
from kraftsim.faults.targets import LEADER_WORD
from kraftsim.faults.trigger import AtTime, FileClass

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

CONTROLLERS = ("controller-101", "controller-102", "controller-103")
ROUNDS, ROUND_MS = 3, 3000
WORKLOAD = {"ids": 600, "ids_after": 40, "work_ms": ROUNDS * ROUND_MS}
AWAY_MS = (800, 1500)
FACTORS = (5, 20, 50)
"""How many times as long a flush takes; usual is a part of a millisecond."""
STUCK_FILES = (FileClass.CHECKPOINT, FileClass.CHECKPOINT, FileClass.OTHER)
"""The file of epochs, which is written anew when a snapshot has come; the snapshot itself."""


async def play(stage: Stage) -> None:
    """Ask for ids while one disk after the other falls behind, heal, and ask again."""
    told: list[int] = []
    await stage.wait_for_leader()
    await under_faults(stage, _ask(stage, "asker-1", stage.workload("ids"), told), seconds=stage.workload("work_ms") / 1000)
    await _ask(stage, "asker-2", stage.workload("ids_after"), told)
    await stage.create_topic("after", 2)
    if len(set(told)) != len(told):
        raise StoryFailed(f"{len(told)} producer ids were handed out, of which {len(set(told))} are different")


async def _ask(stage: Stage, client_id: str, count: int, told: list[int]) -> None:
    asker = stage.id_asker(client_id)
    told += await asker.ask(count)
    await asker.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw whose disk stands still when, and when its power fails; over sockets kills at times."""
    if mode is not Mode.SIM:
        return tuple(
            _restart(random, random.choice(CONTROLLERS), AtTime(at_ms=random.randint(500, 5000)), power_loss=False)
            for _ in range(random.randint(2, 4))
        )
    slow: dict[str, Value] = {"factor": random.choice(FACTORS), "duration_ms": ROUNDS * ROUND_MS}
    schedule = [Fault(kind="slow-disk", target="controller-*", trigger=AtTime(at_ms=1), params=slow)]
    for number in range(ROUNDS):
        schedule += random.choice((_flushes_pile_up, _in_mid_snapshot, _behind_a_cut))(random, 300 + number * ROUND_MS)
    return tuple(schedule)


def _flushes_pile_up(random: "Random", at_ms: int) -> list[Fault]:
    """Flushes of whoever leads do not return, and it loses its power when they do and there are many to come."""
    stuck_ms, later_ms = random.randint(300, 1200), random.randint(1, 200)
    params: dict[str, Value] = {"file_class": FileClass.METADATA_LOG.value, "duration_ms": stuck_ms}
    stuck = Fault(kind="stuck-flush", target=LEADER_WORD, trigger=AtTime(at_ms=at_ms), params=params)
    return [stuck, _restart(random, LEADER_WORD, AtTime(at_ms=at_ms + stuck_ms + later_ms))]


def _in_mid_snapshot(random: "Random", at_ms: int) -> list[Fault]:
    """A controller is away, flushes stand still when it is back, and before they go on it loses its power, or only its process."""
    name, away_ms, stuck_ms = random.choice(CONTROLLERS), random.randint(*AWAY_MS), random.randint(500, 1200)
    params: dict[str, Value] = {"file_class": random.choice(STUCK_FILES).value, "duration_ms": stuck_ms + 50}
    return [
        Fault(kind="partition", target=name, trigger=AtTime(at_ms=at_ms), params={"duration_ms": away_ms}),
        Fault(kind="stuck-flush", target=name, trigger=AtTime(at_ms=at_ms + away_ms), params=params),
        _restart(random, name, AtTime(at_ms=at_ms + away_ms + stuck_ms), power_loss=random.random() < POWER_SHARE),
    ]


POWER_SHARE = 0.85


def _behind_a_cut(random: "Random", at_ms: int) -> list[Fault]:
    """A leader is cut off, throws away what it wrote alone when it is back, and all lose their power when it has written on in another segment."""
    away_ms, later_ms = random.randint(*AWAY_MS), random.randint(100, 800)
    alone = Fault(kind="partition", target=LEADER_WORD, trigger=AtTime(at_ms=at_ms), params={"duration_ms": away_ms})
    params: dict[str, Value] = {"after_ms": 20, "apart_ms": random.choice((10, 300))}
    return [alone, Fault(kind="blackout", target="controller-*", trigger=AtTime(at_ms=at_ms + away_ms + later_ms), params=params)]


def _restart(random: "Random", target: str, trigger: AtTime, *, power_loss: bool = True) -> Fault:
    return Fault(kind="restart", target=target, trigger=trigger, params={"power_loss": power_loss, "after_ms": random.choice((20, 100, 400))})


def swarm(random: "Random") -> dict[str, str]:
    """Draw how large segments are, and whether those who were away are given records or a snapshot."""
    return {
        "metadata.log.segment.bytes": random.choice(("150", "300", "1000")),
        "metadata.log.segment.ms": random.choice(("300", "604800000")),
        **random.choice((RECORDS, SNAPSHOTS)),
        "controller.quorum.fetch.snapshot.max.bytes": random.choice(("300", "8388608")),
    }


RECORDS = {"metadata.log.max.record.bytes.between.snapshots": "100000", "metadata.max.retention.bytes": "1000000"}
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "500", "metadata.max.retention.bytes": "1000"}

SCENARIO = Scenario(
    name="power_fails_while_disks_fall_behind",
    story="More is written than disks can follow, and power fails over it: a log ends where a record is missing, or begins behind its snapshot.",
    must_exercise=(
        "one-leader-per-epoch",
        "one-vote-per-epoch",
        "durable-metadata-stays",
        "quorum-state-taken-up",
        "metadata-log-matching",
        "metadata-log-in-one-piece",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "settles-after-heal",
    ),
    play=play,
    faults=faults,
    controllers=3,
    brokers=1,
    settings={**SETTINGS, "metadata.max.idle.interval.ms": "20"},
    swarm=swarm,
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
