"""Histories of members of consumer groups, clean and violating: rows of `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.clients.events import ClientStarted
from kraftsim.clients.events_transactions import MembershipLost, MemberStable, PartitionTaken
from kraftsim.events.event import Event
from kraftsim.groups.events import (
    ConsumerGroupEnded,
    MemberEpochSet,
    OffsetCommitted,
    PartitionGiven,
    PendingOffsetAdded,
)
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

ONCE = "partitions-owned-once-per-epoch"
APART = "member-assignments-exclusive"
BY_OWNERS = "offsets-committed-by-owners"
INCREASE = "member-epochs-increase"
REMOVED, AWAY = -1, -2


def taken(owner: str, epoch: int, partition: int = 0, member: str = "") -> Event:
    """A member owns a partition, as it sees it."""
    return PartitionTaken(
        client_id=owner,
        group_id="g",
        member_id=member or owner,
        owner=owner,
        member_epoch=epoch,
        topic="t",
        partition=partition,
    )


def stable(member: str, epoch: int) -> Event:
    """A member sees an epoch."""
    return MemberStable(
        client_id=member, group_id="g", member_id=member, generation_id=epoch, assignment=""
    )


def lost(member: str) -> Event:
    """A member was removed."""
    return MembershipLost(client_id=member, group_id="g", generation_id=1, error_code=25)


def client_started(client_id: str) -> Event:
    """A client starts, and may join from then on."""
    return ClientStarted(client_id=client_id, library="l")


def current(record_offset: int, member: str, epoch: int, *partitions: int) -> list[Event]:
    """The current assignment of a member is in the log."""
    return [
        MemberEpochSet(
            coordinator_partition=0,
            group_id="g",
            member_id=member,
            member_epoch=epoch,
            previous_member_epoch=0,
            member_state=0,
            record_offset=record_offset,
        ),
        *(
            PartitionGiven(
                coordinator_partition=0,
                group_id="g",
                member_id=member,
                member_epoch=epoch,
                topic="t",
                partition=partition,
                is_revoked=False,
                record_offset=record_offset,
            )
            for partition in partitions
        ),
    ]


def group_ended(record_offset: int) -> Event:
    """The group is removed."""
    return ConsumerGroupEnded(coordinator_partition=0, group_id="g", record_offset=record_offset)


def committed(record_offset: int, member: str, epoch: int) -> Event:
    """A member commits an offset."""
    return OffsetCommitted(
        coordinator_partition=0,
        group_id="g",
        topic="t",
        partition=0,
        offset=5,
        record_offset=record_offset,
        is_current=True,
        member_id=member,
        generation_id=epoch,
    )


def pending(record_offset: int, member: str, epoch: int) -> Event:
    """A member commits an offset in a transaction."""
    return PendingOffsetAdded(
        coordinator_partition=0,
        group_id="g",
        topic="t",
        partition=0,
        offset=5,
        record_offset=record_offset,
        producer_id=1,
        producer_epoch=0,
        member_id=member,
        generation_id=epoch,
    )


MEMBER_ROWS: list[Row] = [
    (
        "a partition moves in the next epoch, and a static member comes back in the same one",
        ONCE,
        on("c", taken("a", 1), taken("b", 2), taken("b", 2, member="b2")),
        OK,
        3,
    ),
    (
        "two owners in one epoch",
        ONCE,
        on("c", taken("a", 1), taken("b", 1), taken("b", 1), taken("b", 1, 1)),
        VIOLATED,
        4,
        ("g/t/0/1/b",),
        (("c.1.0", "c.1.1"),),
    ),
    (
        "an empty group begins again: members that join later have its first epochs",
        ONCE,
        on(
            "c",
            taken("a", 1),
            taken("b", 2),
            stable("b", 2),
            lost("b"),
            client_started("d"),
            taken("b", 1),
            taken("d", 2),
        ),
        VIOLATED,
        4,
        ("g/t/0/2/d",),
        (("c.1.1", "c.1.6"),),
    ),
    (
        "two owners in one epoch of the group that began again",
        ONCE,
        on(
            "c",
            taken("a", 1),
            stable("a", 3),
            lost("a"),
            client_started("b"),
            taken("a", 1),
            taken("b", 1),
        ),
        VIOLATED,
        3,
        ("g/t/0/1/b",),
        (("c.1.4", "c.1.5"),),
    ),
    (
        "a later epoch is seen, but the second owner was a member before",
        ONCE,
        on("c", client_started("b"), taken("a", 1), stable("a", 2), taken("b", 1)),
        VIOLATED,
        2,
        ("g/t/0/1/b",),
        (("c.1.1", "c.1.3"),),
    ),
    (
        "the same epoch is seen, and no later one",
        ONCE,
        on("c", taken("a", 2), stable("a", 2), client_started("b"), taken("b", 2)),
        VIOLATED,
        2,
        ("g/t/0/2/b",),
        (("c.1.0", "c.1.3"),),
    ),
    (
        "a partition is given after it was released, removed, or the group has ended",
        APART,
        on(
            "b",
            *current(1, "a", 1, 0),
            *current(2, "a", 2),
            *current(3, "b", 2, 0),
            *current(4, "b", REMOVED),
            *current(5, "c", 3, 0),
            group_ended(6),
            *current(7, "d", 1, 0),
        ),
        OK,
        4,
    ),
    (
        "a partition is given that another member has; the log has the order, not the events",
        APART,
        on("b", *current(2, "b", 2, 0), *current(1, "a", 1, 0)),
        VIOLATED,
        2,
        ("g/t/0/2/a",),
        (("b.1.2", "b.1.0"),),
    ),
    (
        "what is loaded again is no other record",
        APART,
        [*on("b", *current(1, "a", 1, 0)), *on("d", *current(1, "a", 1, 0))],
        OK,
        1,
    ),
    (
        "owners commit, until they have revoked",
        BY_OWNERS,
        on(
            "b",
            *current(1, "a", 1, 0),
            committed(2, "a", 1),
            pending(3, "a", 1),
            *current(4, "a", 2),
            *current(5, "b", 2, 0),
            committed(6, "b", 2),
        ),
        OK,
        3,
    ),
    (
        "a former owner commits",
        BY_OWNERS,
        on("b", *current(1, "a", 1, 0), *current(4, "a", 2), pending(5, "a", 1)),
        VIOLATED,
        1,
        ("g/t/0/5",),
        (("b.1.3",),),
    ),
    (
        "members of a classic group, and clients that are no members",
        BY_OWNERS,
        on(
            "b",
            committed(1, "x", 1),
            *current(2, "a", 1, 0),
            committed(3, "", -1),
            group_ended(4),
            committed(5, "y", 2),
        ),
        VACUOUS,
        0,
    ),
    (
        "epochs increase; a static member leaves for a while; a removed one begins again",
        INCREASE,
        on(
            "b",
            *current(1, "a", 1),
            *current(2, "a", 3),
            *current(3, "a", AWAY),
            *current(4, "a", 2),
            *current(5, "a", REMOVED),
            *current(6, "a", 1),
        ),
        OK,
        1,
    ),
    (
        "an epoch goes back",
        INCREASE,
        on("b", *current(1, "a", 5), *current(2, "a", 5), *current(3, "a", 4)),
        VIOLATED,
        2,
        ("g/a/3",),
        (("b.1.1", "b.1.2"),),
    ),
]


def add_member_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let two members share one partition, mostly correctly: the records, and what they see."""
    record_offset = 0
    epoch = 1
    owner: str | None = None
    for _ in range(random.randrange(3, 8)):
        record_offset += 1
        member = random.choice(("m1", "m2"))
        if owner is not None and owner != member and not slip():
            for event in current(record_offset, owner, epoch):
                history.emit("broker-1", event)
            record_offset += 1
        epoch += -1 if epoch and slip() else random.randrange(2)  # -1 would remove the member
        for event in current(record_offset, member, epoch, 0):
            history.emit("broker-1", event)
        history.emit("client", taken(member, epoch + (not slip()) * record_offset))
        if slip():
            history.emit("client", stable(owner or member, epoch + random.randrange(3)))
            history.emit("client", random.choice((lost, client_started))(member))
        owner = member
        record_offset += 1
        committer = random.choice(("m1", "m2")) if slip() else member
        commit = random.choice((committed, pending))
        history.emit("broker-1", commit(record_offset, committer, epoch))
        if slip():
            record_offset += 1
            history.emit("broker-1", group_ended(record_offset))
            owner, epoch = None, 1
