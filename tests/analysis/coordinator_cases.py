"""Histories of the state of coordinators, after loading and later, and of the logs that they load:
rows for the table in `cases.py`.
"""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from kraftsim.events.event import Event
from kraftsim.partitions.events import LeaderElected
from kraftsim.transactions.events import (
    TransactionalIdExpired,
    TransactionChangeGivenUp,
    TransactionLoaded,
    TransactionsLoaded,
)
from tests.analysis.history import History, Row
from tests.analysis.transaction_events import (
    LABELS,
    OK,
    ONE,
    PID,
    STATES,
    TWO,
    VACUOUS,
    VIOLATED,
    changed,
    committed,
    dropped,
    loaded,
    logged,
    materialised,
    on,
    pending,
    quiet,
    state,
)

KNOWN = "coordinator-transactions-equal-log"
LOADED = "loaded-offsets-equal-log"
NEXT_STATUSES = ((0, 1), (1, 2, 3), (4,), (5,), (0, 1), (0, 1))
"""By status: a producer is initialized (0), adds partitions (1), commits (2, then 4) or aborts (3,
then 5), and starts again.
"""


def read_back(
    offset: int,
    status: int,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 1,
    partitions: str = "",
    name: str = "id",
) -> Event:
    return TransactionLoaded(
        transactional_id=name,
        producer_id=PID,
        producer_epoch=epoch,
        state=LABELS[status],
        partitions=partitions,
        coordinator_epoch=coordinator_epoch,
        partition=0,
        record_offset=offset,
    )


def leads(leader_epoch: int) -> Event:
    """A broker becomes the leader of the partition that it reads."""
    return LeaderElected(
        topic="__transaction_state", partition=0, leader_epoch=leader_epoch, next_offset=0
    )


def all_read(next_offset: int, *, coordinator_epoch: int = 1) -> Event:
    return TransactionsLoaded(
        partition=0,
        coordinator_epoch=coordinator_epoch,
        transaction_count=1,
        next_offset=next_offset,
    )


def expired(offset: int, *, coordinator_epoch: int = 0) -> Event:
    return TransactionalIdExpired(
        transactional_id="id",
        producer_id=PID,
        producer_epoch=0,
        partition=0,
        offset=offset,
        coordinator_epoch=coordinator_epoch,
    )


def abandoned(offset: int) -> Event:
    return TransactionChangeGivenUp(
        transactional_id="id", partition=0, coordinator_epoch=0, offset=offset, error_code=7
    )


def first(node: str) -> str:
    return f"{node}.1.0"


