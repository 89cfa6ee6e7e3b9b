"""Controllers with slow disks lose power with many unflushed writes; checks that everything they
reported as durable is there again.

A flush takes tens of milliseconds, and everything else continues meanwhile: records are appended,
segments roll, quorum states queue up, and the recovery point is written after each flush. Power
fails right after such a step; some controllers are only killed, and find what was never flushed.
Leaders are isolated in between, from all nodes or only from the other voters, so that followers and
brokers have to truncate. A controller that is killed while it truncates its log must not treat the
log as corrupt, and one that loses power must have what it once reported as durable.

Over sockets controllers are killed at random times.
Source: KIP-595, KAFKA-10533; Pillai et al., All File Systems Are Not Created Equal (2014).
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
    OnFrame,
    Trigger,
)
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, Mix
from kraftsim.lab.faults.quorum_spaces import quorum_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICK_SESSIONS, SMALL_BLOCKS, unhurried

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

FIRST_ID, COUNTS = 101, (3, 3, 5)
WORK_SECONDS = 5.0
WORKLOAD = {
    "requesters": 3,
    "ids_per_requester": 200,
    "ids_after": 40,
    "topics": 4,
    "work_ms": int(WORK_SECONDS * 1000),
}
MOMENTS = (
    ("MetadataFlushed", 100),
    ("MetadataReplicated", 150),
    ("VoteSent", 10),
    ("MetadataTruncated", 3),
)
"""Events right after which power may fail, and their approximate number per run."""
OPERATIONS = (
    ("flush", FileClass.METADATA_LOG, 60),
    ("flush", FileClass.QUORUM_STATE, 6),
    ("rename", FileClass.CHECKPOINT, 30),
)
FACTORS = (5, 20, 50, 100)
"""The factors by which flushes are slowed down; normally they take a fraction of a millisecond."""


async def run(stage: ScenarioEnvironment) -> None:
    """Request ids and create topics while power fails, heal, and do both again."""
    ids: list[int] = []
    await stage.wait_for_leader()
    clients = (
        _ask(stage, f"asker-{number}", stage.workload("ids_per_requester"), ids)
        for number in range(1, stage.workload("requesters") + 1)
    )
    await under_faults(
        stage, _create_topics(stage), *clients, seconds=stage.workload("work_ms") / 1000
    )
    await _ask(stage, "asker-last", stage.workload("ids_after"), ids)
    await stage.create_topic("after", 2)
    if len(set(ids)) != len(ids):
        raise ScenarioFailed(
            f"{len(ids)} producer ids were returned, {len(set(ids))} of them distinct"
        )


async def _create_topics(stage: ScenarioEnvironment) -> None:
    for number in range(stage.workload("topics")):
        await stage.create_topic(f"topic-{number}", 1)
        await stage.sleep(WORK_SECONDS / stage.workload("topics"))


async def _ask(stage: ScenarioEnvironment, client_id: str, count: int, ids: list[int]) -> None:
    client = stage.producer_id_client(client_id)
    ids += await client.ask(count)
    await client.close()


# Faults
# --------------------------------------------------------------------------------------------------


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw a schedule: over sockets kills; in simulation slow disks, power losses, kills, and
    isolated leaders.
    """
    if mode is not Mode.SIM:
        return tuple(
            _restart(random, _controller(random), _time(random), power_loss=False)
            for _ in range(random.randint(2, 4))
        )
    factor = random.choice(FACTORS)
    slow: dict[str, int | str | bool | None] = {
        "factor": factor,
        "duration_ms": int(WORK_SECONDS * 1000),
    }
    schedule = [
        Fault(kind="slow-disk", target="controller-*", trigger=AtTime(at_ms=1), params=slow)
    ]
    for _ in range(random.randint(2, 4)):
        schedule += random.choice(
            (_stalled_flushes, _stalled_flushes, _comes_back, _slow_to_vote, _in_mid_snapshot)
        )(random)
    schedule += [
        random.choice((_at_an_event, _on_disk, _reading_on))(random)
        for _ in range(random.randint(2, 6))
    ]
    return (
        *schedule,
        _restart(random, LEADER_TARGET, AtTime(at_ms=int(WORK_SECONDS * 500)), power_loss=True),
    )


