"""Remote segments at the end of a run, complete or not: rows for the table in `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.partitions.events import LogStartMoved
from kraftsim.tiered_storage.events import (
    FinalRemoteEpoch,
    FinalRemoteSegment,
    RemoteCopyFinished,
)
from kraftsim.tiered_storage.invariants.remote_segments import (
    COMPLETE,
    DELETED,
    FINISHED,
    GAPLESS,
    UNKNOWN,
)
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

ALL = ".index,.leader_epoch_checkpoint,.log,.snapshot,.timeindex,.txnindex"


def segment(
    objects: str, status: int = FINISHED, *, segment_id: str = "s", is_empty: bool = False
) -> Event:
    """A segment with its objects."""
    return FinalRemoteSegment(
        topic="far",
        partition=0,
        segment_id=segment_id,
        status=status,
        first_offset=0,
        last_offset=9,
        objects=objects,
        is_transaction_index_empty=is_empty,
    )


def copied(producer_count: int) -> Event:
    """A leader has copied the segment."""
    return RemoteCopyFinished(
        topic="far",
        partition=0,
        segment_id="s",
        first_offset=0,
        last_offset=9,
        producer_count=producer_count,
    )


def epoch(
    first_offset: int, last_offset: int, leader_epoch: int = 1, segment_id: str = "s"
) -> Event:
    """The offsets of an epoch in a segment."""
    return FinalRemoteEpoch(
        topic="far",
        partition=0,
        segment_id=segment_id,
        leader_epoch=leader_epoch,
        first_offset=first_offset,
        last_offset=last_offset,
    )


def begins(log_start_offset: int) -> Event:
    """The log begins later."""
    return LogStartMoved(
        topic="far", partition=0, log_start_offset=log_start_offset, reason="DeleteRecords"
    )


REMOTE_ROWS: list[Row] = [
    ("all objects", COMPLETE, on("f", segment(ALL)), OK, 1),
    ("an empty transaction index", COMPLETE,
     on("f", segment(ALL.replace(",.txnindex", ""), is_empty=True)), OK, 1),
    ("no transaction index", COMPLETE, on("f", segment(ALL.replace(",.txnindex", ""))), VIOLATED, 1,
     ("s",), (("f.1.0",),)),
    ("no snapshot", COMPLETE, on("f", copied(3), segment(ALL.replace(",.snapshot", ""))), VIOLATED,
     1, ("s",)),
    ("the leader had no snapshot", COMPLETE,
     on("f", copied(-1), segment(ALL.replace(",.snapshot", ""))), OK, 1),
    ("nothing", COMPLETE, on("f", segment("")), VIOLATED, 1, ("s",)),
    ("a copy is under way", COMPLETE, on("f", segment(".log", 0)), VACUOUS, 0),
    ("a deletion is under way", COMPLETE, on("f", segment(".log", 2)), VACUOUS, 0),
    ("all are deleted", COMPLETE, on("f", segment("", DELETED)), OK, 1),
    ("the records are left", COMPLETE, on("f", segment(".log", DELETED)), VIOLATED, 1, ("s",)),
    ("objects of no segment", COMPLETE, on("f", segment(".log", UNKNOWN)), VIOLATED, 1, ("s",)),
    ("one segment after the other", GAPLESS,
     on("f", epoch(0, 4), epoch(5, 7), epoch(8, 9, 2), epoch(10, 12, 2)), OK, 4),
    ("overlapping segments", GAPLESS, on("f", epoch(0, 9), epoch(2, 4), epoch(10, 12)), OK, 3),
    ("an offset is missing", GAPLESS, on("f", epoch(0, 4), epoch(6, 7)), VIOLATED, 2, ("s/1",),
     (("f.1.1",),)),
    ("between two epochs", GAPLESS, on("f", epoch(0, 4), epoch(6, 7, 2)), OK, 2),
    ("below the log start offset", GAPLESS, on("f", begins(6), epoch(0, 4), epoch(6, 7)), OK, 1),
]  # fmt: skip


def add_remote_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let a run end with remote segments, mostly complete ones."""
    first_offset = 0
    for number in range(random.randrange(5)):
        segment_id = f"far-{number}"
        status = random.choice((FINISHED, FINISHED, 0, DELETED))
        objects = ALL if status != DELETED else ""
        if slip():
            objects = ALL.replace(random.choice((".log,", ",.txnindex")), "")
        history.emit("final", segment(objects, status, segment_id=segment_id))
        last_offset = first_offset + random.randrange(3)
        history.emit("final", epoch(first_offset, last_offset, segment_id=segment_id))
        first_offset = last_offset + (2 if slip() else 1)
