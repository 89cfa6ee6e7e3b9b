"""Histories of groups whose offsets wait for the end of a transaction: rows for the table in
`cases.py`.
"""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.groups.events import (
    GroupRemoved,
    GroupsLoaded,
    GroupsUnloaded,
    OffsetForgotten,
    OffsetLoaded,
    OffsetMaterialised,
    OffsetReturned,
    PendingOffsetAdded,
    PendingOffsetDropped,
)
from kraftsim.groups.invariants.pending_offsets import ENDED, KEPT, LIMIT_NS
from kraftsim.partitions.events_transactions import LastStableOffsetMoved
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

OFFSETS = "__consumer_offsets"


def pending(record_offset: int = 5, group_id: str = "p", producer_id: int = 7) -> Event:
    """An offset waits for the end of a transaction."""
    return PendingOffsetAdded(
        coordinator_partition=3,
        group_id=group_id,
        topic="waiting",
        partition=0,
        offset=1,
        record_offset=record_offset,
        producer_id=producer_id,
        producer_epoch=0,
    )


def loaded(record_offset: int = 5, producer_id: int = 7) -> Event:
    """A coordinator has loaded it."""
    return OffsetLoaded(
        coordinator_partition=3,
        group_id="p",
        topic="waiting",
        partition=0,
        offset=1,
        record_offset=record_offset,
        producer_id=producer_id,
    )


def ended(*, is_commit: bool = True, group_id: str = "p") -> Event:
    """The transaction ends."""
    if not is_commit:
        return PendingOffsetDropped(
            coordinator_partition=3,
            group_id=group_id,
            topic="waiting",
            partition=0,
            offset=1,
            record_offset=5,
            producer_id=7,
            producer_epoch=0,
            marker_offset=6,
        )
    return OffsetMaterialised(
        coordinator_partition=3,
        group_id=group_id,
        topic="waiting",
        partition=0,
        offset=1,
        record_offset=5,
        producer_id=7,
        producer_epoch=0,
        marker_offset=6,
        is_current=True,
    )


def forgotten(reason: str, partition: int = 0) -> Event:
    """An offset is removed."""
    return OffsetForgotten(
        coordinator_partition=3, group_id="p", topic="waiting", partition=partition, reason=reason
    )


def removed(reason: str, group_id: str = "p") -> Event:
    """A group is removed."""
    return GroupRemoved(coordinator_partition=3, group_id=group_id, reason=reason)


def stable(offset: int, topic: str = OFFSETS) -> Event:
    """The last stable offset moves."""
    return LastStableOffsetMoved(
        topic=topic, partition=3, leader_epoch=1, offset=offset, high_watermark=offset
    )


UNLOADED = GroupsUnloaded(partition=3)
LOADED = GroupsLoaded(partition=3, group_count=1, next_offset=9)
FETCHED = OffsetReturned(
    coordinator_partition=3,
    group_id="q",
    topic="waiting",
    partition=0,
    offset=-1,
    record_offset=-1,
    require_stable=False,
    error_code=0,
)
MINUTE_MS = 2 * LIMIT_NS // 1_000_000

PENDING_ROWS: list[Row] = [
    ("a group expires after its transaction", KEPT,
     on("b", pending(), ended(), removed("expired")), OK, 1),
    ("after an aborted one", KEPT, on("b", pending(), ended(is_commit=False), removed("expired")),
     OK, 1),
    ("a group expires in a transaction", KEPT, on("b", pending(), removed("expired")), VIOLATED, 1,
     ("b.1.1",), (("b.1.0", "b.1.1"),)),
    ("an offset expires in a transaction", KEPT, on("b", loaded(), forgotten("expired")), VIOLATED,
     1, ("b.1.1",), (("b.1.0", "b.1.1"),)),
    ("the offset of another partition expires", KEPT,
     on("b", pending(), forgotten("expired", partition=1)), OK, 1),
    ("another group expires", KEPT, on("b", pending(), removed("expired", group_id="q")), OK, 1),
    ("a client deletes the group", KEPT, on("b", pending(), removed("requested")), OK, 1),
    ("a client deletes the offset, and the group expires", KEPT,
     on("b", pending(), forgotten("requested"), removed("expired")), OK, 1),
    ("another coordinator lets the group expire", KEPT,
     [*on("b", pending(), UNLOADED), *on("a", LOADED), *on("b", removed("expired"))], OK, 1),
    ("the next coordinator has loaded it", KEPT,
     [*on("b", pending(), UNLOADED), *on("a", LOADED, loaded(), removed("expired"))], VIOLATED, 2,
     ("a.1.2",), (("a.1.1", "a.1.2"),)),
    ("two transactions, one of which has ended", KEPT,
     on("b", pending(), pending(8, producer_id=9), ended(), removed("expired")), VIOLATED, 2,
     ("b.1.3",), (("b.1.1", "b.1.3"),)),
    ("no transaction", KEPT, on("b", removed("expired")), VACUOUS, 0),
]  # fmt: skip

LATE_PENDING_ROWS: list[Row] = [
    ("pending offsets end", ENDED, on("b", pending(), stable(6), ended(), FETCHED), OK, 1),
    ("a transaction stays open", ENDED, on("b", pending(), stable(5), FETCHED), OK, 1),
    ("a transaction has ended, and its offset waits", ENDED, on("b", pending(), stable(6), FETCHED),
     VIOLATED, 1, ("b.1.0",), (("b.1.0", "b.1.1"),)),
    ("of another topic", ENDED, on("b", pending(), stable(6, topic="x"), FETCHED), OK, 1),
    ("the coordinator moves", ENDED, on("b", pending(), stable(6), UNLOADED, FETCHED), OK, 1),
    ("a client deletes the offset", ENDED,
     on("b", pending(), stable(6), forgotten("requested"), FETCHED), OK, 1),
    ("the process ends", ENDED, on("b", pending(), stable(6)), OK, 1),
]  # fmt: skip
"""A minute passes between two events."""


def add_pending_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let transactions commit offsets, mostly until their end."""
    for number in range(random.randrange(6)):
        node, group = random.choice(("b1", "b2")), f"p{number}"
        history.emit(node, pending(group_id=group))
        if slip():
            history.emit(node, removed("expired", group_id=group))
        history.emit(node, stable(random.choice((5, 6))))
        if not slip():
            history.emit(node, ended(is_commit=random.random() < 0.5, group_id=group))
        if random.random() < 0.3:
            history.emit(node, removed(random.choice(("expired", "requested")), group_id=group))
        if random.random() < 0.2:
            history.emit(node, UNLOADED)
    history.emit("b1", FETCHED, after_ns=2 * LIMIT_NS)
