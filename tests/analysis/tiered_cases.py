"""Histories of tiered logs, with what the invariants must say of them: rows for the table in `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.events.tiered_storage import LocalLogStartMoved, ProducerStateCompared, RemoteCopyFinished
from kraftsim.invariants.verdict import Outcome
from tests.analysis.history import History
from tests.analysis.replica_cases import ONE, THREE, TWO, Row, on

GO = "local-segments-go-after-copies"
EQUAL = "rebuilt-producers-equal"
OK, VIOLATED, VACUOUS = Outcome.OK, Outcome.VIOLATED, Outcome.VACUOUS


def whole(first_offset: int, last_offset: int, *, partition: int = 0) -> Event:
    return RemoteCopyFinished(topic="t", partition=partition, segment_id="s", first_offset=first_offset, last_offset=last_offset)


def begins(local_start_offset: int, log_start_offset: int = 0, *, partition: int = 0) -> Event:
    return LocalLogStartMoved(topic="t", partition=partition, local_start_offset=local_start_offset, log_start_offset=log_start_offset)


def knows(next_offset: int, digest: str, *, promised: bool = True) -> Event:
    return ProducerStateCompared(topic="t", partition=0, next_offset=next_offset, producer_count=1, digest=digest, promised=promised)


TIERED_ROWS: list[Row] = [
    ("segments go when they are copied", GO, [*on(ONE, whole(0, 4), whole(5, 9), begins(10)), *on(TWO, begins(5))], OK, 2),
    ("a log may begin as late as its whole does", GO, on(ONE, begins(7, 7)), VACUOUS, 0),
    ("a segment goes before its copy", GO, on(ONE, whole(0, 4), begins(10), whole(5, 9)), VIOLATED, 1, ("broker-1.1.1",), (("broker-1.1.1",),)),
    ("a segment goes without any copy", GO, on(TWO, begins(5)), VIOLATED, 1, ("broker-2.1.0",), (("broker-2.1.0",),)),
    ("a copy of another partition", GO, on(ONE, whole(0, 9, partition=1), begins(5)), VIOLATED, 1, ("broker-1.1.1",), (("broker-1.1.1",),)),
    ("both know the same", EQUAL, [*on(ONE, knows(5, "a"), knows(9, "b")), *on(TWO, knows(5, "a"), knows(9, "b"))], OK, 4),
    ("who promises nothing is not compared", EQUAL, [*on(ONE, knows(5, "a")), *on(TWO, knows(5, "b", promised=False))], OK, 1),
    (
        "a follower knows somebody else",
        EQUAL,
        [*on(ONE, knows(5, "a")), *on(TWO, knows(5, "b")), *on(THREE, knows(5, "c"))],
        VIOLATED,
        3,
        ("t/0/5",),
        (("broker-1.1.0", "broker-2.1.0"),),
    ),
]


def note_tiering(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let a leader copy segments away and delete them, and followers begin behind them, mostly as they should."""
    copied = 0
    for segment in range(1, random.randrange(2, 5)):
        end = segment * 10
        if not slip():
            history.note("broker-1", whole(copied, end - 1))
            copied = end
        local_start = copied + (5 if slip() else 0)
        for node in ("broker-1", "broker-2"):
            history.note(node, begins(local_start))
            history.note(node, knows(end, "other" if slip() else "same", promised=random.random() < 0.9))
