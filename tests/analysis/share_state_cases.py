"""Histories of the records of share-partitions in `__share_group_state`: rows for the table in
`cases.py`.
"""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.invariants.verdict import Outcome
from kraftsim.partitions.events import LeaderElected
from kraftsim.share_groups.events_states import (
    CoordinatedShareDeleted,
    CoordinatedShareLoaded,
    CoordinatedShareStored,
    ShareStatesLoaded,
)
from tests.analysis.history import History, Row

ADVANCE = "share-states-only-advance"
LOADS = "coordinator-loads-follow-elections"
EQUAL = "loaded-share-states-equal-stored"
ONE, TWO = "broker-1", "broker-2"
OK, VIOLATED, VACUOUS = Outcome.OK, Outcome.VIOLATED, Outcome.VACUOUS
KEY = "g/t/0"


def stored(
    offset: int,
    snapshot: int = 0,
    state: int = 0,
    leader: int = 0,
    start: int = 0,
    *,
    is_snapshot: bool = False,
    cause: str = "written",
    group_id: str = "g",
) -> Event:
    return CoordinatedShareStored(
        coordinator_partition=3,
        group_id=group_id,
        topic_id="t",
        partition=0,
        record_offset=offset,
        is_snapshot=is_snapshot,
        cause=cause,
        snapshot_epoch=snapshot,
        state_epoch=state,
        leader_epoch=leader,
        start_offset=start,
        batch_count=0,
    )


def begun(offset: int, snapshot: int = 0, state: int = 0, start: int = 0) -> Event:
    return stored(offset, snapshot, state, start=start, is_snapshot=True, cause="initialized")


def loaded(
    offset: int, snapshot: int = 0, state: int = 0, leader: int = 0, start: int = 0
) -> Event:
    return CoordinatedShareLoaded(
        coordinator_partition=3,
        group_id="g",
        topic_id="t",
        partition=0,
        record_offset=offset,
        snapshot_epoch=snapshot,
        state_epoch=state,
        leader_epoch=leader,
        start_offset=start,
    )


def deleted(offset: int) -> Event:
    return CoordinatedShareDeleted(
        coordinator_partition=3, group_id="g", topic_id="t", partition=0, record_offset=offset
    )


def elected() -> Event:
    return LeaderElected(topic="__share_group_state", partition=3, leader_epoch=0, next_offset=0)


def all_loaded() -> Event:
    return ShareStatesLoaded(partition=3, state_count=1, next_offset=2)


def on(node: str, *events: Event) -> list[tuple[str, Event]]:
    return [(node, event) for event in events]