COORDINATOR_ROWS: list[Row] = [
    # --- states, where an append was abandoned
    (
        "an abandoned epoch bump",
        STATES,
        [
            *on(ONE, abandoned(1)),
            *on("final", state(0, 1, epoch=3), state(1, 3, epoch=4), state(2, 1, epoch=3)),
        ],
        OK,
        3,
    ),
    (
        "an epoch far below an abandoned one",
        STATES,
        [
            *on(ONE, abandoned(1)),
            *on("final", state(0, 1, epoch=3), state(1, 3, epoch=4), state(2, 1, epoch=1)),
        ],
        VIOLATED,
        3,
        ("id/2",),
        (("final.1.1", "final.1.2"),),
    ),
    (
        "an epoch that goes back after another abandoned record",
        STATES,
        [
            *on(ONE, abandoned(0)),
            *on("final", state(0, 1, epoch=3), state(1, 3, epoch=4), state(2, 1, epoch=3)),
        ],
        VIOLATED,
        3,
        ("id/2",),
        (("final.1.1", "final.1.2"),),
    ),
    # --- transactions
    (
        "another coordinator continues",
        KNOWN,
        [
            *on(ONE, changed(0, 0), changed(1, 1)),
            *on(TWO, read_back(1, 1), all_read(2)),
            *on("final", quiet(), state(0, 0), state(1, 1)),
        ],
        OK,
        3,
    ),
    (
        "an older record is loaded",
        KNOWN,
        [*on(ONE, changed(1, 1)), *on(TWO, read_back(0, 0), all_read(2))],
        VIOLATED,
        2,
        ("id/1",),
        ((first(ONE), first(TWO)),),
    ),
    (
        "different content of the same record",
        KNOWN,
        [*on(ONE, changed(1, 2, partitions="out-0")), *on(TWO, read_back(1, 2), all_read(2))],
        VIOLATED,
        2,
        ("id/1",),
        ((first(ONE), first(TWO)),),
    ),
    (
        "nothing is loaded",
        KNOWN,
        [*on(ONE, changed(1, 1)), *on(TWO, all_read(2))],
        VIOLATED,
        1,
        ("id/1/unknown",),
        ((first(ONE), first(TWO)),),
    ),
    (
        "an expired id is not loaded",
        KNOWN,
        [*on(ONE, changed(1, 1), expired(2)), *on(TWO, all_read(3))],
        OK,
        2,
    ),
    (
        "an expired id is loaded",
        KNOWN,
        [*on(ONE, changed(1, 4), expired(2)), *on(TWO, read_back(1, 4), all_read(3))],
        VIOLATED,
        3,
        ("id/1",),
        ((f"{ONE}.1.1", first(TWO)),),
    ),
    (
        "loaded only up to that offset",
        KNOWN,
        [*on(ONE, changed(5, 1)), *on(TWO, all_read(2))],
        OK,
        1,
    ),
    (
        "a later record without a commit event",
        KNOWN,
        [*on(ONE, changed(0, 0)), *on(TWO, read_back(1, 1), all_read(2))],
        OK,
        2,
    ),
    (
        "an outdated coordinator",
        KNOWN,
        [*on(ONE, changed(4, 1, coordinator_epoch=2)), *on(TWO, read_back(0, 0), all_read(5))],
        OK,
        2,
    ),
    (
        "the log has other content",
        KNOWN,
        [*on(ONE, changed(1, 4)), *on("final", state(1, 5))],
        VIOLATED,
        1,
        ("id@1",),
        ((first(ONE), "final.1.0"),),
    ),
    (
        "the log of one replica has other content",
        KNOWN,
        [*on(ONE, changed(1, 4)), *on("final", state(1, 5), state(1, 4, broker=TWO))],
        OK,
        1,
    ),
    (
        "the loaded record was never committed",
        KNOWN,
        [*on(TWO, read_back(1, 1), all_read(2)), *on("final", state(1, 3))],
        OK,
        1,
    ),
    (
        "the loaded record was committed later",
        KNOWN,
        [
            *on(TWO, read_back(1, 1), all_read(2), changed(2, 2, coordinator_epoch=1)),
            *on("final", state(1, 3), state(2, 2)),
        ],
        VIOLATED,
        2,
        ("id@1",),
        ((first(TWO), "final.1.0"),),
    ),
    (
        "the last record is unknown to every coordinator",
        KNOWN,
        [*on(ONE, changed(0, 0)), *on("final", quiet(), state(0, 0), state(1, 1))],
        VIOLATED,
        1,
        ("id@1",),
        (("final.1.2",),),
    ),
    (
        "it was abandoned",
        KNOWN,
        [*on(ONE, changed(0, 0), abandoned(1)), *on("final", quiet(), state(0, 0), state(1, 1))],
        OK,
        1,
    ),
    (
        "the run ended before it settled",
        KNOWN,
        [*on(ONE, changed(0, 0)), *on("final", state(0, 0), state(1, 1))],
        OK,
        1,
    ),
    (
        "a tombstone is a record too",
        KNOWN,
        [*on(ONE, changed(0, 4), expired(1)), *on("final", quiet(), state(0, 4), state(1, -1))],
        OK,
        2,
    ),
    ("no coordinator", KNOWN, on("final", state(0, 0)), VACUOUS, 0),
    # --- offsets
    (
        "the last commit is loaded",
        LOADED,
        [*on(ONE, committed(5, 0), committed(7, 1)), *on(TWO, loaded(7, 1))],
        OK,
        1,
    ),
    (
        "an older commit is loaded",
        LOADED,
        [*on(ONE, committed(5, 0), committed(7, 1)), *on(TWO, loaded(5, 0))],
        VIOLATED,
        1,
        ("g/in/0/0",),
        ((f"{ONE}.1.1", first(TWO)),),
    ),
    (
        "by the offsets of commits, not of markers",
        LOADED,
        [*on(ONE, pending(5, 0), committed(7, 1), materialised(5, 0)), *on(TWO, loaded(5, 0))],
        VIOLATED,
        1,
        ("g/in/0/0",),
        ((f"{ONE}.1.1", first(TWO)),),
    ),
    ("still pending", LOADED, [*on(ONE, pending(5, 0)), *on(TWO, loaded(5, 0, PID))], OK, 1),
    (
        "pending, although its marker was seen",
        LOADED,
        [*on(ONE, pending(5, 0), dropped(5, 0)), *on(TWO, loaded(5, 0, PID))],
        VIOLATED,
        1,
        ("g/in/0/0/waits",),
        ((f"{ONE}.1.1", first(TWO)),),
    ),
    (
        "another offset than its record has",
        LOADED,
        [*on(TWO, loaded(5, 0)), *on("final", logged(6, 0))],
        VIOLATED,
        1,
        ("g/in/0@0",),
        ((first(TWO), "final.1.0"),),
    ),
    (
        "one replica's record has it",
        LOADED,
        [*on(TWO, loaded(5, 0)), *on("final", logged(6, 0), logged(5, 0, broker=TWO))],
        OK,
        1,
    ),
    ("nothing was loaded", LOADED, on(ONE, committed(5, 0)), VACUOUS, 0),
]


def elsewhere(event: Event) -> Event:
    """Return the same event for another group."""
    return replace(event, group_id="h")


def add_coordinator_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let coordinators replace each other for two transactional ids and a group, mostly
    correctly.
    """
    names, log, end_offset = ("x", "y"), [], 0
    last: dict[str, tuple[int, int]] = {}
    commits = 0
    for coordinator_epoch in range(random.randrange(1, 5)):
        node = random.choice((ONE, TWO))
        for name in names:
            if name in last and not slip():
                offset, status = last[name]
                older = slip()
                history.emit(
                    node,
                    read_back(
                        max(0, offset - older),
                        status,
                        coordinator_epoch=coordinator_epoch,
                        name=name,
                    ),
                )
        history.emit(node, leads(coordinator_epoch))
        history.emit(node, all_read(end_offset, coordinator_epoch=coordinator_epoch))
        if commits:
            history.emit(node, elsewhere(loaded(commits - slip(), 100 + commits - slip())))
        for _ in range(random.randrange(1, 6)):
            name = random.choice(names)
            status = (
                random.randrange(6)
                if slip()
                else random.choice(NEXT_STATUSES[last[name][1]])
                if name in last
                else 0
            )
            if not slip():
                history.emit(
                    node,
                    changed(end_offset, status, coordinator_epoch=coordinator_epoch, name=name),
                )
            log.append((end_offset, status, name))
            last[name] = (end_offset, status)
            end_offset += 1
        commits += 1
        history.emit(node, elsewhere(committed(commits, 100 + commits)))
    for offset, status, name in log:
        shown = random.randrange(6) if slip() else status
        history.emit("final", state(offset, shown, name=name))
    for number in range(1, commits + 1):
        history.emit("final", elsewhere(logged(number, 100 + number)))