def _controller(random: "Random") -> str:
    return f"controller-{FIRST_ID + random.randrange(3)}"


def _at_an_event(random: "Random") -> Fault:
    """Power fails as soon as something is durable, written, or sent."""
    kind, times = random.choice(MOMENTS)
    return _loss(random, AT_THE_TRIGGER, OnEvent(kind=kind, nth=random.randint(1, times)))


def _on_disk(random: "Random") -> Fault:
    """Power fails around a flush of the log or of quorum-state, or right after the rename of a
    recovery-point file.
    """
    operation, file_class, times = random.choice(OPERATIONS)
    moment = "after" if operation == "rename" else random.choice(("before", "after"))
    trigger = OnDisk(
        operation=operation,
        file_class=file_class,
        host=_controller(random),
        nth=random.randint(1, times),
        moment=moment,
    )
    return _loss(random, AT_THE_TRIGGER, trigger)


def _stalled_flushes(random: "Random") -> list[Fault]:
    """Flushes of the leader do not return for a while, and it loses power with everything that it
    has written meanwhile.
    """
    at_ms, duration_ms = random.randint(300, int(WORK_SECONDS * 800)), random.randint(200, 1500)
    params: dict[str, int | str | bool | None] = {
        "file_class": FileClass.METADATA_LOG.value,
        "duration_ms": duration_ms + 50,
    }
    stuck = Fault(
        kind="stuck-flush", target=LEADER_TARGET, trigger=AtTime(at_ms=at_ms), params=params
    )
    return [stuck, _loss(random, LEADER_TARGET, AtTime(at_ms=at_ms + duration_ms))]


def _comes_back(random: "Random") -> list[Fault]:
    """A leader is isolated as soon as it is elected, and fails when it is back and replicates the
    first records of later leaders.
    """
    schedule = []
    for name in (f"controller-{FIRST_ID + index}" for index in random.sample(range(3), 2)):
        alone = OnEvent(kind="ControllerElected", host=name, nth=1)
        schedule.append(
            Fault(
                kind="partition",
                target=name,
                trigger=alone,
                params={"duration_ms": random.randint(900, 1600)},
            )
        )
        nth = random.choice((1, 1, 1, 2, 5))
        for epoch in EPOCHS_OF_SUCCESSORS:
            trigger = OnEvent(
                kind="MetadataReplicated", host=name, fields={"leader_epoch": epoch}, nth=nth
            )
            schedule.append(_restart(random, name, trigger, power_loss=random.random() < 0.3))
    return schedule


EPOCHS_OF_SUCCESSORS = (2, 3, 4)


def _slow_to_vote(random: "Random") -> list[Fault]:
    """The leader is isolated, and a voter cannot store its vote while several candidates request
    it.
    """
    at_ms = random.randint(300, int(WORK_SECONDS * 600))
    alone = Fault(
        kind="partition",
        target=LEADER_TARGET,
        trigger=AtTime(at_ms=at_ms),
        params={"duration_ms": 2500},
    )
    params: dict[str, int | str | bool | None] = {
        "file_class": FileClass.QUORUM_STATE.value,
        "duration_ms": random.randint(1000, 3000),
    }
    return [
        alone,
        Fault(
            kind="stuck-flush",
            target=_controller(random),
            trigger=AtTime(at_ms=at_ms + 1),
            params=params,
        ),
    ]


def _in_mid_snapshot(random: "Random") -> list[Fault]:
    """A controller is isolated until the others' log start offset is above its log end; it fails
    while it fetches a snapshot.
    """
    name, at_ms, away_ms = _controller(random), random.randint(300, 800), random.randint(1500, 2000)
    schedule = [
        Fault(
            kind="partition",
            target=name,
            trigger=AtTime(at_ms=at_ms),
            params={"duration_ms": away_ms},
        )
    ]
    if random.random() < 0.4:
        piece = OnFrame(
            api_key=FETCH_SNAPSHOT,
            is_response=True,
            client=name,
            nth=random.randint(1, 12),
            moment="after",
        )
        schedule.append(
            Fault(
                kind="partition", target=LEADER_TARGET, trigger=piece, params={"duration_ms": 1500}
            )
        )
    else:
        first = OnFrame(api_key=FETCH_SNAPSHOT, is_response=True, client=name, moment="after")
        params: dict[str, int | str | bool | None] = {
            "file_class": UNFINISHED.value,
            "duration_ms": 2500,
        }
        schedule.append(Fault(kind="stuck-flush", target=name, trigger=first, params=params))
    for after_ms in (random.randint(200, 1000), random.randint(1100, 2000)):
        schedule.append(
            _restart(
                random,
                name,
                AtTime(at_ms=at_ms + away_ms + after_ms),
                power_loss=random.random() < 0.4,
            )
        )
    return schedule


