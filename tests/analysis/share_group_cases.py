"""Histories of members of share groups, clean and violating: rows of `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.groups.events import (
    ShareGroupEnded,
    ShareMemberEpochSet,
    ShareMemberSubscribed,
    SharePartitionGiven,
    SharePartitionInitialized,
    SharePartitionsRecorded,
)
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

INCREASE = "share-member-epochs-increase"
INITIALIZED = "share-partitions-initialized-first"
SUBSCRIBED = "share-members-get-subscribed-topics"
REMOVED = -1


def shared(record_offset: int, member: str, epoch: int, *partitions: int) -> list[Event]:
    """The current assignment of a member, on topic t, is in the log."""
    return [
        ShareMemberEpochSet(
            coordinator_partition=0,
            group_id="s",
            member_id=member,
            member_epoch=epoch,
            previous_member_epoch=0,
            record_offset=record_offset,
        ),
        *(
            SharePartitionGiven(
                coordinator_partition=0,
                group_id="s",
                member_id=member,
                member_epoch=epoch,
                topic="t",
                partition=partition,
                record_offset=record_offset,
            )
            for partition in partitions
        ),
    ]


def states(record_offset: int, *partitions: int) -> list[Event]:
    """The log says that the states of these partitions of topic t are initialized."""
    return [
        SharePartitionsRecorded(
            coordinator_partition=0,
            group_id="s",
            initializing_count=0,
            initialized_count=len(partitions),
            deleting_count=0,
            record_offset=record_offset,
        ),
        *(
            SharePartitionInitialized(
                coordinator_partition=0,
                group_id="s",
                topic="t",
                partition=partition,
                record_offset=record_offset,
            )
            for partition in partitions
        ),
    ]


def subscribed(record_offset: int, member: str, *topics: str) -> Event:
    """The metadata of a member are in the log."""
    return ShareMemberSubscribed(
        coordinator_partition=0,
        group_id="s",
        member_id=member,
        topics=",".join(topics),
        record_offset=record_offset,
    )


def ended(record_offset: int) -> Event:
    """The group is removed."""
    return ShareGroupEnded(coordinator_partition=0, group_id="s", record_offset=record_offset)


SHARE_GROUP_ROWS: list[Row] = [
    (
        "epochs of a member increase, and begin again after it was removed",
        INCREASE,
        on(
            "b",
            *shared(1, "m", 2),
            *shared(2, "m", 3),
            *shared(3, "m", REMOVED),
            *shared(4, "m", 1),
        ),
        OK,
        1,
    ),
    (
        "epochs begin again in a group that was removed",
        INCREASE,
        on("b", *shared(1, "m", 5), ended(2), *shared(3, "m", 2)),
        VACUOUS,
        0,
    ),
    (
        "the epoch of a member falls, whatever the order of the events",
        INCREASE,
        on("b", *shared(4, "m", 2), *shared(1, "m", 3)),
        VIOLATED,
        1,
        ("s/m/4",),
        (("b.1.1", "b.1.0"),),
    ),
    (
        "a partition is given once its state is initialized",
        INITIALIZED,
        on("b", *states(1, 0, 1), *shared(2, "m", 2, 0, 1), *states(3, 1)),
        OK,
        2,
    ),
    (
        "a partition is given whose state is not initialized any longer",
        INITIALIZED,
        on("b", *states(1, 0, 1), *states(2, 1), *shared(3, "m", 2, 0, 1)),
        VIOLATED,
        2,
        ("s/t/0/3",),
        (("b.1.6",),),
    ),
    (
        "a partition is given of a group without any state",
        INITIALIZED,
        on("b", *shared(3, "m", 2, 0)),
        VIOLATED,
        1,
        ("s/t/0/3",),
        (("b.1.1",),),
    ),
    (
        "a member gets partitions of its topics",
        SUBSCRIBED,
        on("b", subscribed(1, "m", "a", "t"), *shared(2, "m", 2, 0), subscribed(3, "m", "a")),
        OK,
        1,
    ),
    (
        "a member gets a partition of a topic whose name only contains its own",
        SUBSCRIBED,
        on("b", subscribed(1, "m", "tt", "at"), *shared(2, "m", 2, 0)),
        VIOLATED,
        1,
        ("s/t/0/2",),
        (("b.1.2",),),
    ),
]


def add_share_group_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let two members share two partitions, mostly correctly."""
    record_offset, epoch = 0, 2
    for member in ("m1", "m2"):
        record_offset += 1
        history.emit("broker-1", subscribed(record_offset, member, "u" if slip() else "t"))
    for _ in range(random.randrange(3, 8)):
        record_offset += 1
        partitions = (0,) if slip() else (0, 1)
        for event in states(record_offset, *partitions):
            history.emit("broker-1", event)
        record_offset += 1
        epoch += -1 if slip() else random.randrange(2)
        member = random.choice(("m1", "m2"))
        given = (0, 1)[: random.randrange(1, 3)]
        for event in shared(record_offset, member, epoch, *given):
            history.emit("broker-1", event)
        if slip():
            record_offset += 1
            history.emit("broker-1", ended(record_offset))