SHARE_STATE_ROWS: list[Row] = [
    (
        "a share-partition that advances",
        ADVANCE,
        [
            *on(ONE, begun(0), stored(1, leader=2), stored(2, leader=2, start=9)),
            *on(ONE, stored(5, 1, leader=2, start=9, is_snapshot=True)),
            *on(ONE, stored(6, 1, leader=3, start=9)),
        ],
        OK,
        4,
    ),
    (
        "records are compared in the order of the log",
        ADVANCE,
        on(ONE, begun(0), stored(2, start=9), stored(1, start=4)),
        OK,
        2,
    ),
    (
        "a state that begins again",
        ADVANCE,
        on(ONE, begun(0, start=7), stored(1, leader=3, start=9), begun(2, 1, state=1)),
        OK,
        2,
    ),
    (
        "a tombstone ends the comparison",
        ADVANCE,
        on(ONE, begun(0, 5, state=5), deleted(1), begun(2)),
        VACUOUS,
        0,
    ),
    (
        "a state epoch falls",
        ADVANCE,
        on(ONE, begun(0, state=2), begun(1, 1, state=1)),
        VIOLATED,
        1,
        (f"{KEY}/1",),
        ((f"{ONE}.1.0", f"{ONE}.1.1"),),
    ),
    (
        "a leader epoch falls",
        ADVANCE,
        on(ONE, begun(0), stored(1, leader=4), stored(2, leader=3)),
        VIOLATED,
        2,
        (f"{KEY}/2",),
        ((f"{ONE}.1.1", f"{ONE}.1.2"),),
    ),
    (
        "a start offset goes back",
        ADVANCE,
        on(ONE, begun(0, start=5), stored(1, start=4)),
        VIOLATED,
        1,
        (f"{KEY}/1",),
    ),
    (
        "a snapshot has the epoch after the next one",
        ADVANCE,
        on(ONE, begun(0), stored(1, 2, is_snapshot=True)),
        VIOLATED,
        1,
        (f"{KEY}/1",),
    ),
    (
        "an update has another epoch than its snapshot",
        ADVANCE,
        on(ONE, begun(0), stored(1, 1)),
        VIOLATED,
        1,
        (f"{KEY}/1",),
    ),
    (
        "a snapshot whose coordinator was killed is found by the load",
        ADVANCE,
        [*on(ONE, begun(0)), *on(TWO, loaded(4, 2, leader=1), stored(5, 2, leader=1))],
        OK,
        2,
    ),
    (
        "a write of a former leader after a load",
        ADVANCE,
        [*on(ONE, begun(0)), *on(TWO, loaded(4, 2, leader=1), stored(5, 2, leader=0))],
        VIOLATED,
        2,
        (f"{KEY}/5",),
        ((f"{TWO}.1.0", f"{TWO}.1.1"),),
    ),
    (
        "share-partitions of two groups are apart",
        ADVANCE,
        on(ONE, begun(0, start=5), stored(1, group_id="h")),
        VACUOUS,
        0,
    ),
    (
        "a load finds what was stored",
        EQUAL,
        [*on(ONE, begun(0), stored(1, leader=1, start=3)), *on(TWO, loaded(1, 0, 0, 1, 3))],
        OK,
        1,
    ),
    (
        "a load finds other content",
        EQUAL,
        [*on(ONE, begun(0), stored(1, leader=1, start=3)), *on(TWO, loaded(1, 0, 0, 1, 2))],
        VIOLATED,
        1,
        (f"{KEY}/{TWO}.1.0",),
        ((f"{ONE}.1.1", f"{TWO}.1.0"),),
    ),
    (
        "a load finds a record that was not reported",
        EQUAL,
        [*on(ONE, begun(0)), *on(TWO, loaded(1, leader=1))],
        VACUOUS,
        0,
    ),
    (
        "a load of states after an election",
        LOADS,
        on(ONE, elected(), all_loaded(), elected(), all_loaded()),
        OK,
        2,
    ),
    (
        "a load of states without an election",
        LOADS,
        on(ONE, elected(), all_loaded(), all_loaded()),
        VIOLATED,
        2,
        (f"{ONE}.1.2",),
    ),
    (
        "a record that was written again at the same offset",
        EQUAL,
        [*on(ONE, begun(0), stored(1, start=3)), *on(TWO, stored(1, start=4), loaded(1, start=4))],
        OK,
        1,
    ),
]


def add_share_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let two brokers coordinate a share-partition by turns: mostly as they should."""
    offset, snapshot, state, leader, start = 0, 0, 0, 0, 0
    for turn in range(random.randrange(4)):
        node = f"share-{turn % 2}"
        if turn:
            history.emit(
                node, loaded(offset, snapshot, state, leader, start + (1 if slip() else 0))
            )
        for _ in range(random.randrange(5)):
            offset += 1
            match random.randrange(8):
                case 0:
                    snapshot, state, leader, start = snapshot + 1, state + 1, 0, 0
                    history.emit(node, begun(offset, snapshot, state))
                case 1 if random.random() < 0.5:
                    history.emit(node, deleted(offset))
                    snapshot = state = leader = start = 0
                    offset += 1
                    history.emit(node, begun(offset))
                case 2:
                    snapshot += 1
                    shown = snapshot + (1 if slip() else 0)
                    history.emit(
                        node, stored(offset, shown, state, leader, start, is_snapshot=True)
                    )
                    snapshot = shown
                case _:
                    leader += random.randrange(2)
                    start += random.randrange(3)
                    shown = start - (4 if slip() else 0)
                    history.emit(node, stored(offset, snapshot, state, leader, shown))
                    start = shown
