"""Runs elections, partitions, pauses, power losses and disk faults on three controllers and three
brokers; checks that the metadata log never forks.

Producer-id clients use up block after block, so that the metadata log grows all the time; snapshots
are written every few kilobytes and the log before them is deleted, so that a node that was down
starts from a snapshot. In simulation faults are triggered by events: a vote that is granted and not
yet stored, a leader that was just elected, a record that is written and not yet committed, a flush
of any file of the quorum. Over sockets nodes are killed, paused and isolated at random times, and
connections break in the middle of a frame.

Every run draws some kinds of faults and omits others (swarm testing): kinds that always occur
together mask each other. Power losses and failed flushes never occur together: after a failed flush
it is unknown what the next power loss removes.
Source: KIP-595, KIP-630, KAFKA-10527, KAFKA-10533, KAFKA-12619, KAFKA-13357, KAFKA-14618; Groce et
al., Swarm Testing (2012).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    FAULTS,
    LEADER_TARGET,
    AtTime,
    Fault,
    FileClass,
    OnDisk,
    OneOf,
    OnEvent,
    OnFrame,
    Trigger,
)
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, cluster_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICK_ELECTIONS, QUICK_SESSIONS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

CONTROLLERS = ("controller-101", "controller-102", "controller-103")
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 8.0
"""How long faults are injected; the clients may take longer."""
WORKLOAD = {
    "requesters": 2,
    "ids_per_requester": 2500,
    "ids_after": 1100,
    "work_ms": int(WORK_SECONDS * 1000),
}
"""`ids_after` are requested after everything is healed."""
QUORUM_APIS = (1, 52, 53, 54, 59)
"""Fetch, Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot."""
QUORUM_FILES = (FileClass.METADATA_LOG, FileClass.QUORUM_STATE, FileClass.CHECKPOINT)


async def run(stage: ScenarioEnvironment) -> None:
    """Request ids under faults, heal, and check that every client is served again; invariants are
    checked from the events.
    """
    await stage.sleep(1.0)
    ids: list[int] = []
    clients, ids_each, ids_after = (
        stage.workload(parameter) for parameter in ("requesters", "ids_per_requester", "ids_after")
    )
    asked = (_ask(stage, f"asker-{number}", ids_each, ids) for number in range(1, clients + 1))
    await under_faults(stage, *asked, seconds=stage.workload("work_ms") / 1000)
    await _ask(stage, "asker-last", ids_after, ids)
    if len(set(ids)) != clients * ids_each + ids_after:
        raise ScenarioFailed(
            f"{len(ids)} producer ids were returned, {len(set(ids))} of them distinct"
        )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw a schedule: over sockets of the kinds that apply there; in simulation of all below, most
    of them triggered by quorum events.
    """
    if mode is not Mode.SIM:
        kinds = random.sample(KINDS_OVER_SOCKETS, 3)
        schedule = [
            _killed_in_time(random),
            *(random.choice(kinds)(random) for _ in range(random.randint(2, 4))),
        ]
        return tuple(fault for fault in schedule if mode.value in FAULTS.named(fault.kind).modes)
    summary = random.random()
    if summary < FIGURE_8_SHARE:
        return _figure_8(random)
    if summary < FIGURE_8_SHARE + LOST_TAIL_SHARE:
        return _lost_tail(random)
    if summary >= 1 - READ_AND_LOST_SHARE:
        return _read_and_lost(random)
    kinds = random.sample(KINDS, random.randint(2, 4))
    if _refused_flush in kinds and any(kind in kinds for kind in (_power_loss, _timed_power_loss)):
        kinds.remove(_refused_flush)
    schedule = [_fail_leader(random) for _ in range(random.randint(1, 3))]
    return (*schedule, *(random.choice(kinds)(random) for _ in range(random.randint(2, 8))))


# Kinds of faults
# --------------------------------------------------------------------------------------------------


def _fail_leader(random: "Random") -> Fault:
    """The leader is killed, isolated or paused, so that there is an election."""
    trigger = OnEvent(kind="MetadataAppended", nth=random.randint(1, 120))
    kind = random.choice(("restart", "partition", "pause"))
    if kind == "restart":
        return _restart(random, AT_THE_TRIGGER, trigger)
    return Fault(kind=kind, trigger=trigger, params={"duration_ms": random.randint(500, 4000)})


