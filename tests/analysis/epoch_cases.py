"""Histories of the producer epochs of one transactional id: rows of `transaction-transitions-valid`
for the table in `cases.py`.
"""

from kraftsim.events.event import Event
from kraftsim.transactions.events import TransactionChangeGivenUp, TransactionKept
from tests.analysis.history import Row
from tests.analysis.transaction_events import (
    FENCED,
    OK,
    ONE,
    PID,
    STATES,
    VIOLATED,
    appended,
    batch,
    on,
    state,
    taken,
)


def abandoned(offset: int, *, name: str = "id") -> Event:
    return TransactionChangeGivenUp(
        transactional_id=name, partition=0, coordinator_epoch=0, offset=offset, error_code=7
    )


def kept(next_epoch: int, *, name: str = "id", epoch: int = 4) -> Event:
    return TransactionKept(
        transactional_id=name,
        producer_id=PID,
        producer_epoch=epoch,
        next_producer_id=PID,
        next_producer_epoch=next_epoch,
        partition=0,
        coordinator_epoch=0,
    )


EPOCH_ROWS: list[Row] = [
    (
        "written to a transaction that was kept",
        FENCED,
        [
            *on(ONE, kept(1, epoch=0)),
            *on("c", taken(1)),
            *on(ONE, appended(0, 0)),
            *on("final", batch(0)),
        ],
        OK,
        1,
    ),
    (
        "written before, and then it was kept",
        FENCED,
        [*on("c", taken(1)), *on(ONE, appended(0, 0), kept(1, epoch=0)), *on("final", batch(0))],
        VIOLATED,
        1,
        ("out-0/0",),
    ),
    (
        "written at an epoch that was not kept",
        FENCED,
        [
            *on(ONE, kept(3, epoch=2)),
            *on("c", taken(3)),
            *on(ONE, appended(0, 0)),
            *on("final", batch(0)),
        ],
        VIOLATED,
        1,
        ("out-0/0",),
    ),
    (
        "completed for the producer that it was kept for",
        STATES,
        [*on(ONE, kept(7)), *on("final", state(0, 2, epoch=5), state(1, 4, epoch=8))],
        OK,
        2,
    ),
    (
        "completed at the epoch of no producer",
        STATES,
        [*on(ONE, kept(7)), *on("final", state(0, 2, epoch=5), state(1, 4, epoch=9))],
        VIOLATED,
        2,
        ("id/1",),
    ),
    (
        "kept for the producer of another id",
        STATES,
        [*on(ONE, kept(7, name="other")), *on("final", state(0, 2, epoch=5), state(1, 4, epoch=8))],
        VIOLATED,
        2,
        ("id/1",),
    ),
    (
        "epochs burned",
        STATES,
        on("final", state(0, 1, epoch=4), state(1, 3, epoch=7)),
        VIOLATED,
        2,
        ("id/1",),
        (("final.1.0", "final.1.1"),),
    ),
    (
        "a fence and one more",
        STATES,
        on("final", state(0, 4, epoch=4), state(1, 0, epoch=6)),
        VIOLATED,
        2,
        ("id/1",),
    ),
    (
        "a fence",
        STATES,
        on("final", state(0, 4, epoch=4), state(1, 0, epoch=5), state(2, 0, epoch=6)),
        OK,
        3,
    ),
    (
        "a commit, which does not fence",
        STATES,
        on("final", state(0, 1, epoch=4), state(1, 2, epoch=6)),
        VIOLATED,
        2,
        ("id/1",),
    ),
    ("an abort of nothing", STATES, on("final", state(0, 4, epoch=4), state(1, 3, epoch=5)), OK, 2),
    (
        "an abort of nothing, and one more",
        STATES,
        on("final", state(0, 0, epoch=4), state(1, 3, epoch=6)),
        VIOLATED,
        2,
        ("id/1",),
    ),
    (
        "partitions added at another epoch",
        STATES,
        on("final", state(0, 1, epoch=4), state(1, 1, epoch=5)),
        VIOLATED,
        2,
        ("id/1",),
    ),
    (
        "a transaction begun at another epoch",
        STATES,
        on("final", state(0, 0, epoch=4), state(1, 1, epoch=5)),
        VIOLATED,
        2,
        ("id/1",),
    ),
    (
        "completed at another epoch",
        STATES,
        on("final", state(0, 2, epoch=4), state(1, 4, epoch=5)),
        VIOLATED,
        2,
        ("id/1",),
    ),
    (
        "an abort, which fences",
        STATES,
        on("final", state(0, 1, epoch=4), state(1, 3, epoch=5)),
        OK,
        2,
    ),
    (
        "an abort, and one more",
        STATES,
        on("final", state(0, 1, epoch=4), state(1, 3, epoch=6)),
        VIOLATED,
        2,
        ("id/1",),
    ),
    (
        "an abandoned fence, and an end",
        STATES,
        [*on(ONE, abandoned(-1)), *on("final", state(0, 1, epoch=4), state(1, 3, epoch=6))],
        OK,
        2,
    ),
    (
        "two abandoned fences, and an end",
        STATES,
        [
            *on(ONE, abandoned(-1), abandoned(-1)),
            *on("final", state(0, 1, epoch=4), state(1, 3, epoch=7)),
        ],
        VIOLATED,
        2,
        ("id/1",),
    ),
    (
        "an abandoned fence of another id, and an end",
        STATES,
        [
            *on(ONE, abandoned(-1, name="other")),
            *on("final", state(0, 1, epoch=4), state(1, 3, epoch=6)),
        ],
        VIOLATED,
        2,
        ("id/1",),
    ),
    (
        "an epoch that goes back",
        STATES,
        on("final", state(0, 1, epoch=4), state(1, 2, epoch=3)),
        VIOLATED,
        2,
        ("id/1",),
        (("final.1.0", "final.1.1"),),
    ),
    (
        "another producer id begins at 0",
        STATES,
        on("final", state(0, 4, epoch=32767), state(1, 0, producer_id=51)),
        OK,
        2,
    ),
    (
        "no epoch",
        STATES,
        on("final", state(0, 1, epoch=5), state(1, 3, epoch=-32768)),
        VIOLATED,
        2,
        ("id/1",),
        (("final.1.0", "final.1.1"),),
    ),
]
