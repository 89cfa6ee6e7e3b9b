"""Histories of elections and of leaders that resign, clean and violating: rows for the table in
`cases.py`.
"""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.events.runs import FaultInjected
from kraftsim.invariants.verdict import Outcome
from kraftsim.metadata.events import ControllerElected, MetadataCommitted
from kraftsim.raft.events import (
    CheckQuorumFailed,
    ElectionLost,
    ElectionOpened,
    HighWatermarkReported,
    LaterEpochAnswered,
    QuorumTimersSet,
    RaftRoleChanged,
)
from tests.analysis.connection_cases import begun
from tests.analysis.event_factories import loaded, stored, voted
from tests.analysis.history import History, LoggedEvent
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

MAJORITY = "leader-elected-by-majority"
UNHEARD = "resignation-only-below-majority"
REFUSED = "stale-epochs-refused"
REPORTED = "high-watermark-monotonic-across-epochs"
ASK = "pre-vote-before-election"
TIME = "election-timeouts-respected"
GROWS = "high-watermark-monotonic"
MS = 10
"""Time between two consecutive events of a row about times."""
NS_PER_MS = 1_000_000
LAST = tuple[str, ...]
Row = tuple[str, str, list[LoggedEvent], Outcome, int, LAST, tuple[LAST, ...], int]


def won(leader_epoch: int, leader_id: int, voter_count: int = 3) -> ControllerElected:
    """A controller becomes leader."""
    return ControllerElected(
        leader_epoch=leader_epoch,
        epoch_start_offset=0,
        leader_id=leader_id,
        voter_count=voter_count,
    )


def resigned(
    reachable_count: int, voter_count: int, *, kraft_version: int = 0
) -> CheckQuorumFailed:
    """A leader resigns."""
    return CheckQuorumFailed(
        leader_epoch=2,
        reachable_count=reachable_count,
        voter_count=voter_count,
        kraft_version=kraft_version,
    )


def later(error_code: int) -> LaterEpochAnswered:
    """A replica knows a later epoch."""
    return LaterEpochAnswered(
        asked_node_id=102, asked_epoch=3, leader_epoch=4, error_code=error_code
    )


def reported(leader_epoch: int, high_watermark: int) -> HighWatermarkReported:
    """A leader returns its high watermark."""
    return HighWatermarkReported(leader_epoch=leader_epoch, high_watermark=high_watermark)


def leads_to(high_watermark: int) -> MetadataCommitted:
    """A leader advances its high watermark."""
    return MetadataCommitted(leader_epoch=1, high_watermark=high_watermark)


def timers(
    *, has_pre_vote: bool = False, election_ms: int = 400, backoff_ms: int = 300
) -> QuorumTimersSet:
    """A process starts."""
    return QuorumTimersSet(
        fetch_timeout_ms=600,
        election_timeout_ms=election_ms,
        election_backoff_max_ms=backoff_ms,
        has_pre_vote=has_pre_vote,
    )


def role(name: str, leader_epoch: int) -> RaftRoleChanged:
    """A replica changes its role."""
    return RaftRoleChanged(
        role=name, leader_epoch=leader_epoch, leader_id=-1, voted_id=-1, is_voter=True
    )


def becomes_candidate(leader_epoch: int, timeout_ms: int = 400) -> list[Event]:
    """A replica starts an election."""
    return [
        role("Candidate", leader_epoch),
        ElectionOpened(leader_epoch=leader_epoch, timeout_ms=timeout_ms),
    ]


def lost(leader_epoch: int, defeats: int, pause_ms: int = 100) -> ElectionLost:
    """An election is lost."""
    return ElectionLost(leader_epoch=leader_epoch, defeats=defeats, pause_ms=pause_ms)


def fired(fault: str) -> FaultInjected:
    """A fault is injected."""
    return FaultInjected(fault=fault, target="a", trigger="")


def row(
    name: str,
    invariant: str,
    events: list[LoggedEvent],
    outcome: Outcome,
    examined: int,
    *keys: str,
    between_ms: int = 0,
) -> Row:
    return (name, invariant, events, outcome, examined, keys, (), between_ms)


