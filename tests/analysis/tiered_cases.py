"""Histories of tiered logs, with the expected results: rows for the table in `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.invariants.verdict import Outcome
from kraftsim.tiered_storage.events import (
    LocalLogStartMoved,
    ProducerStateCompared,
    RemoteCopyFinished,
)
from tests.analysis.history import History, Row
from tests.analysis.replica_cases import ONE, THREE, TWO, on

GO = "local-segments-deleted-after-upload"
EQUAL = "rebuilt-producer-state-equal"
OK, VIOLATED, VACUOUS = Outcome.OK, Outcome.VIOLATED, Outcome.VACUOUS


def whole(first_offset: int, last_offset: int, *, partition: int = 0) -> Event:
    return RemoteCopyFinished(
        topic="t",
        partition=partition,
        segment_id="s",
        first_offset=first_offset,
        last_offset=last_offset,
    )


def begins(local_start_offset: int, log_start_offset: int = 0, *, partition: int = 0) -> Event:
    return LocalLogStartMoved(
        topic="t",
        partition=partition,
        local_start_offset=local_start_offset,
        log_start_offset=log_start_offset,
    )


def knows(next_offset: int, digest: str, *, promised: bool = True) -> Event:
    return ProducerStateCompared(
        topic="t",
        partition=0,
        next_offset=next_offset,
        producer_count=1,
        digest=digest,
        promised=promised,
    )


TIERED_ROWS: list[Row] = [
    (
        "segments are deleted after their upload",
        GO,
        [*on(ONE, whole(0, 4), whole(5, 9), begins(10)), *on(TWO, begins(5))],
        OK,
        2,
    ),
    ("the local start may equal the log start", GO, on(ONE, begins(7, 7)), VACUOUS, 0),
    (
        "a segment is deleted before its upload",
        GO,
        on(ONE, whole(0, 4), begins(10), whole(5, 9)),
        VIOLATED,
        1,
        ("broker-1.1.1",),
        (("broker-1.1.1",),),
    ),
    (
        "a segment is deleted without an upload",
        GO,
        on(TWO, begins(5)),
        VIOLATED,
        1,
        ("broker-2.1.0",),
        (("broker-2.1.0",),),
    ),
    (
        "an upload of another partition",
        GO,
        on(ONE, whole(0, 9, partition=1), begins(5)),
        VIOLATED,
        1,
        ("broker-1.1.1",),
        (("broker-1.1.1",),),
    ),
    (
        "both have the same producer state",
        EQUAL,
        [*on(ONE, knows(5, "a"), knows(9, "b")), *on(TWO, knows(5, "a"), knows(9, "b"))],
        OK,
        4,
    ),
    (
        "a replica that guarantees nothing is not compared",
        EQUAL,
        [*on(ONE, knows(5, "a")), *on(TWO, knows(5, "b", promised=False))],
        OK,
        1,
    ),
    (
        "a follower has another producer",
        EQUAL,
        [*on(ONE, knows(5, "a")), *on(TWO, knows(5, "b")), *on(THREE, knows(5, "c"))],
        VIOLATED,
        3,
        ("t/0/5",),
        (("broker-1.1.0", "broker-2.1.0"),),
    ),
]


def add_tiering_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let a leader upload segments and delete them, and followers start after them, mostly
    correctly.
    """
    replicated = 0
    for segment in range(1, random.randrange(2, 5)):
        end = segment * 10
        if not slip():
            history.emit("broker-1", whole(replicated, end - 1))
            replicated = end
        local_start = replicated + (5 if slip() else 0)
        for node in ("broker-1", "broker-2"):
            history.emit(node, begins(local_start))
            history.emit(
                node, knows(end, "other" if slip() else "same", promised=random.random() < 0.9)
            )