def _kill(random: "Random") -> Fault:
    """A node is killed at a quorum event, and restarted."""
    return _restart(random, AT_THE_TRIGGER, _moment(random))


def _killed_in_time(random: "Random") -> Fault:
    """A node is killed at a random time, and restarted."""
    return _restart(random, random.choice((*CONTROLLERS, *CONTROLLERS, *BROKERS)), _time(random))


def _power_loss(random: "Random") -> Fault:
    """A controller loses power at a quorum event: what it had not flushed is lost."""
    return _restart(random, AT_THE_TRIGGER, _moment(random), power_loss=True)


def _timed_power_loss(random: "Random") -> Fault:
    """A controller loses power at a random time, perhaps together with others."""
    return _restart(
        random,
        random.choice(CONTROLLERS),
        AtTime(at_ms=random.choice((2000, 5000, 8000))),
        power_loss=True,
    )


def _partition(random: "Random") -> Fault:
    """Two controllers are partitioned, in one direction or both."""
    one, other = random.sample(CONTROLLERS, 2)
    target = f"{one}{random.choice(('>', '<>'))}{other}"
    return Fault(
        kind="partition",
        target=target,
        trigger=_time(random),
        params={"duration_ms": random.randint(300, 6000)},
    )


def _isolate_leader(random: "Random") -> Fault:
    """The leader at a random time is isolated from all nodes."""
    return Fault(
        kind="partition",
        target=LEADER_TARGET,
        trigger=_time(random),
        params={"duration_ms": random.randint(500, 4000)},
    )


def _isolated_leader(random: "Random") -> Fault:
    """A leader that was just elected is isolated from all nodes."""
    return Fault(
        kind="partition",
        trigger=_elected(random),
        params={"duration_ms": random.randint(500, 6000)},
    )


def _break_frame(random: "Random") -> Fault:
    """A connection between controllers breaks in the middle of a frame."""
    return Fault(
        kind="cut-connection",
        trigger=_frame(random),
        params={"after_bytes": random.choice((-1, 0, 3, 20))},
    )


def _pause(random: "Random") -> Fault:
    """A controller is paused."""
    trigger = random.choice((_time(random), _elected(random)))
    target = random.choice(CONTROLLERS) if isinstance(trigger, AtTime) else AT_THE_TRIGGER
    return Fault(
        kind="pause",
        target=target,
        trigger=trigger,
        params={"duration_ms": random.randint(100, 6000)},
    )


def _timed_pause(random: "Random") -> Fault:
    """A controller is paused at a random time."""
    return Fault(
        kind="pause",
        target=random.choice(CONTROLLERS),
        trigger=_time(random),
        params={"duration_ms": random.randint(100, 4000)},
    )


def _slow_network(random: "Random") -> Fault:
    """All messages of a controller are slow."""
    params: dict[str, int | str | bool | None] = {
        "latency_ms": random.randint(5, 300),
        "jitter_ms": random.randint(5, 300),
        "duration_ms": 5000,
    }
    return Fault(
        kind="slow-link", target=random.choice(CONTROLLERS), trigger=_time(random), params=params
    )


def _slow_disk(random: "Random") -> Fault:
    """A controller's flushes are slow: others fetch records that are not durable on the leader."""
    params: dict[str, int | str | bool | None] = {
        "factor": random.choice((20, 200, 1000)),
        "duration_ms": random.randint(500, 5000),
    }
    return Fault(
        kind="slow-disk", target=random.choice(CONTROLLERS), trigger=_time(random), params=params
    )


def _full_disk(random: "Random") -> Fault:
    """A controller's disk is full: the controller halts, and is restarted when the disk is
    healed.
    """
    return Fault(
        kind="disk-full",
        target=random.choice(CONTROLLERS),
        trigger=_time(random),
        params={"duration_ms": random.randint(200, 3000)},
    )