SIM = on("h", begun("sim"))
ELECTION_ROWS: list[Row] = [
    # --- votes of a majority
    row(
        "two of three",
        MAJORITY,
        [("a", voted(2, 101)), ("b", voted(2, 101)), ("a", won(2, 101))],
        OK,
        1,
    ),
    row(
        "the vote for itself needs no event",
        MAJORITY,
        [("b", voted(2, 101)), ("a", won(2, 101))],
        OK,
        1,
    ),
    row(
        "votes of another epoch",
        MAJORITY,
        [("b", voted(1, 101)), ("a", voted(2, 101)), ("a", won(2, 101))],
        VIOLATED,
        1,
        "a.1.1",
    ),
    row(
        "votes for another",
        MAJORITY,
        [("b", voted(2, 103)), ("a", won(2, 101))],
        VIOLATED,
        1,
        "a.1.0",
    ),
    row(
        "half of four",
        MAJORITY,
        [("b", voted(2, 101)), ("b", voted(2, 101)), ("a", won(2, 101, 4))],
        VIOLATED,
        1,
        "a.1.0",
    ),
    row(
        "a vote that comes later",
        MAJORITY,
        [("a", won(2, 101)), ("b", voted(2, 101))],
        VIOLATED,
        1,
        "a.1.0",
    ),
    row("a sole voter", MAJORITY, on("a", won(2, 101, 1)), OK, 1),
    row("a pre-KRaft controller", MAJORITY, on("a", won(2, -1, 0)), VACUOUS, 0),
    # --- leaders that resign
    row(
        "no fetches from other voters",
        UNHEARD,
        on("a", resigned(1, 3), resigned(2, 4), resigned(2, 5)),
        OK,
        3,
    ),
    row("fetches from one of two others", UNHEARD, on("a", resigned(2, 3)), VIOLATED, 1, "a.1.0"),
    row(
        "the voters may have been others",
        UNHEARD,
        on("a", resigned(2, 3, kraft_version=1)),
        VACUOUS,
        0,
    ),
    # --- outdated epochs
    row("refused with the current epoch", REFUSED, on("a", later(74), later(6)), OK, 2),
    row("served in another epoch", REFUSED, on("a", later(74), later(0)), VIOLATED, 2, "a.1.1"),
    row("no replica is behind", REFUSED, on("a", reported(1, 1)), VACUOUS, 0),
    # --- high watermarks in responses
    row(
        "higher with each epoch",
        REPORTED,
        [
            *on("a", reported(1, 5), reported(1, 9)),
            *on("b", reported(3, 9), reported(3, 12)),
            *on("a", reported(2, 7)),
        ],
        VIOLATED,
        5,
        "2",
    ),
    row(
        "a later leader knows less",
        REPORTED,
        [*on("a", reported(1, 5), reported(1, 9)), *on("b", reported(2, 8), reported(2, 10))],
        VIOLATED,
        4,
        "2",
    ),
    row(
        "a later leader knows as much",
        REPORTED,
        [*on("a", reported(1, 5), reported(1, 9)), *on("b", reported(2, 9))],
        OK,
        3,
    ),
    row(
        "an old leader, late",
        REPORTED,
        [*on("b", reported(2, 10)), *on("a", reported(1, 9))],
        OK,
        2,
    ),
    row("no requests", REPORTED, on("a", voted(1, 2)), VACUOUS, 0),
    row(
        "committed further and further",
        GROWS,
        on("a", leads_to(4), leads_to(5), loaded(9), leads_to(10)),
        OK,
        3,
    ),
    row("committed again", GROWS, on("a", leads_to(4), leads_to(4)), VIOLATED, 2, "a.1.1"),
    # --- pre-votes
    row(
        "a pre-vote and an election",
        ASK,
        on(
            "a",
            timers(has_pre_vote=True),
            role("Follower", 1),
            role("Prospective", 1),
            *becomes_candidate(2),
        ),
        OK,
        2,
    ),
    row(
        "an election without a pre-vote",
        ASK,
        on("a", timers(has_pre_vote=True), role("Follower", 1), *becomes_candidate(2)),
        VIOLATED,
        1,
        "a.1.2",
    ),
    row(
        "a second election at once",
        ASK,
        on(
            "a",
            timers(has_pre_vote=True),
            role("Prospective", 1),
            *becomes_candidate(2),
            *becomes_candidate(3),
        ),
        VIOLATED,
        2,
        "a.1.4",
    ),
    row(
        "a release without pre-votes",
        ASK,
        on("a", timers(), role("Follower", 1), *becomes_candidate(2), *becomes_candidate(3)),
        OK,
        2,
    ),
    row(
        "a pre-vote in a release without pre-votes",
        ASK,
        on("a", timers(), role("Follower", 1), role("Prospective", 1)),
        VIOLATED,
        1,
        "a.1.2",
    ),
    row(
        "a vote during a pre-vote",
        ASK,
        on("a", timers(has_pre_vote=True), *[role("Prospective", 1)] * 3, *becomes_candidate(2)),
        OK,
        1,
    ),
    row(
        "a candidate when it stopped",
        ASK,
        [*on("a", timers(has_pre_vote=True)), ("a", role("Candidate", 2))],
        VACUOUS,
        0,
    ),
    row(
        "it is unknown whether pre-votes are used",
        ASK,
        on("a", role("Follower", 1), *becomes_candidate(2)),
        VACUOUS,
        0,
    ),
    # --- times of elections
    row(
        "in time",
        TIME,
        [*SIM, *on("a", timers(), *becomes_candidate(2, 20), lost(2, 1, 10), role("Follower", 3))],
        OK,
        2,
        between_ms=MS,
    ),
    row(
        "a candidate for too long",
        TIME,
        [*SIM, *on("a", timers(), *becomes_candidate(2, 19), lost(2, 1, 10))],
        VIOLATED,
        1,
        "a.1.3",
        between_ms=MS,
    ),
    row(
        "wins too late",
        TIME,
        [*SIM, *on("a", timers(), *becomes_candidate(2, 19), role("Leader", 2))],
        VIOLATED,
        1,
        "a.1.3",
        between_ms=MS,
    ),
    row(
        "backs off too long",
        TIME,
        [*SIM, *on("a", timers(), lost(2, 1, 9), role("Follower", 3))],
        VIOLATED,
        1,
        "a.1.2",
        between_ms=MS,
    ),
    row(
        "longer than its backoff",
        TIME,
        [*SIM, *on("a", timers(backoff_ms=9), lost(2, 1, 50), *becomes_candidate(3))],
        VIOLATED,
        1,
        "a.1.2",
        between_ms=MS,
    ),
    row(
        "longer than its election timeout",
        TIME,
        [*SIM, *on("a", timers(election_ms=10), *becomes_candidate(2, 50), lost(2, 1))],
        VIOLATED,
        1,
        "a.1.3",
        between_ms=MS,
    ),
    row(
        "on a machine that may be slow",
        TIME,
        [*on("h", begun("processes")), *on("a", timers(), *becomes_candidate(2, 5), lost(2, 1))],
        VACUOUS,
        0,
        between_ms=MS,
    ),
    row(
        "a host is paused",
        TIME,
        [*SIM, *on("h", fired("pause")), *on("a", timers(), *becomes_candidate(2, 5), lost(2, 1))],
        VACUOUS,
        0,
        between_ms=MS,
    ),
    row(
        "a link is down",
        TIME,
        [
            *SIM,
            *on("h", fired("partition")),
            *on("a", timers(), *becomes_candidate(2, 5), lost(2, 1)),
        ],
        VIOLATED,
        1,
        "a.1.3",
        between_ms=MS,
    ),
    row(
        "consecutive lost elections",
        TIME,
        on("a", lost(2, 1), *becomes_candidate(3), lost(3, 2), *becomes_candidate(4), lost(4, 3)),
        OK,
        2,
    ),
    row(
        "a lost election is not counted",
        TIME,
        on("a", lost(2, 1), *becomes_candidate(3), lost(3, 1)),
        VIOLATED,
        1,
        "a.1.3/defeats",
    ),
    row(
        "another led in between",
        TIME,
        on("a", lost(2, 3), role("Follower", 3), *becomes_candidate(4), lost(4, 1)),
        VACUOUS,
        0,
    ),
    row(
        "an earlier incarnation",
        TIME,
        [("a", lost(2, 3)), *[("a", 2, event) for event in (*becomes_candidate(3), lost(3, 1))]],
        VACUOUS,
        0,
    ),
]


