"""Histories of share consumers, clean and violating: rows of `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.clients.events_share import (
    ShareAcknowledgementAnswered,
    ShareFetchSent,
    ShareRecordsReceived,
)
from kraftsim.events.event import Event
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

DONE = "finished-records-not-delivered"
COUNTED = "released-deliveries-counted"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LOST_LOCK = 121


def asks(member: str, request: int) -> Event:
    """A member sends a ShareFetch."""
    return ShareFetchSent(
        client_id=member, group_id="g", member_id=member, leader_id=1, request=request
    )


def receives(member: str, request: int, first: int, last: int, count: int = 1) -> Event:
    """It receives records for it."""
    return ShareRecordsReceived(
        client_id=member,
        group_id="g",
        member_id=member,
        topic="t",
        partition=0,
        leader_id=1,
        first_offset=first,
        last_offset=last,
        delivery_count=count,
        request=request,
        lock_ms=1000,
    )


def answered(
    member: str,
    first: int,
    last: int,
    kind: int,
    *,
    count: int = 1,
    error_code: int = 0,
    is_answered: bool = True,
) -> Event:
    """A leader answers its acknowledgement."""
    return ShareAcknowledgementAnswered(
        client_id=member,
        group_id="g",
        member_id=member,
        topic="t",
        partition=0,
        leader_id=1,
        first_offset=first,
        last_offset=last,
        acknowledgement=kind,
        delivery_count=count,
        is_answered=is_answered,
        error_code=error_code,
    )


SHARE_ROWS: list[Row] = [
    ("no share consumers", DONE, [], VACUOUS, 0),
    ("no deliveries to count", COUNTED, [], VACUOUS, 0),
    (
        "what is accepted is passed by later requests",
        DONE,
        on(
            "c",
            asks("a", 1),
            receives("a", 1, 0, 4),
            answered("a", 0, 2, ACCEPT),
            answered("a", 3, 4, RELEASE),
            asks("b", 1),
            receives("b", 1, 3, 4, 2),
        ),
        OK,
        2,
    ),
    (
        "an accepted record is delivered",
        DONE,
        on(
            "c",
            asks("a", 1),
            receives("a", 1, 0, 4),
            answered("a", 0, 2, ACCEPT),
            asks("b", 1),
            receives("b", 1, 2, 4, 2),
        ),
        VIOLATED,
        2,
        ("g/t/0/b/1/2",),
        (("c.1.2", "c.1.4"),),
    ),
    (
        "a rejected record is delivered",
        DONE,
        on(
            "c",
            asks("a", 1),
            receives("a", 1, 0, 0),
            answered("a", 0, 0, REJECT),
            asks("a", 2),
            receives("a", 2, 0, 0, 2),
        ),
        VIOLATED,
        2,
        ("g/t/0/a/2/0",),
        (("c.1.2", "c.1.4"),),
    ),
    (
        "the delivery was asked for before the answer came",
        DONE,
        on(
            "c",
            asks("a", 1),
            receives("a", 1, 0, 0),
            asks("b", 1),
            answered("a", 0, 0, ACCEPT),
            receives("b", 1, 0, 0, 2),
        ),
        OK,
        2,
    ),
    (
        "acknowledgements that were refused, or not answered, finish nothing",
        DONE,
        on(
            "c",
            asks("a", 1),
            receives("a", 1, 0, 1),
            answered("a", 0, 0, ACCEPT, error_code=LOST_LOCK),
            answered("a", 1, 1, ACCEPT, is_answered=False),
            asks("b", 1),
            receives("b", 1, 0, 1, 2),
        ),
        OK,
        2,
    ),
    (
        "a released record is delivered with a higher count",
        COUNTED,
        on(
            "c",
            asks("a", 1),
            receives("a", 1, 0, 4),
            answered("a", 0, 4, RELEASE),
            asks("b", 1),
            receives("b", 1, 0, 4, 2),
        ),
        OK,
        2,
    ),
    (
        "a delivery after a release is not counted",
        COUNTED,
        on(
            "c",
            asks("a", 1),
            receives("a", 1, 0, 4, 2),
            answered("a", 2, 2, RELEASE, count=2),
            answered("a", 3, 4, RENEW, count=2),
            asks("b", 1),
            receives("b", 1, 2, 2, 2),
        ),
        VIOLATED,
        2,
        ("g/t/0/b/1/2",),
        (("c.1.2", "c.1.5"),),
    ),
]


def add_share_consumer_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let two members fetch, receive and acknowledge records, mostly correctly."""
    counts = [0] * 6
    finished: set[int] = set()
    for request in range(1, random.randrange(4, 9)):
        member = random.choice(("a", "b"))
        first = random.randrange(5)
        last = first + random.randrange(2)
        offsets = range(first, last + 1)
        if finished.intersection(offsets) and not slip():
            continue
        history.emit("c", asks(member, request))
        count = max(counts[offset] for offset in offsets) + (0 if slip() else 1)
        history.emit("c", receives(member, request, first, last, count))
        kind = random.choice((ACCEPT, RELEASE, RELEASE, REJECT, RENEW))
        is_refused, is_answered = slip(), not slip()
        error_code = LOST_LOCK if is_refused else 0
        history.emit(
            "c",
            answered(
                member,
                first,
                last,
                kind,
                count=count,
                error_code=error_code,
                is_answered=is_answered,
            ),
        )
        for offset in offsets:
            counts[offset] = count
        if kind in (ACCEPT, REJECT) and is_answered and not is_refused:
            finished.update(offsets)
