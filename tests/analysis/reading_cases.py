"""Histories of consumers that read up to and beyond the high watermark: rows for the table in
`cases.py`.
"""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from kraftsim.clients.events import RecordRead
from kraftsim.events.event import Event
from tests.analysis.cleaned_cases import cleaned
from tests.analysis.event_factories import appended, final_log, final_record
from tests.analysis.history import History, Row
from tests.analysis.replica_cases import (
    OK,
    ONE,
    TWO,
    VACUOUS,
    VIOLATED,
    follows,
    leads,
    moved,
    on,
    uncleanly,
)

STAYS = "read-records-in-final-log"
BELOW = "reads-below-high-watermark"


def reads(offset: int, *, partition: int = 0, is_read_committed: bool = False) -> Event:
    return RecordRead(
        client_id="x",
        topic="t",
        partition=partition,
        record_key="k",
        offset=offset,
        is_read_committed=is_read_committed,
    )


def placed(replicas: str) -> Event:
    """The metadata of a partition, with its replicas."""
    return replace(uncleanly(1, state=0), replicas=replicas)


READING_ROWS: list[Row] = [
    (
        "a read record stays",
        STAYS,
        [*on("x", reads(4)), *on("f", final_log(5, 1), final_record(4, "k"))],
        OK,
        1,
    ),
    (
        "a read record is gone, and another one is at its offset",
        STAYS,
        [*on("x", reads(4), reads(4)), *on("f", final_log(5, 1), final_record(4, "other"))],
        VIOLATED,
        2,
        ("t/0/k/4",),
        (("x.1.0",),),
    ),
    (
        "retention removed it",
        STAYS,
        [*on("x", reads(4)), *on("f", final_log(9, 0, log_start_offset=5))],
        OK,
        1,
    ),
    (
        "an unclean election removed it",
        STAYS,
        [
            *on(ONE, uncleanly(2), leads(2, 3)),
            *on("x", reads(4), reads(2)),
            *on("f", final_log(3, 1), final_record(2, "k")),
        ],
        OK,
        2,
    ),
    (
        "an unclean election that had it",
        STAYS,
        [*on(ONE, uncleanly(2), leads(2, 5)), *on("x", reads(4)), *on("f", final_log(9, 0))],
        VIOLATED,
        1,
        ("t/0/k/4",),
    ),
    (
        "compaction removed it, a later record of the key stays",
        STAYS,
        [*on(ONE, cleaned(6)), *on("x", reads(4)), *on("f", final_log(9, 1), final_record(7, "k"))],
        OK,
        1,
    ),
    (
        "compaction did not come so far",
        STAYS,
        [*on("x", reads(4)), *on("f", final_log(9, 1), final_record(7, "k"))],
        VIOLATED,
        1,
        ("t/0/k/4",),
    ),
    ("a log that was not read", STAYS, on("x", reads(4)), OK, 1),
    (
        "below it",
        BELOW,
        [*on(TWO, follows(1, 0)), *on(ONE, appended(0, 9), moved(5)), *on("x", reads(4), reads(0))],
        OK,
        2,
    ),
    (
        "at it",
        BELOW,
        [*on(TWO, follows(1, 0)), *on(ONE, appended(0, 9), moved(5)), *on("x", reads(5))],
        VIOLATED,
        1,
        ("x.1.0",),
        (("x.1.0",),),
    ),
    (
        "before there is a high watermark, and after",
        BELOW,
        [*on(TWO, follows(1, 0)), *on("x", reads(0)), *on(ONE, moved(1)), *on("x", reads(0))],
        VIOLATED,
        2,
        ("x.1.0",),
        (("x.1.0",),),
    ),
    (
        "a read_committed consumer is no exception",
        BELOW,
        [*on(TWO, follows(1, 0)), *on(ONE, moved(5)), *on("x", reads(7, is_read_committed=True))],
        VIOLATED,
        1,
        ("x.1.0",),
    ),
    (
        "the high watermark of a follower counts, and so does an earlier one that was higher",
        BELOW,
        [
            *on(TWO, follows(1, 0), moved(9, is_leader=False)),
            *on(ONE, moved(5)),
            *on("x", reads(8)),
        ],
        OK,
        1,
    ),
    (
        "a partition without a leader",
        BELOW,
        [*on(ONE, appended(0, 9), follows(-1, 0)), *on("x", reads(9))],
        VACUOUS,
        0,
    ),
    (
        "a partition that had one replica once",
        BELOW,
        [
            *on("c", placed("1")),
            *on("c", placed("1,2")),
            *on(TWO, follows(1, 0)),
            *on("x", reads(9)),
        ],
        VACUOUS,
        0,
    ),
    (
        "a partition that always had two",
        BELOW,
        [*on("c", placed("1,2")), *on(TWO, follows(1, 0)), *on("x", reads(9))],
        VIOLATED,
        1,
        ("x.1.0",),
    ),
    (
        "that of another partition does not count",
        BELOW,
        [
            *on(TWO, follows(1, 0)),
            *on(ONE, replace(moved(9), partition=1)),
            *on("x", reads(3), reads(8, partition=1)),
        ],
        VIOLATED,
        1,
        ("x.1.0",),
    ),
]


def add_read_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let a consumer read committed records, and sometimes uncommitted ones, in its own topic."""

    def emit(node: str, event: Event) -> None:
        history.emit(node, replace(event, topic="read"))

    if slip():
        emit("c", placed("1"))
    emit(TWO, follows(1, 0))
    high_watermark = 0
    for _ in range(random.randrange(1, 12)):
        high_watermark += random.randrange(1, 4)
        emit(
            random.choice((ONE, TWO)),
            moved(max(0, high_watermark - (2 if slip() else 0)), is_leader=not slip()),
        )
        emit("x", reads(random.randrange(high_watermark) + (3 if slip() else 0)))