def add_election_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let two voters start, lose and win elections and back off, and leaders resign, mostly
    correctly.
    """
    history.emit("harness", fired("pause" if slip() else "partition"))
    for node, has_pre_vote in (("voter-1", False), ("voter-2", True)):
        history.emit(node, timers(has_pre_vote=has_pre_vote, election_ms=20, backoff_ms=30))
        history.emit(node, role("Follower", 50))
        defeats = 0
        for leader_epoch in range(51, random.randrange(53, 57)):
            if has_pre_vote != slip():
                history.emit(node, role("Prospective", leader_epoch - 1))
                defeats = 0
            timeout_ms, pause_ms = random.randrange(20, 40), random.randrange(30)
            for event in becomes_candidate(leader_epoch, timeout_ms):
                history.emit(node, event)
            defeats += not slip()
            late_ms = 2 if slip() else 0
            history.emit(
                node,
                lost(leader_epoch, defeats, pause_ms),
                after_ns=(timeout_ms + late_ms) * NS_PER_MS,
            )
            history.emit(
                "harness",
                later(0 if slip() else 74),
                after_ns=(pause_ms + (2 if slip() else 0)) * NS_PER_MS,
            )
    for leader_epoch, high_watermark in (
        (-3, 10),
        (-2, 20),
        (-1, 30),
    ):  # before all epochs in which something is committed
        for other in ("voter-2", "voter-3"):
            if not slip():
                history.emit(other, stored(leader_epoch, 1))
                history.emit(other, voted(leader_epoch, 1))
        history.emit("voter-1", won(leader_epoch, 1))
        for more in range(3):
            history.emit(
                "voter-1", reported(leader_epoch, high_watermark + more - (15 if slip() else 0))
            )
            history.emit("voter-1", leads_to(high_watermark + more - slip()))
        history.emit("voter-1", resigned(2 if slip() else 1, 3))