def _refused_flush(random: "Random") -> Fault:
    """A flush of a file of the quorum fails: the node halts."""
    params: dict[str, int | str | bool | None] = {
        "times": 1,
        "file_class": random.choice(QUORUM_FILES).value,
    }
    return Fault(
        kind="flush-error", target=random.choice(CONTROLLERS), trigger=_time(random), params=params
    )


KINDS: tuple[Callable[["Random"], Fault], ...] = (
    _kill,
    _power_loss,
    _timed_power_loss,
    _partition,
    _isolated_leader,
    _break_frame,
    _pause,
    _slow_network,
    _slow_disk,
    _full_disk,
    _refused_flush,
)
KINDS_OVER_SOCKETS: tuple[Callable[["Random"], Fault], ...] = (
    _killed_in_time,
    _partition,
    _isolate_leader,
    _break_frame,
    _timed_pause,
    _slow_network,
)
FIGURE_8_SHARE = 0.15
LOST_TAIL_SHARE = 0.15
READ_AND_LOST_SHARE = 0.12
EPOCHS_OF_FIGURE_8 = range(3, 9)
FETCH_BYTES = (1, 1, 150, 400, 8388608)
"""The largest Fetch response between controllers: if it is small, the high watermark stops at every
batch.
"""


def _figure_8(random: "Random") -> tuple[Fault, ...]:
    """Two leaders are isolated in turn, each with records that no other voter has.

    The first leads again, replicates its old records, and fails.

    Then the second returns, whose last epoch is higher: figure 8 of the Raft paper.
    """
    isolations: list[tuple[OnEvent, int]] = [
        (OnEvent(kind="MetadataAppended", nth=random.randint(3, 25)), random.randint(1400, 2600)),
        (OnEvent(kind="ControllerElected", nth=1), random.randint(2500, 5000)),
    ]
    isolations += [
        (
            OnEvent(kind="HighWatermarkMoved", fields={"is_leader": True, "leader_epoch": epoch}),
            8000,
        )
        for epoch in EPOCHS_OF_FIGURE_8
    ]
    schedule = [
        Fault(kind="partition", trigger=trigger, params={"duration_ms": duration_ms})
        for trigger, duration_ms in isolations
    ]
    if random.random() < 0.3:
        schedule.append(_restart(random, random.choice(CONTROLLERS), _time(random)))
    return tuple(schedule)


def _lost_tail(random: "Random") -> tuple[Fault, ...]:
    """Slow disks, and leaders that lose power with records that others have fetched, and return
    before an election starts.
    """
    schedule = _slow_disks(random)
    for _ in range(random.randint(2, 4)):
        trigger = OnFrame(
            api_key=QUORUM_APIS[0],
            is_response=True,
            server=random.choice(CONTROLLERS),
            nth=random.randint(20, 200),
            moment="after",
        )
        params: dict[str, int | str | bool | None] = {
            "power_loss": True,
            "after_ms": random.randint(10, 300),
        }
        schedule.append(Fault(kind="restart", trigger=trigger, params=params))
    return tuple(schedule)


def _read_and_lost(random: "Random") -> tuple[Fault, ...]:
    """The same, triggered: the leader loses power as soon as another voter has written what it
    fetched, and returns soon.
    """
    schedule = _slow_disks(random)
    for _ in range(random.randint(2, 4)):
        trigger = OnEvent(kind="MetadataReplicated", nth=random.randint(5, 400))
        params: dict[str, int | str | bool | None] = {
            "power_loss": True,
            "after_ms": random.randint(10, 300),
        }
        schedule.append(Fault(kind="restart", target=LEADER_TARGET, trigger=trigger, params=params))
    return tuple(schedule)


def _slow_disks(random: "Random") -> list[Fault]:
    """The flushes of all controllers are slow."""
    params: list[dict[str, int | str | bool | None]] = [
        {"factor": random.choice((20, 100)), "duration_ms": 7000} for _ in CONTROLLERS
    ]
    return [
        Fault(kind="slow-disk", target=name, trigger=AtTime(at_ms=1), params=each)
        for name, each in zip(CONTROLLERS, params, strict=True)
    ]


# Triggers
# --------------------------------------------------------------------------------------------------


def _moment(random: "Random") -> Trigger:
    """Draw one of the triggers at which a crash is most revealing."""
    return random.choice((_elected, _voted, _appended, _learned, _on_disk, _on_disk, _frame))(
        random
    )


