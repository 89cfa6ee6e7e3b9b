"""Histories of a two-phase commit, as its participants, coordinators and leaders report them: rows
for the table in `cases.py`.
"""

from collections.abc import Callable
from random import Random

from kraftsim.clients.events_transactions import (
    DatabaseCommitted,
    DatabaseCompared,
    TransactionFound,
    TransactionPrepared,
)
from kraftsim.clients.invariants.two_phase_commits import AGREE, FOLLOW, NO_TIMEOUT
from kraftsim.events.event import Event
from kraftsim.partitions.events_transactions import MarkerAppended
from kraftsim.transactions.events import TransactionAbortForced
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on


def compared(count: int = 3, only_in_database: str = "", only_in_topic: str = "") -> Event:
    """The audit has compared the database with the topic."""
    return DatabaseCompared(
        topic="t",
        key_count=count,
        only_in_database=only_in_database,
        only_in_topic=only_in_topic,
    )


def prepared(epoch: int = 4) -> Event:
    """A participant prepares the transaction of an epoch."""
    return TransactionPrepared(
        client_id="c",
        transactional_id="x",
        transaction="c/1",
        producer_id=5,
        producer_epoch=epoch,
    )


def committed(epoch: int = 4) -> Event:
    """The database commits it."""
    return DatabaseCommitted(
        client_id="c",
        transactional_id="x",
        transaction="c/1",
        producer_id=5,
        producer_epoch=epoch,
        record_keys="c/1/0",
    )


def marked(epoch: int = 5, *, is_commit: bool = True, on_leader: bool = True) -> Event:
    """The marker after a transaction is in a log."""
    return MarkerAppended(
        topic="t",
        partition=0,
        producer_id=5,
        producer_epoch=epoch,
        coordinator_epoch=0,
        is_commit=is_commit,
        offset=9,
        on_leader=on_leader,
    )


def found(name: str = "x") -> Event:
    """A participant has its transactional id."""
    return TransactionFound(client_id="c", transactional_id=name, producer_id=-1, producer_epoch=-1)


def forced(name: str = "x", reason: str = "timeout") -> Event:
    """A coordinator aborts a transaction."""
    return TransactionAbortForced(
        transactional_id=name, producer_id=5, producer_epoch=5, reason=reason
    )


TWO_PHASE_ROWS: list[Row] = [
    ("both have the same", AGREE, on("h", compared(), compared(4)), OK, 7),
    ("nothing was written", AGREE, on("h", compared(0)), VACUOUS, 0),
    ("a row without records", AGREE, on("h", compared(only_in_database="a b")), VIOLATED, 3,
     ("h.1.0",), (("h.1.0",),)),
    ("records without a row", AGREE, on("h", compared(only_in_topic="a")), VIOLATED, 3,
     ("h.1.0",)),
    ("the database, then the marker", FOLLOW, on("c", prepared(), committed(), marked()), OK, 1),
    ("the marker, then the database", FOLLOW, on("c", prepared(), marked(), committed()),
     VIOLATED, 1, ("c.1.1",), (("c.1.0", "c.1.1"),)),
    ("aborted, and not in the database", FOLLOW, on("c", prepared(), marked(is_commit=False)),
     OK, 1),
    ("aborted, though in the database", FOLLOW,
     on("c", prepared(), committed(), marked(is_commit=False)), VIOLATED, 1, ("c.1.2",)),
    ("the transaction before", FOLLOW,
     on("c", prepared(), committed(), prepared(6), marked(7)), VIOLATED, 1, ("c.1.3",)),
    ("a marker of a follower", FOLLOW, on("c", prepared(), marked(on_leader=False)), VACUOUS, 0),
    ("a transaction that was not prepared", FOLLOW, on("c", prepared(), marked(6)), VACUOUS, 0),
    ("no time-out", NO_TIMEOUT, on("c", found(), forced(reason="initialised")), OK, 1),
    ("a time-out", NO_TIMEOUT, on("c", found(), forced()), VIOLATED, 1, ("c.1.1",),
     (("c.1.0", "c.1.1"),)),
    ("a time-out of another id", NO_TIMEOUT, on("c", found(), forced("y")), OK, 1),
    ("a time-out before it took part", NO_TIMEOUT, on("c", forced(), found()), OK, 1),
]  # fmt: skip


def add_two_phase_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let a participant prepare transactions, most of which end as the database decides."""
    for epoch in range(0, 2 * random.randrange(4), 2):
        history.emit("c", found())
        history.emit("c", prepared(epoch))
        is_commit = random.random() < 0.6
        if is_commit:
            history.emit("c", committed(epoch))
        if slip():
            history.emit("b", forced())
        history.emit("b", marked(epoch + 1, is_commit=is_commit != slip()))
    only_in_database, only_in_topic = "a" if slip() else "", "b" if slip() else ""
    count = random.randrange(3) + bool(only_in_database or only_in_topic)
    history.emit("h", compared(count, only_in_database, only_in_topic))
