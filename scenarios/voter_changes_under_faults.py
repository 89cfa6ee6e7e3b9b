"""Adds and removes quorum voters while leaders are isolated and killed; checks for one log, unique
producer ids, and the acknowledged voter set.

Four controllers format a quorum whose voters are in its log (KIP-853). An operator removes and adds
voters one after the other, the leader among them, so that there are two, three and four, without
waiting for the cluster to settle. Meanwhile clients use up producer ids. In simulation leaders are
isolated as soon as they have written another voter set, or their first record, so that voter sets
that were in effect are truncated again; controllers lose power at such times, connections break,
observers search for the leader again, and a node is down for so long that the log starts after its
end.

A losing candidate backs off for up to a second: one that uses a voter set that was never committed
requests votes from the wrong voters forever, and without pre-vote (KIP-996) the others must exceed
its epochs.

After everything is healed the operator requests a final set of three voters, and must get it.
Source: KIP-853, KIP-595; Ongaro, Consensus: Bridging Theory and Practice (2014), chapter 4, and its
erratum on changes by single servers.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed, within
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    AtTime,
    DataLoss,
    Fault,
    FileClass,
    OnDisk,
    OnEvent,
    OnFrame,
    Trigger,
)
from kraftsim.lab.faults.fault_space import FETCH, PRODUCER_ID_APIS
from kraftsim.lab.faults.quorum_spaces import quorum_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICK_SESSIONS, QUICKER_ELECTIONS, unhurried

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

CONTROLLERS = ("controller-101", "controller-102", "controller-103", "controller-104")
BROKERS = ("broker-1", "broker-2")
LAST_VOTERS = ("controller-101", "controller-103", "controller-104")
FEWEST, MOST = 2, 4
WORK_SECONDS = 8.0
CHANGES_SECONDS = 30.0
"""How long it may take to reach the final voters without faults: three changes, each after an
election at worst.
"""
BREAKS_MAX = 16
"""The number of connections that break in a run: many, because the case to hit, a broker that
reconnects to the leader, is rare.
"""
QUIET_SHARE = 0.2
"""The share of runs in which the only fault is a node that is down: the leader stays for long
enough to delete what the node lacks.
"""
WORKLOAD = {"ids": 2500, "changes": 10, "ids_after": 1100, "work_ms": int(WORK_SECONDS * 1000)}
"""`changes` are requested under faults; `ids_after` after everything is healed."""


async def run(stage: ScenarioEnvironment) -> None:
    """Request ids while voters change under faults, heal, reach the final voters, and request
    more.
    """
    ids: list[int] = []
    work = (
        _ask(stage, "asker-1", stage.workload("ids"), ids),
        _change(stage, stage.workload("changes")),
    )
    await under_faults(stage, *work, seconds=stage.workload("work_ms") / 1000)
    last = tuple(name for name in LAST_VOTERS if name in stage.spec.controller_names)
    await within(stage, "the last voters", _come_to(stage, last), CHANGES_SECONDS)
    await _ask(stage, "asker-2", stage.workload("ids_after"), ids)
    if await stage.voters() != last:
        raise ScenarioFailed(
            f"the acknowledged voters are {', '.join(last)}, the actual ones {await stage.voters()}"
        )
    if len(set(ids)) != stage.workload("ids") + stage.workload("ids_after"):
        raise ScenarioFailed(
            f"{len(ids)} producer ids were returned, {len(set(ids))} of them distinct"
        )


async def _change(stage: ScenarioEnvironment, changes: int) -> None:
    """Request one change after the other, ignoring the results: mostly of a random controller,
    sometimes of the leader.
    """
    random = stage.random("operator")
    for _ in range(changes):
        await stage.sleep(random.uniform(0.1, 1.0))
        voters = await stage.voters()
        if voters is None:
            continue
        others = tuple(name for name in stage.spec.controller_names if name not in voters)
        joins = len(voters) <= FEWEST or (
            len(voters) < MOST and bool(others) and random.random() < 0.5
        )
        if joins and others:
            await stage.change_voter(random.choice(others), joins=True)
        elif len(voters) > FEWEST:
            await stage.change_voter(random.choice(voters), joins=False)


async def _come_to(stage: ScenarioEnvironment, wanted: tuple[str, ...]) -> None:
    while (voters := await stage.voters()) != wanted:
        lacking = [name for name in wanted if voters is not None and name not in voters]
        spare = [name for name in voters or () if name not in wanted]
        if lacking:
            await stage.change_voter(lacking[0], joins=True)
        elif spare:
            await stage.change_voter(spare[0], joins=False)
        await stage.sleep(0.1)


# Faults
# --------------------------------------------------------------------------------------------------


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw a schedule: over sockets kills and partitions; in simulation isolated leaders, power
    losses, and broken connections.
    """
    if mode is not Mode.SIM:
        return (
            _kill(random, _time(random), random.choice(CONTROLLERS)),
            _alone(random, _time(random), random.choice(CONTROLLERS)),
        )
    schedule = [_broken(random) for _ in range(random.randint(0, BREAKS_MAX))]
    if random.random() < QUIET_SHARE:
        return (*schedule, _away(random), _away(random))
    schedule += [_alone(random, _written(random)) for _ in range(random.randint(1, 3))]
    schedule += [_kill(random, _moment(random)) for _ in range(random.randint(0, 3))]
    if random.random() < 0.5:
        schedule.append(_away(random))
    if random.random() < 0.4:
        schedule.append(
            _alone(random, OnEvent(kind="ControllerElected", nth=random.choice((1, 1, 2, 3))))
        )
    return tuple(schedule)


