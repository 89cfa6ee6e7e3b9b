"""Controllers join the quorum and leave it while leaders are cut off and die: one log, no producer id twice, and what the operator was told holds.

Four controllers format a quorum whose voters stand in its log (KIP-853). An operator takes voters out and adds them again, one after the other, the
leader among them, so that there are two, three, and four, and does not wait for a quiet moment. Meanwhile askers use up producer ids. In simulation
leaders are alone from the moment on at which they have written other voters, or their first record, so that voters that counted already are cut off
again; controllers lose their power at such moments, connections break, observers look for the leader anew, and somebody is away for so long that the
log begins behind its end.

A candidate that lost pauses for up to a second: whoever believes in voters that were never committed asks the wrong ones for ever, and before
pre-votes (KIP-996) the others must get ahead of its epochs.

When all is mended the operator asks for three certain voters, and must get them.
Source: KIP-853, KIP-595; Ongaro, Consensus: Bridging Theory and Practice (2014), chapter 4, and its erratum on changes by single servers.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.quorum_story import QUICK_SESSIONS, QUICKER_ELECTIONS
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed, within
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault
from kraftsim.faults.terrain import FETCH
from kraftsim.faults.trigger import AtTime, FileClass, OnDisk, OnEvent, OnFrame, Trigger

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

CONTROLLERS = ("controller-101", "controller-102", "controller-103", "controller-104")
BROKERS = ("broker-1", "broker-2")
LAST_VOTERS = ("controller-101", "controller-103", "controller-104")
FEWEST, MOST = 2, 4
WORK_SECONDS = 8.0
CHANGES_SECONDS = 30.0
"""How long it may take to come to the last voters once nothing is in the way: three changes, each after an election at the worst."""
BREAKS_MAX = 16
"""Connections that break in one run. Seldom is it the leader that the broker asks next, and asks by two names before it has answered."""
QUIET_SHARE = 0.2
"""In how many runs no controller is struck but who is away: then a leader stays for long enough to delete what those lack."""
WORKLOAD = {"ids": 2500, "changes": 10, "ids_after": 1100, "work_ms": int(WORK_SECONDS * 1000)}
"""`changes` are asked for while faults strike; `ids_after` once everything is healed."""


async def play(stage: Stage) -> None:
    """Ask for ids while voters change under faults, heal, come to the last voters, and ask again."""
    told: list[int] = []
    work = (_ask(stage, "asker-1", stage.workload("ids"), told), _change(stage, stage.workload("changes")))
    await under_faults(stage, *work, seconds=stage.workload("work_ms") / 1000)
    last = tuple(name for name in LAST_VOTERS if name in stage.spec.controller_names)
    await within(stage, "the last voters", _come_to(stage, last), CHANGES_SECONDS)
    await _ask(stage, "asker-2", stage.workload("ids_after"), told)
    if await stage.voters() != last:
        raise StoryFailed(f"the operator was told that {', '.join(last)} vote, and they are {await stage.voters()}")
    if len(set(told)) != stage.workload("ids") + stage.workload("ids_after"):
        raise StoryFailed(f"{len(told)} producer ids were handed out, of which {len(set(told))} are different")


async def _change(stage: Stage, changes: int) -> None:
    """Ask for one change after the other, whatever comes of it: mostly of whoever fits, at times of whoever leads."""
    random = stage.random("operator")
    for _ in range(changes):
        await stage.sleep(random.uniform(0.1, 1.0))
        voters = await stage.voters()
        if voters is None:
            continue
        others = tuple(name for name in stage.spec.controller_names if name not in voters)
        joins = len(voters) <= FEWEST or (len(voters) < MOST and bool(others) and random.random() < 0.5)
        if joins and others:
            await stage.change_voter(random.choice(others), joins=True)
        elif len(voters) > FEWEST:
            await stage.change_voter(random.choice(voters), joins=False)


async def _come_to(stage: Stage, wanted: tuple[str, ...]) -> None:
    while (voters := await stage.voters()) != wanted:
        lacking = [name for name in wanted if voters is not None and name not in voters]
        spare = [name for name in voters or () if name not in wanted]
        if lacking:
            await stage.change_voter(lacking[0], joins=True)
        elif spare:
            await stage.change_voter(spare[0], joins=False)
        await stage.sleep(0.1)


# Faults ---------------------------------------------------------------------------------------------------------------------------------------------


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw a schedule: over sockets kills and cuts at times; in simulation leaders that are alone, losses of power, and connections that break."""
    if mode is not Mode.SIM:
        return (_death(random, _time(random), random.choice(CONTROLLERS)), _alone(random, _time(random), random.choice(CONTROLLERS)))
    schedule = [_broken(random) for _ in range(random.randint(0, BREAKS_MAX))]
    if random.random() < QUIET_SHARE:
        return (*schedule, _away(random), _away(random))
    schedule += [_alone(random, _written(random)) for _ in range(random.randint(1, 3))]
    schedule += [_death(random, _moment(random)) for _ in range(random.randint(0, 3))]
    if random.random() < 0.5:
        schedule.append(_away(random))
    if random.random() < 0.4:
        schedule.append(_alone(random, OnEvent(kind="ControllerElected", nth=random.choice((1, 1, 2, 3)))))
    return tuple(schedule)


