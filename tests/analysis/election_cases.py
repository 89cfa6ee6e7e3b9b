"""Histories of elections and of leaders that go, clean and violating: rows for the table in `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.events.metadata import ControllerElected, MetadataCommitted
from kraftsim.events.raft import (
    ElectionLost,
    ElectionOpened,
    HighWatermarkTold,
    LaterEpochAnswered,
    LeaderUnheard,
    QuorumTimersSet,
    RaftRoleChanged,
)
from kraftsim.events.runs import FaultFired
from kraftsim.invariants.verdict import Outcome
from tests.analysis.connection_cases import begun
from tests.analysis.happenings import loaded, stored, voted
from tests.analysis.history import History
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, Noted, on

MAJORITY = "leaders-have-a-majority"
UNHEARD = "leaders-give-up-unheard"
REFUSED = "past-epochs-refused"
TOLD = "high-watermark-told-in-order"
ASK = "voters-ask-first"
TIME = "elections-keep-time"
GROWS = "high-watermark-monotonic"
MS = 10
"""So long lies between any two events of a row about times."""
NS_PER_MS = 1_000_000
LAST = tuple[str, ...]
Row = tuple[str, str, list[Noted], Outcome, int, LAST, tuple[LAST, ...], int]


def won(leader_epoch: int, leader_id: int, voter_count: int = 3) -> ControllerElected:
    """A controller leads."""
    return ControllerElected(leader_epoch=leader_epoch, epoch_start_offset=0, leader_id=leader_id, voter_count=voter_count)


def unheard(heard_count: int, voter_count: int, *, kraft_version: int = 0) -> LeaderUnheard:
    """A leader gives up."""
    return LeaderUnheard(leader_epoch=2, heard_count=heard_count, voter_count=voter_count, kraft_version=kraft_version)


def later(error_code: int) -> LaterEpochAnswered:
    """Somebody knows of a later epoch."""
    return LaterEpochAnswered(asked_node_id=102, asked_epoch=3, leader_epoch=4, error_code=error_code)


def told(leader_epoch: int, high_watermark: int) -> HighWatermarkTold:
    """A leader tells up to where the log is committed."""
    return HighWatermarkTold(leader_epoch=leader_epoch, high_watermark=high_watermark)


def leads_to(high_watermark: int) -> MetadataCommitted:
    """A leader counts so much as committed."""
    return MetadataCommitted(leader_epoch=1, high_watermark=high_watermark)


def timers(*, has_pre_vote: bool = False, election_ms: int = 400, backoff_ms: int = 300) -> QuorumTimersSet:
    """A process begins."""
    return QuorumTimersSet(fetch_timeout_ms=600, election_timeout_ms=election_ms, election_backoff_max_ms=backoff_ms, has_pre_vote=has_pre_vote)


def role(name: str, leader_epoch: int) -> RaftRoleChanged:
    """A replica has another role."""
    return RaftRoleChanged(role=name, leader_epoch=leader_epoch, leader_id=-1, voted_id=-1, is_voter=True)


def stands(leader_epoch: int, timeout_ms: int = 400) -> list[Event]:
    """A replica opens an election."""
    return [role("Candidate", leader_epoch), ElectionOpened(leader_epoch=leader_epoch, timeout_ms=timeout_ms)]


def lost(leader_epoch: int, defeats: int, pause_ms: int = 100) -> ElectionLost:
    """An election is given up."""
    return ElectionLost(leader_epoch=leader_epoch, defeats=defeats, pause_ms=pause_ms)


def fired(fault: str) -> FaultFired:
    """A fault strikes."""
    return FaultFired(fault=fault, target="a", trigger="")


def row(name: str, invariant: str, events: list[Noted], outcome: Outcome, examined: int, *keys: str, between_ms: int = 0) -> Row:
    return (name, invariant, events, outcome, examined, keys, (), between_ms)


SIM = on("h", begun("sim"))
ELECTION_ROWS: list[Row] = [
    # --- votes of a majority
    row("two of three", MAJORITY, [("a", voted(2, 101)), ("b", voted(2, 101)), ("a", won(2, 101))], OK, 1),
    row("the own vote need not be told", MAJORITY, [("b", voted(2, 101)), ("a", won(2, 101))], OK, 1),
    row("votes of another epoch", MAJORITY, [("b", voted(1, 101)), ("a", voted(2, 101)), ("a", won(2, 101))], VIOLATED, 1, "a.1.1"),
    row("votes for another", MAJORITY, [("b", voted(2, 103)), ("a", won(2, 101))], VIOLATED, 1, "a.1.0"),
    row("half of four", MAJORITY, [("b", voted(2, 101)), ("b", voted(2, 101)), ("a", won(2, 101, 4))], VIOLATED, 1, "a.1.0"),
    row("a vote that comes later", MAJORITY, [("a", won(2, 101)), ("b", voted(2, 101))], VIOLATED, 1, "a.1.0"),
    row("a sole voter", MAJORITY, on("a", won(2, 101, 1)), OK, 1),
    row("a controller of before KRaft", MAJORITY, on("a", won(2, -1, 0)), VACUOUS, 0),
    # --- leaders that give up
    row("heard by itself alone", UNHEARD, on("a", unheard(1, 3), unheard(2, 4), unheard(2, 5)), OK, 3),
    row("heard by one of two others", UNHEARD, on("a", unheard(2, 3)), VIOLATED, 1, "a.1.0"),
    row("the voters may have been others", UNHEARD, on("a", unheard(2, 3, kraft_version=1)), VACUOUS, 0),
    # --- epochs that are over
    row("refused, and told the epoch", REFUSED, on("a", later(74), later(6)), OK, 2),
    row("served in another epoch", REFUSED, on("a", later(74), later(0)), VIOLATED, 2, "a.1.1"),
    row("nobody is behind", REFUSED, on("a", told(1, 1)), VACUOUS, 0),
    # --- high watermarks that are told
    row(
        "higher with each epoch", TOLD, [*on("a", told(1, 5), told(1, 9)), *on("b", told(3, 9), told(3, 12)), *on("a", told(2, 7))], VIOLATED, 5, "2"
    ),
    row("a later leader knows less", TOLD, [*on("a", told(1, 5), told(1, 9)), *on("b", told(2, 8), told(2, 10))], VIOLATED, 4, "2"),
    row("a later leader knows as much", TOLD, [*on("a", told(1, 5), told(1, 9)), *on("b", told(2, 9))], OK, 3),
    row("an old leader, late", TOLD, [*on("b", told(2, 10)), *on("a", told(1, 9))], OK, 2),
    row("nobody asks", TOLD, on("a", voted(1, 2)), VACUOUS, 0),
    row("committed further and further", GROWS, on("a", leads_to(4), leads_to(5), loaded(9), leads_to(10)), OK, 3),
    row("committed again", GROWS, on("a", leads_to(4), leads_to(4)), VIOLATED, 2, "a.1.1"),
    # --- questions before elections
    row("asks and stands", ASK, on("a", timers(has_pre_vote=True), role("Follower", 1), role("Prospective", 1), *stands(2)), OK, 2),
    row("stands and never asked", ASK, on("a", timers(has_pre_vote=True), role("Follower", 1), *stands(2)), VIOLATED, 1, "a.1.2"),
    row("stands again at once", ASK, on("a", timers(has_pre_vote=True), role("Prospective", 1), *stands(2), *stands(3)), VIOLATED, 2, "a.1.4"),
    row("of a release that does not ask", ASK, on("a", timers(), role("Follower", 1), *stands(2), *stands(3)), OK, 2),
    row("asks, of a release that does not", ASK, on("a", timers(), role("Follower", 1), role("Prospective", 1)), VIOLATED, 1, "a.1.2"),
    row("a vote while it asks", ASK, on("a", timers(has_pre_vote=True), *[role("Prospective", 1)] * 3, *stands(2)), OK, 1),
    row("stood when it went down", ASK, [*on("a", timers(has_pre_vote=True)), ("a", role("Candidate", 2))], VACUOUS, 0),
    row("nobody says which way it goes", ASK, on("a", role("Follower", 1), *stands(2)), VACUOUS, 0),
    # --- times of elections
    row("in time", TIME, [*SIM, *on("a", timers(), *stands(2, 20), lost(2, 1, 10), role("Follower", 3))], OK, 2, between_ms=MS),
    row("stands too long", TIME, [*SIM, *on("a", timers(), *stands(2, 19), lost(2, 1, 10))], VIOLATED, 1, "a.1.3", between_ms=MS),
    row("wins too late", TIME, [*SIM, *on("a", timers(), *stands(2, 19), role("Leader", 2))], VIOLATED, 1, "a.1.3", between_ms=MS),
    row("pauses too long", TIME, [*SIM, *on("a", timers(), lost(2, 1, 9), role("Follower", 3))], VIOLATED, 1, "a.1.2", between_ms=MS),
    row("may not pause so long", TIME, [*SIM, *on("a", timers(backoff_ms=9), lost(2, 1, 50), *stands(3))], VIOLATED, 1, "a.1.2", between_ms=MS),
    row("may not stand so long", TIME, [*SIM, *on("a", timers(election_ms=10), *stands(2, 50), lost(2, 1))], VIOLATED, 1, "a.1.3", between_ms=MS),
    row(
        "on a machine that may be slow",
        TIME,
        [*on("h", begun("processes")), *on("a", timers(), *stands(2, 5), lost(2, 1))],
        VACUOUS,
        0,
        between_ms=MS,
    ),
    row("a host stands still", TIME, [*SIM, *on("h", fired("pause")), *on("a", timers(), *stands(2, 5), lost(2, 1))], VACUOUS, 0, between_ms=MS),
    row(
        "a link is gone",
        TIME,
        [*SIM, *on("h", fired("partition")), *on("a", timers(), *stands(2, 5), lost(2, 1))],
        VIOLATED,
        1,
        "a.1.3",
        between_ms=MS,
    ),
    row("one defeat after the other", TIME, on("a", lost(2, 1), *stands(3), lost(3, 2), *stands(4), lost(4, 3)), OK, 2),
    row("a defeat is forgotten", TIME, on("a", lost(2, 1), *stands(3), lost(3, 1)), VIOLATED, 1, "a.1.3/defeats"),
    row("another led in between", TIME, on("a", lost(2, 3), role("Follower", 3), *stands(4), lost(4, 1)), VACUOUS, 0),
    row("a former life", TIME, [("a", lost(2, 3)), *[("a", 2, event) for event in (*stands(3), lost(3, 1))]], VACUOUS, 0),
]


def note_elections(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let two voters stand, lose, pause and win, and leaders give up, mostly as they should."""
    history.note("harness", fired("pause" if slip() else "partition"))
    for node, has_pre_vote in (("voter-1", False), ("voter-2", True)):
        history.note(node, timers(has_pre_vote=has_pre_vote, election_ms=20, backoff_ms=30))
        history.note(node, role("Follower", 50))
        defeats = 0
        for leader_epoch in range(51, random.randrange(53, 57)):
            if has_pre_vote != slip():
                history.note(node, role("Prospective", leader_epoch - 1))
                defeats = 0
            timeout_ms, pause_ms = random.randrange(20, 40), random.randrange(30)
            for event in stands(leader_epoch, timeout_ms):
                history.note(node, event)
            defeats += not slip()
            late_ms = 2 if slip() else 0
            history.note(node, lost(leader_epoch, defeats, pause_ms), after_ns=(timeout_ms + late_ms) * NS_PER_MS)
            history.note("harness", later(0 if slip() else 74), after_ns=(pause_ms + (2 if slip() else 0)) * NS_PER_MS)
    for leader_epoch, high_watermark in ((-3, 10), (-2, 20), (-1, 30)):  # before all epochs in which something is committed
        for other in ("voter-2", "voter-3"):
            if not slip():
                history.note(other, stored(leader_epoch, 1))
                history.note(other, voted(leader_epoch, 1))
        history.note("voter-1", won(leader_epoch, 1))
        for more in range(3):
            history.note("voter-1", told(leader_epoch, high_watermark + more - (15 if slip() else 0)))
            history.note("voter-1", leads_to(high_watermark + more - slip()))
        history.note("voter-1", unheard(2 if slip() else 1, 3))
