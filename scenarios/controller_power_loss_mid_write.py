"""Controllers lose power repeatedly around single writes, flushes and renames; checks that
everything they acknowledged is still there.

Three controllers and one broker, small segments, a snapshot every few hundred bytes, and logs that
are deleted up to it. Power fails around single writes, flushes and renames, on one controller, on
the leader that was just elected, on one that truncates its log or loads a snapshot, or on all three
at once; leaders are isolated in between, so that there is something to truncate. No operation fails
and no disk lies: a disk keeps what it has flushed, and loses any part of the rest. So every
guarantee must hold, however often power fails.

Over sockets there is no power loss: controllers are killed at random times.
Source: KIP-595, KIP-630, KAFKA-10533; Pillai et al., All File Systems Are Not Created Equal (2014),
for crashes between any two writes.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    LEADER_TARGET,
    AtTime,
    DataLoss,
    Fault,
    FileClass,
    OnDisk,
    OnEvent,
    Trigger,
)
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, Mix
from kraftsim.lab.faults.quorum_spaces import quorum_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICK_SESSIONS, QUICKER_ELECTIONS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

CONTROLLERS = ("controller-101", "controller-102", "controller-103")
WORK_SECONDS = 8.0
WORKLOAD = {"ids": 3500, "ids_after": 1100, "work_ms": int(WORK_SECONDS * 1000)}
"""`ids_after` are requested after everything is healed."""
OPERATIONS = {
    FileClass.METADATA_LOG: (("write", "flush", "flush"), 250),
    FileClass.QUORUM_STATE: (("write", "flush", "rename"), 10),
    FileClass.CHECKPOINT: (("write", "flush", "rename"), 30),
}
"""The operations on each class of files, and their approximate number per run."""
MOMENTS = (
    ("VoteSent", 8),
    ("ControllerElected", 4),
    ("MetadataTruncated", 3),
    ("SnapshotLoaded", 3),
    ("SnapshotWritten", 12),
    ("HighWatermarkMoved", 300),
    ("MetadataAppended", 150),
)
"""Events right after which power may fail, and their approximate number per run."""


async def run(stage: ScenarioEnvironment) -> None:
    """Request ids while power fails, heal, and request more; invariants are checked from the
    events.
    """
    await stage.create_topic("before", 2)
    ids: list[int] = []
    await under_faults(
        stage,
        _ask(stage, "asker-1", stage.workload("ids"), ids),
        seconds=stage.workload("work_ms") / 1000,
    )
    await _ask(stage, "asker-2", stage.workload("ids_after"), ids)
    await stage.create_topic("after", 2)
    if len(set(ids)) != stage.workload("ids") + stage.workload("ids_after"):
        raise ScenarioFailed(
            f"{len(ids)} producer ids were returned, {len(set(ids))} of them distinct"
        )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw a schedule: over sockets kills; in simulation seven to fifteen power losses, and leaders
    that are isolated.
    """
    if mode is not Mode.SIM:
        return tuple(
            _restart(random, random.choice(CONTROLLERS), _time(random), power_loss=False)
            for _ in range(random.randint(2, 4))
        )
    schedule = [_loss(random) for _ in range(random.randint(6, 14))]
    schedule += [_isolate(random) for _ in range(random.randint(0, 3))]
    if random.random() < BLACKOUT_SHARE:
        at = _time(random)
        schedule += [_restart(random, name, at) for name in CONTROLLERS]
    # In any case one leader must be replaced after it acknowledged something: otherwise leader
    # completeness is not exercised.
    return (*schedule, _restart(random, LEADER_TARGET, AtTime(at_ms=int(WORK_SECONDS * 500))))


BLACKOUT_SHARE = 0.3


def _loss(random: "Random") -> Fault:
    """One controller loses power at a disk operation or at a quorum event."""
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


def _isolate(random: "Random") -> Fault:
    """The leader is isolated for a while: what it writes then is truncated later."""
    kind, times = random.choice((("ControllerElected", 4), ("MetadataAppended", 150)))
    return Fault(
        kind="partition",
        trigger=OnEvent(kind=kind, nth=random.randint(1, times)),
        params={"duration_ms": random.randint(300, 2500)},
    )


def _time(random: "Random") -> AtTime:
    return AtTime(at_ms=random.randint(300, int(WORK_SECONDS * 1000)))


def _restart(random: "Random", target: str, trigger: Trigger, *, power_loss: bool = True) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": power_loss, "after_ms": random.choice((20, 100, 400, 1500))},
    )


def _draw_settings(random: "Random") -> dict[str, str]:
    """Draw the settings of a run: how often segments are rolled and snapshots written."""
    return {
        "metadata.log.max.record.bytes.between.snapshots": random.choice(("500", "1500", "4000")),
        "metadata.log.segment.bytes": random.choice(("600", "2000", "6000")),
        "metadata.max.retention.bytes": random.choice(("2000", "8000", "100000")),
        "controller.quorum.fetch.snapshot.max.bytes": random.choice(("300", "8388608")),
        "log.flush.offset.checkpoint.interval.ms": random.choice(("50", "500", "60000")),
    }


async def _ask(stage: ScenarioEnvironment, client_id: str, count: int, ids: list[int]) -> None:
    client = stage.producer_id_client(client_id)
    ids += await client.ask(count)
    await client.close()


SCENARIO = Scenario(
    name="controller_power_loss_mid_write",
    summary="Controllers lose power in the middle of writes; everything that they acknowledged is "
    "still there.",
    must_exercise=(
        "one-leader-per-epoch",
        "flushed-metadata-retained",
        "quorum-state-restored",
        "metadata-log-matching",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "leader-completeness",
        "snapshot-equals-log",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    controllers=3,
    brokers=1,
    settings={
        **QUICK_SESSIONS,
        **QUICKER_ELECTIONS,
        "metadata.max.idle.interval.ms": "50",
    },
    draw_parameters=_draw_settings,
    fault_space=quorum_fault_space(
        controllers=3,
        brokers=1,
        clients=("asker-1", "asker-2"),
        apis=PRODUCER_ID_APIS,
        fault_seconds=WORK_SECONDS,
        may_lose=(DataLoss.UNFLUSHED,),  # the class of the scenario's own faults
        mix=Mix.ON_TOP,
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