FETCH_SNAPSHOT = 59
UNFINISHED = FileClass.OTHER
"""An incomplete snapshot has a temporary name: it is flushed before it is renamed."""


def _loss(random: "Random", target: str, trigger: Trigger) -> Fault:
    """A controller loses power, sometimes in the middle of a write; or it is only killed."""
    draw = random.random()
    if draw < TORN_SHARE:
        shape = random.choice(("prefix", "holes", "holes", "zeros"))
        return Fault(
            kind="torn-write",
            target=target,
            trigger=trigger,
            params={"shape": shape, "after_ms": _down_ms(random)},
        )
    return _restart(random, target, trigger, power_loss=draw > TORN_SHARE + KILLED_SHARE)


TORN_SHARE, KILLED_SHARE = 0.2, 0.3


def _reading_on(random: "Random") -> Fault:
    """The leader loses power, or reaches only brokers: what it writes then is truncated later, and
    brokers may have fetched it.
    """
    trigger = OnEvent(kind="MetadataReplicated", nth=random.randint(10, 200))
    if random.random() < 0.6:
        return _loss(random, LEADER_TARGET, trigger)
    return Fault(
        kind="partition",
        target=f"{LEADER_TARGET}<>controller-*",
        trigger=trigger,
        params={"duration_ms": random.randint(900, 2000)},
    )


def _time(random: "Random") -> AtTime:
    return AtTime(at_ms=random.randint(300, int(WORK_SECONDS * 1000)))


def _down_ms(random: "Random") -> int:
    return random.choice((20, 100, 400, 1500))


def _restart(random: "Random", target: str, trigger: Trigger, *, power_loss: bool) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": power_loss, "after_ms": _down_ms(random)},
    )


def draw_parameters(random: "Random") -> dict[str, str]:
    """Draw the segment size, the size of a Fetch response, and how often the recovery point is
    written.
    """
    drawn = {
        "metadata.log.segment.bytes": random.choice(("150", "400", "6000")),
        "controller.quorum.election.timeout.ms": random.choice(("100", "400", "400")),
        "controller.quorum.fetch.max.bytes": random.choice(("1", "300", "8388608")),
        "log.flush.offset.checkpoint.interval.ms": random.choice(("20", "20", "200")),
        "metadata.log.max.record.bytes.between.snapshots": random.choice(("500", "3000", "100000")),
        "metadata.max.retention.bytes": random.choice(("1000", "1000", "1000000")),
        "controller.quorum.fetch.snapshot.max.bytes": random.choice(("100", "8388608")),
    }
    return {**drawn, **unhurried(drawn)}


SCENARIO = Scenario(
    name="controller_power_loss_slow_disks",
    summary="Disks are slow, and power fails with many unflushed writes; everything that was "
    "reported as durable is there again.",
    must_exercise=(
        "one-leader-per-epoch",
        "one-vote-per-epoch",
        "vote-stored-before-sent",
        "flushed-metadata-retained",
        "quorum-state-restored",
        "metadata-log-matching",
        "metadata-log-contiguous",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "leader-completeness",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    controllers=3,
    controllers_drawn=COUNTS,
    brokers=1,
    settings={
        **QUICK_SESSIONS,
        "controller.quorum.election.backoff.max.ms": "200",
        "controller.quorum.fetch.timeout.ms": "600",
        "metadata.max.idle.interval.ms": "50",
        **SMALL_BLOCKS,
    },
    draw_parameters=draw_parameters,
    fault_space=quorum_fault_space(
        controllers=3,
        brokers=1,
        clients=("asker-1", "asker-2", "asker-3"),
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
