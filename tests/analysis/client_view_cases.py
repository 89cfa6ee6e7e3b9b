"""Histories of what clients alone see of transactions, clean and violating: rows for the table in
`cases.py`.
"""

from collections.abc import Callable
from random import Random

from kraftsim.clients.events_transactions import (
    OffsetLearned,
    OffsetsAsked,
    TransactionEndAsked,
    TransactionErred,
    TransactionOffsetAccepted,
)
from kraftsim.events.event import Event
from kraftsim.events.runs import FencedProducersExpected
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on
from tests.analysis.transaction_events import ended

FENCED_BY_EPOCH = "timed-out-producers-fenced-by-epoch"
RETURNED = "committed-offsets-returned"
EXPECTED = FencedProducersExpected(scenario="s")
PAST_EPOCH, INVALID_STATE, UNSTABLE = 47, 48, 88
NO_OFFSET = -1


def erred(error_code: int, api: str = "PRODUCE") -> Event:
    """A transaction fails."""
    return TransactionErred(
        client_id="c",
        transactional_id="x",
        transaction="x/1",
        error_code=error_code,
        is_fatal=False,
        api=api,
    )


def end_asked(*, is_commit: bool) -> Event:
    """The application ends it."""
    return TransactionEndAsked(
        client_id="c", transactional_id="x", transaction="x/1", is_commit=is_commit
    )


def accepted(transaction: str, group_id: str = "g", partition: int = 0) -> Event:
    """A group has accepted an offset in a transaction."""
    return TransactionOffsetAccepted(
        client_id="c",
        transaction=transaction,
        producer_id=1,
        producer_epoch=0,
        group_id=group_id,
        topic="in",
        partition=partition,
        offset=5,
    )


def asked(question: int = 1, group_id: str = "g") -> Event:
    """A consumer asks for the offsets of its group."""
    return OffsetsAsked(client_id="r", group_id=group_id, question=question, is_stable=True)


def learned(
    offset: int,
    question: int = 1,
    *,
    group_id: str = "g",
    partition: int = 0,
    error_code: int = 0,
    is_stable: bool = True,
) -> Event:
    """It gets an answer."""
    return OffsetLearned(
        client_id="r",
        group_id=group_id,
        question=question,
        topic="in",
        partition=partition,
        offset=offset,
        error_code=error_code,
        is_stable=is_stable,
    )


COMMITTED = (accepted("t/1"), ended("t/1", "committed"))

CLIENT_VIEW_ROWS: list[Row] = [
    (
        "a past epoch, and then a commit",
        FENCED_BY_EPOCH,
        [*on("h", EXPECTED), *on("c", erred(PAST_EPOCH), ended("x/2", "committed"))],
        OK,
        2,
    ),
    (
        "an invalid state",
        FENCED_BY_EPOCH,
        [*on("h", EXPECTED), *on("c", erred(PAST_EPOCH), erred(INVALID_STATE))],
        VIOLATED,
        2,
        ("c.1.1",),
        (("c.1.1",),),
    ),
    (
        "an invalid state for a commit after the time-out",
        FENCED_BY_EPOCH,
        [*on("h", EXPECTED), *on("c", end_asked(is_commit=True), erred(INVALID_STATE, "END_TXN"))],
        OK,
        1,
    ),
    (
        "an invalid state for a batch of a transaction that is to be committed",
        FENCED_BY_EPOCH,
        [*on("h", EXPECTED), *on("c", end_asked(is_commit=True), erred(INVALID_STATE))],
        VIOLATED,
        1,
        ("c.1.1",),
        (("c.1.1",),),
    ),
    (
        "an invalid state for an abort",
        FENCED_BY_EPOCH,
        [*on("h", EXPECTED), *on("c", end_asked(is_commit=False), erred(INVALID_STATE, "END_TXN"))],
        VIOLATED,
        1,
        ("c.1.1",),
        (("c.1.1",),),
    ),
    (
        "an invalid state where nothing is expected",
        FENCED_BY_EPOCH,
        [*on("c", erred(INVALID_STATE)), *on("h", EXPECTED)],
        VACUOUS,
        0,
    ),
    (
        "the offset of a committed transaction",
        RETURNED,
        [*on("c", *COMMITTED), *on("r", asked(), learned(5))],
        OK,
        1,
    ),
    (
        "no offset after a committed transaction",
        RETURNED,
        [*on("c", *COMMITTED), *on("r", asked(), learned(NO_OFFSET), asked(2), learned(5, 2))],
        VIOLATED,
        2,
        ("g/in/0",),
        (("c.1.1", "r.1.1"),),
    ),
    (
        "no offset, twice, is one violation",
        RETURNED,
        [
            *on("c", *COMMITTED),
            *on("r", asked(), learned(NO_OFFSET), asked(2), learned(NO_OFFSET, 2)),
        ],
        VIOLATED,
        2,
        ("g/in/0",),
        (("c.1.1", "r.1.1"),),
    ),
    (
        "the question was sent before the end of the transaction",
        RETURNED,
        [*on("r", asked()), *on("c", *COMMITTED), *on("r", learned(NO_OFFSET))],
        VACUOUS,
        0,
    ),
    (
        "no offset after an abort",
        RETURNED,
        [*on("c", accepted("t/1"), ended("t/1", "aborted")), *on("r", asked(), learned(NO_OFFSET))],
        VACUOUS,
        0,
    ),
    (
        "another group and another partition have none",
        RETURNED,
        [
            *on("c", *COMMITTED),
            *on("r", asked(), learned(NO_OFFSET, partition=1)),
            *on("r", asked(group_id="h"), learned(NO_OFFSET, group_id="h")),
        ],
        VACUOUS,
        0,
    ),
    (
        "an error and an unstable answer say nothing",
        RETURNED,
        [
            *on("c", *COMMITTED),
            *on("r", asked(), learned(NO_OFFSET, error_code=UNSTABLE)),
            *on("r", asked(2), learned(NO_OFFSET, 2, is_stable=False)),
        ],
        VACUOUS,
        0,
    ),
]


def add_client_view_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let transactions time out and commit offsets, and a consumer ask for them, mostly
    correctly.
    """
    if not slip():
        history.emit("harness", EXPECTED)
    for number in range(random.randrange(1, 4)):
        if slip():
            history.emit("client", erred(INVALID_STATE))
        if slip():
            history.emit("client", end_asked(is_commit=not slip()))
            history.emit("client", erred(INVALID_STATE, "END_TXN"))
        transaction, group_id = f"view/{number}", f"view-{random.randrange(2)}"
        history.emit("client", accepted(transaction, group_id))
        if not slip():
            history.emit("client", ended(transaction, "aborted" if slip() else "committed"))
        history.emit("reader", asked(number, group_id))
        history.emit("reader", learned(NO_OFFSET if slip() else 5, number, group_id=group_id))
