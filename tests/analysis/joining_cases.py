"""Histories of replicas that join the ISR, clean and violating: rows for the table in
`cases.py`.
"""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from kraftsim.events.event import Event
from kraftsim.partitions.events import IsrChangeAsked
from tests.analysis.event_factories import appended
from tests.analysis.history import History, Row
from tests.analysis.replica_cases import (
    OK,
    ONE,
    THREE,
    TWO,
    VACUOUS,
    VIOLATED,
    agreed,
    follows,
    leads,
    on,
    replicated,
    truncated,
)

JOINS = "isr-joined-after-epoch-start"


def asks(isr: str, *, epoch: int = 0) -> Event:
    return IsrChangeAsked(topic="t", partition=0, leader_epoch=epoch, partition_epoch=0, isr=isr)


JOINING_ROWS: list[Row] = [
    (
        "it has the log of the leader at the start of its epoch",
        JOINS,
        [
            *on(TWO, replicated(0, 4)),
            *on(ONE, leads(1, 5), agreed("1", epoch=1), asks("1,2", epoch=1)),
        ],
        OK,
        1,
    ),
    (
        "it lacks a part of that",
        JOINS,
        [
            *on(TWO, replicated(0, 3)),
            *on(ONE, leads(1, 5), agreed("1", epoch=1), asks("1,2", epoch=1)),
        ],
        VIOLATED,
        1,
        ("broker-1.1.2/broker-2",),
        (("broker-1.1.2",),),
    ),
    (
        "two that join, one of which truncated its log",
        JOINS,
        [
            *on(TWO, replicated(0, 4), truncated(4)),
            *on(THREE, follows(1, 1, 5)),
            *on(ONE, leads(1, 5), agreed("1", epoch=1), asks("1,2,3", epoch=1)),
        ],
        VIOLATED,
        2,
        ("broker-1.1.2/broker-2",),
        (("broker-1.1.2",),),
    ),
    (
        "appends of this epoch may be missing",
        JOINS,
        [
            *on(TWO, replicated(0, 4)),
            *on(ONE, leads(1, 5), agreed("1", epoch=1), appended(5, 9), asks("1,2", epoch=1)),
        ],
        OK,
        1,
    ),
    (
        "the replica was in the ISR before, or leaves it",
        JOINS,
        [
            *on(TWO, follows(1, 1)),
            *on(ONE, leads(1, 5), agreed("1,2,3", epoch=1), asks("1,2", epoch=1)),
        ],
        VACUOUS,
        0,
    ),
    (
        "it left the ISR in this epoch, and rejoins too early",
        JOINS,
        [
            *on(TWO, follows(1, 1)),
            *on(
                ONE, leads(1, 5), agreed("1,2", epoch=1), agreed("1", epoch=1), asks("1,2", epoch=1)
            ),
        ],
        VIOLATED,
        1,
        ("broker-1.1.3/broker-2",),
        (("broker-1.1.3",),),
    ),
    (
        "it already follows a later leader, unknown to the one that expands the ISR",
        JOINS,
        [
            *on(ONE, leads(1, 5), agreed("1", epoch=1)),
            *on(TWO, follows(3, 2, 5), truncated(3, epoch=2)),
            *on(ONE, asks("1,2", epoch=1)),
        ],
        VACUOUS,
        0,
    ),
    (
        "it led a later epoch",
        JOINS,
        [
            *on(ONE, leads(1, 5), agreed("1", epoch=1)),
            *on(TWO, leads(2, 3)),
            *on(ONE, asks("1,2", epoch=1)),
        ],
        VACUOUS,
        0,
    ),
    (
        "another epoch of the same leader started at a higher offset",
        JOINS,
        [
            *on(TWO, replicated(0, 4)),
            *on(
                ONE,
                leads(1, 5),
                agreed("1", epoch=1),
                leads(2, 9),
                agreed("1", epoch=2),
                asks("1,2", epoch=2),
            ),
        ],
        VIOLATED,
        1,
        ("broker-1.1.4/broker-2",),
        (("broker-1.1.4",),),
    ),
    (
        "it lost data in a power loss, and reported less",
        JOINS,
        [
            *on(TWO, replicated(0, 4)),
            *on(ONE, leads(1, 5), agreed("1", epoch=1)),
            (TWO, 2, follows(1, 1, 2)),
            *on(ONE, asks("1,2", epoch=1)),
        ],
        OK,
        1,
    ),
    (
        "the start offset of the epoch is unknown",
        JOINS,
        [*on(TWO, follows(1, 1)), *on(ONE, agreed("1", epoch=1), asks("1,2", epoch=1))],
        VACUOUS,
        0,
    ),
    (
        "broker-11 is not broker-1",
        JOINS,
        [
            *on("broker-11", follows(2, 1)),
            *on(TWO, leads(1, 5), agreed("2", epoch=1), asks("2,1", epoch=1)),
        ],
        VACUOUS,
        0,
    ),
]


def add_join_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let one of three replicas leave and rejoin the ISR under changing leaders, in its own
    topic.
    """

    def emit(node: str, event: Event) -> None:
        history.emit(node, replace(event, topic="j"))

    nodes = (ONE, TWO, THREE)
    end_offset = 0
    for epoch in range(random.randrange(1, 6)):
        leader = random.choice(nodes)
        number = nodes.index(leader) + 1
        emit(leader, leads(epoch, end_offset))
        emit(leader, agreed(str(number), epoch=epoch))
        for node in nodes:
            if node == leader:
                emit(node, replicated(end_offset, end_offset + 2, epoch=epoch))
                continue
            emit(node, follows(number, epoch))
            emit(node, truncated(max(0, end_offset - (2 if slip() else 0)), epoch=epoch))
        if slip():
            emit(random.choice(nodes), follows(2, epoch + 1))
        for node in nodes:
            if node != leader:
                emit(leader, asks(f"{number},{nodes.index(node) + 1}", epoch=epoch))
                emit(
                    leader,
                    agreed(
                        f"{number},{nodes.index(node) + 1}" if slip() else str(number), epoch=epoch
                    ),
                )
        end_offset += 3
        for node in nodes:
            if node != leader:
                emit(node, replicated(end_offset - 3, end_offset - 1, epoch=epoch))