def _time(random: "Random") -> AtTime:
    return AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))


def _elected(random: "Random") -> OnEvent:
    """A leader was just elected."""
    return OnEvent(kind="ControllerElected", nth=random.randint(1, 2))


def _voted(random: "Random") -> OnEvent:
    """A vote is granted and not yet on disk; or it is on disk and about to be sent."""
    if random.random() < 0.5:
        return OnEvent(
            kind="VoteAnswered",
            fields={"is_granted": True, "is_pre_vote": False},
            nth=random.randint(1, 4),
        )
    return OnEvent(kind="VoteSent", nth=random.randint(1, 6))


def _appended(random: "Random") -> OnEvent:
    """A record is appended and not committed, on the leader or on a follower."""
    if random.random() < 0.5:
        return OnEvent(kind="MetadataAppended", nth=random.randint(1, 120))
    return OnEvent(
        kind="MetadataWritten", host=random.choice(CONTROLLERS), nth=random.randint(1, 120)
    )


def _learned(random: "Random") -> OnEvent:
    """A record is committed, and its response or the new high watermark is not yet sent."""
    return OnEvent(
        kind="HighWatermarkMoved", fields={"is_leader": True}, nth=random.randint(1, 120)
    )


def _on_disk(random: "Random") -> OnDisk:
    """Before or after a write, flush or rename of a file of the quorum."""
    file_class = random.choice(QUORUM_FILES)
    operation = random.choice(
        ("write", "flush") if file_class is FileClass.METADATA_LOG else ("write", "flush", "rename")
    )
    nth = random.randint(1, 60 if file_class is FileClass.METADATA_LOG else 8)
    return OnDisk(
        operation=operation,
        file_class=file_class,
        host=random.choice(CONTROLLERS),
        nth=nth,
        moment=random.choice(("before", "after")),
    )


def _frame(random: "Random") -> OnFrame:
    """Before or after a request or response between controllers is sent."""
    api_key = random.choice(QUORUM_APIS)
    return OnFrame(
        api_key=api_key,
        is_response=random.random() < 0.5,
        server=random.choice(CONTROLLERS),
        nth=random.randint(1, 100 if api_key == QUORUM_APIS[0] else 4),
        moment=random.choice(("before", "after")),
    )


def _restart(random: "Random", target: str, trigger: Trigger, *, power_loss: bool = False) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": power_loss, "after_ms": random.randint(20, 4000)},
    )


# Settings
# --------------------------------------------------------------------------------------------------


def _draw_settings(random: "Random") -> dict[str, str]:
    """Draw the settings of a run."""
    return {"controller.quorum.fetch.max.bytes": str(random.choice(FETCH_BYTES))}


# Work
# --------------------------------------------------------------------------------------------------


async def _ask(stage: ScenarioEnvironment, client_id: str, count: int, ids: list[int]) -> None:
    client = stage.producer_id_client(client_id)
    ids += await client.ask(count)
    await client.close()


SCENARIO = Scenario(
    name="quorum_under_faults",
    summary="Three controllers go through elections, partitions, power losses and disk faults; "
    "their log never forks, and all requests complete.",
    must_exercise=(
        "one-leader-per-epoch",
        "one-vote-per-epoch",
        "metadata-log-matching",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "snapshot-equals-log",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "producer-id-inside-owned-block",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    controllers=3,
    settings={
        **QUICK_SESSIONS,
        **QUICK_ELECTIONS,
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.idle.interval.ms": "50",
        "metadata.log.segment.bytes": "4000",
        "metadata.max.retention.bytes": "8000",
    },
    draw_parameters=_draw_settings,
    fault_space=cluster_fault_space(
        controllers=3,
        brokers=3,
        clients=("asker-1", "asker-2"),
        apis=PRODUCER_ID_APIS,
        brokers_keep_records=False,
        fault_seconds=WORK_SECONDS,
        settings={
            "metadata.log.max.record.bytes.between.snapshots": OneOf(
                ("500", "1000", "2000", "3000")
            )
        },
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=1,
    fewest_brokers=1,
)