def _alone(random: "Random", trigger: Trigger, target: str = AT_THE_TRIGGER) -> Fault:
    """A controller does not hear anybody, nor anybody it: what it writes then has no future."""
    return Fault(kind="partition", target=target, trigger=trigger, params={"duration_ms": random.randint(500, 4000)})


def _death(random: "Random", trigger: Trigger, target: str = AT_THE_TRIGGER) -> Fault:
    """A controller dies with its power, where there is a simulated disk to lose, and comes back."""
    return Fault(kind="restart", target=target, trigger=trigger, params={"power_loss": True, "after_ms": random.choice((50, 300, 1500))})


def _away(random: "Random") -> Fault:
    """A broker or a controller is down for long, while snapshots are written and the log before them is deleted."""
    trigger = AtTime(at_ms=random.randint(2000, 7000))
    params: dict[str, int | str | bool | None] = {"power_loss": False, "after_ms": random.randint(1500, 6000)}
    return Fault(kind="restart", target=random.choice((*BROKERS, *CONTROLLERS)), trigger=trigger, params=params)


def _broken(random: "Random") -> Fault:
    """A connection breaks on which a broker fetches: it looks for the leader at its bootstrap servers, and goes on asking it as well."""
    trigger = OnFrame(api_key=FETCH, is_response=random.random() < 0.3, client=random.choice(BROKERS), nth=random.randint(1, 250), moment="before")
    return Fault(kind="cut-connection", trigger=trigger, params={"after_bytes": random.choice((-1, 0, 3, 20))})


def _written(random: "Random") -> OnEvent:
    """A leader has written other voters, which count at once; or anything else."""
    if random.random() < 0.7:
        return OnEvent(kind="MetadataAppended", fields={"record_kinds": "Voters"}, nth=random.randint(1, 6))
    return OnEvent(kind="MetadataAppended", nth=random.randint(1, 150))


def _moment(random: "Random") -> Trigger:
    """Other voters are written or copied, somebody votes or leads, or a flush."""
    kind, times = random.choice((("VotersChanged", 20), ("VoteTold", 6), ("ControllerElected", 3), ("MetadataTruncated", 2), ("SnapshotLoaded", 2)))
    if random.random() < 0.7:
        return OnEvent(kind=kind, nth=random.randint(1, times))
    moment = random.choice(("before", "after"))
    return OnDisk(operation="flush", file_class=FileClass.METADATA_LOG, host=random.choice(CONTROLLERS), nth=random.randint(1, 200), moment=moment)


def _time(random: "Random") -> AtTime:
    return AtTime(at_ms=random.randint(500, int(WORK_SECONDS * 1000)))


def swarm(random: "Random") -> Mapping[str, str]:
    """Draw how often snapshots are written, which name the voters, too, how much of the log stays behind them, and how little a Fetch brings."""
    return {
        "metadata.log.max.record.bytes.between.snapshots": random.choice(("700", "1500", "20971520")),
        "metadata.max.retention.bytes": random.choice(("2000", "2000", "8000")),
        "controller.quorum.fetch.max.bytes": random.choice(("1", "8388608")),
    }


async def _ask(stage: Stage, client_id: str, count: int, told: list[int]) -> None:
    asker = stage.id_asker(client_id)
    told += await asker.ask(count)
    await asker.close()


SCENARIO = Scenario(
    name="voters_come_and_go",
    story="Controllers join the quorum and leave it while leaders are cut off and die; one log, and what the operator was told holds.",
    must_exercise=(
        "one-leader-per-epoch",
        "metadata-log-matching",
        "metadata-log-in-one-piece",
        "metadata-copies-noted",
        "voters-count-when-written",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "settles-after-heal",
    ),
    play=play,
    faults=faults,
    swarm=swarm,
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
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
    since="3.9",
)