def _alone(random: "Random", trigger: Trigger, target: str = AT_THE_TRIGGER) -> Fault:
    """A controller is isolated from all nodes: what it writes then is truncated later."""
    return Fault(
        kind="partition",
        target=target,
        trigger=trigger,
        params={"duration_ms": random.randint(500, 4000)},
    )


def _kill(random: "Random", trigger: Trigger, target: str = AT_THE_TRIGGER) -> Fault:
    """A controller is killed, in simulation with a power loss, and restarted."""
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": True, "after_ms": random.choice((50, 300, 1500))},
    )


def _away(random: "Random") -> Fault:
    """A broker or a controller is down for long, while snapshots are written and the log before
    them is deleted.
    """
    trigger = AtTime(at_ms=random.randint(2000, 7000))
    params: dict[str, int | str | bool | None] = {
        "power_loss": False,
        "after_ms": random.randint(1500, 6000),
    }
    return Fault(
        kind="restart",
        target=random.choice((*BROKERS, *CONTROLLERS)),
        trigger=trigger,
        params=params,
    )


def _broken(random: "Random") -> Fault:
    """A connection on which a broker fetches breaks: it searches for the leader at its bootstrap
    servers, and also continues to fetch.
    """
    trigger = OnFrame(
        api_key=FETCH,
        is_response=random.random() < 0.3,
        client=random.choice(BROKERS),
        nth=random.randint(1, 250),
        moment="before",
    )
    return Fault(
        kind="cut-connection",
        trigger=trigger,
        params={"after_bytes": random.choice((-1, 0, 3, 20))},
    )


def _written(random: "Random") -> OnEvent:
    """A leader has written another voter set, which takes effect at once; or any other record."""
    if random.random() < 0.7:
        return OnEvent(
            kind="MetadataAppended", fields={"record_kinds": "Voters"}, nth=random.randint(1, 6)
        )
    return OnEvent(kind="MetadataAppended", nth=random.randint(1, 150))


def _moment(random: "Random") -> Trigger:
    """A voter set is written or replicated, a vote, an election, or a flush."""
    kind, times = random.choice(
        (
            ("VotersChanged", 20),
            ("VoteSent", 6),
            ("ControllerElected", 3),
            ("MetadataTruncated", 2),
            ("SnapshotLoaded", 2),
        )
    )
    if random.random() < 0.7:
        return OnEvent(kind=kind, nth=random.randint(1, times))
    moment = random.choice(("before", "after"))
    return OnDisk(
        operation="flush",
        file_class=FileClass.METADATA_LOG,
        host=random.choice(CONTROLLERS),
        nth=random.randint(1, 200),
        moment=moment,
    )


def _time(random: "Random") -> AtTime:
    return AtTime(at_ms=random.randint(500, int(WORK_SECONDS * 1000)))


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw how often snapshots, which contain the voters, are written, how much log is kept after
    them, and the size of a Fetch response.
    """
    drawn = {
        "metadata.log.max.record.bytes.between.snapshots": random.choice(
            ("700", "1500", "20971520")
        ),
        "metadata.max.retention.bytes": random.choice(("2000", "2000", "8000")),
        "controller.quorum.fetch.max.bytes": random.choice(("1", "8388608")),
    }
    return {**drawn, **unhurried(drawn)}


async def _ask(stage: ScenarioEnvironment, client_id: str, count: int, ids: list[int]) -> None:
    client = stage.producer_id_client(client_id)
    ids += await client.ask(count)
    await client.close()


SCENARIO = Scenario(
    name="voter_changes_under_faults",
    summary="Controllers join and leave the quorum while leaders are isolated and killed; there is "
    "one log, and acknowledged voter changes hold.",
    must_exercise=(
        "one-leader-per-epoch",
        "metadata-log-matching",
        "metadata-log-contiguous",
        "flushed-metadata-has-origin",
        "voter-set-effective-when-appended",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    draw_parameters=draw_parameters,
    controllers=4,
    first_voters=4,
    brokers=2,
    settings={
        **QUICK_SESSIONS,
        **QUICKER_ELECTIONS,
        "controller.quorum.election.backoff.max.ms": "1000",
        "controller.quorum.request.timeout.ms": "1000",
        "metadata.max.idle.interval.ms": "50",
        "metadata.log.segment.bytes": "600",
    },
    fault_space=quorum_fault_space(
        controllers=4,
        brokers=2,
        clients=("asker-1",),
        apis=PRODUCER_ID_APIS,
        may_lose=(DataLoss.UNFLUSHED,),  # the class of the scenario's own faults
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
    since="3.9",
)
