"""Histories of leaders of share-partitions: rows for the table in `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.share_groups.events import (
    ShareLocksEnded,
    SharePartitionLoaded,
    ShareRecordsAcquired,
    ShareRecordsArchived,
    ShareStartOffsetMoved,
    ShareStateLoaded,
    ShareStateStored,
)
from kraftsim.share_groups.invariants.leaders import ADVANCES, COUNTED, DONE, KEPT, ONE_MEMBER
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


class Shared:
    """Events of one share-partition in one load."""

    def __init__(self, load: int = 1, partition: int = 0, state_epoch: int = 1) -> None:
        self.load = load
        self.partition = partition
        self.state_epoch = state_epoch

    def began(self, start_offset: int = 0, *, has_gaps: bool = False) -> Event:
        """The share-partition is loaded."""
        return SharePartitionLoaded(
            group_id="g",
            topic="shared",
            topic_id="id",
            partition=self.partition,
            load=self.load,
            leader_epoch=1,
            state_epoch=self.state_epoch,
            start_offset=start_offset,
            has_gaps=has_gaps,
        )

    def known(self, first: int, last: int, state: int, count: int = 1) -> Event:
        """A state is loaded with it."""
        return ShareStateLoaded(
            group_id="g",
            topic="shared",
            topic_id="id",
            partition=self.partition,
            load=self.load,
            state_epoch=self.state_epoch,
            first_offset=first,
            last_offset=last,
            delivery_state=state,
            delivery_count=count,
        )

    def took(
        self,
        first: int,
        last: int,
        count: int = 1,
        member_id: str = "m",
        *,
        is_counted: bool = True,
    ) -> Event:
        """A member acquires records."""
        return ShareRecordsAcquired(
            group_id="g",
            topic="shared",
            topic_id="id",
            partition=self.partition,
            load=self.load,
            state_epoch=self.state_epoch,
            member_id=member_id,
            first_offset=first,
            last_offset=last,
            delivery_count=count,
            delivery_count_max=5,
            is_counted=is_counted,
        )

    def ended(self, first: int, last: int, state: int = AVAILABLE) -> Event:
        """Locks end."""
        return ShareLocksEnded(
            group_id="g",
            topic="shared",
            topic_id="id",
            partition=self.partition,
            load=self.load,
            first_offset=first,
            last_offset=last,
            delivery_state=state,
            reason="stored",
        )

    def stored(
        self, first: int, last: int, state: int = ACKNOWLEDGED, start_offset: int = 0
    ) -> Event:
        """A state is stored."""
        return ShareStateStored(
            group_id="g",
            topic="shared",
            topic_id="id",
            partition=self.partition,
            load=self.load,
            state_epoch=self.state_epoch,
            first_offset=first,
            last_offset=last,
            delivery_state=state,
            delivery_count=1,
            start_offset=start_offset,
        )

    def archived(self, first: int, last: int) -> Event:
        """Records are gone."""
        return ShareRecordsArchived(
            group_id="g",
            topic="shared",
            topic_id="id",
            partition=self.partition,
            load=self.load,
            first_offset=first,
            last_offset=last,
        )

    def moved(self, previous: int, start_offset: int) -> Event:
        """The start offset moves."""
        return ShareStartOffsetMoved(
            group_id="g",
            topic="shared",
            topic_id="id",
            partition=self.partition,
            load=self.load,
            state_epoch=self.state_epoch,
            previous_offset=previous,
            start_offset=start_offset,
        )


S, AGAIN, LATER = Shared(), Shared(load=2), Shared(state_epoch=2, load=2)

SHARE_LEADER_ROWS: list[Row] = [
    ("two members, one after the other", ONE_MEMBER,
     on("b", S.took(0, 9), S.ended(0, 4), S.ended(5, 9), S.took(0, 9, 2)), OK, 2),
    ("different records", ONE_MEMBER, on("b", S.took(0, 9), S.took(10, 12)), OK, 2),
    ("the same partition after another load", ONE_MEMBER,
     on("b", S.took(0, 9), AGAIN.took(0, 9)), OK, 2),
    ("on another node", ONE_MEMBER, [*on("b", S.took(0, 9)), *on("c", S.took(0, 9))], OK, 2),
    ("one record of ten is still acquired", ONE_MEMBER,
     on("b", S.took(0, 9), S.ended(0, 8), S.took(5, 12, 2)), VIOLATED, 2, ("b.1.2",),
     (("b.1.0", "b.1.2"),)),
    ("twice at once", ONE_MEMBER, on("b", S.took(3, 3), S.took(3, 3)), VIOLATED, 2, ("b.1.1",)),
    ("nothing is acquired", ONE_MEMBER, on("b", S.began()), VACUOUS, 0),
    ("deliveries rise by one", COUNTED,
     on("b", S.known(0, 4, AVAILABLE, 2), S.took(0, 4, 3), S.took(5, 9), S.took(0, 2, 4)), OK, 3),
    ("a delivery is not counted", COUNTED, on("b", S.took(0, 4), S.took(0, 4)), VIOLATED, 2,
     ("b.1.1",)),
    ("a delivery counts twice", COUNTED, on("b", S.took(0, 4, 2)), VIOLATED, 1, ("b.1.0",)),
    ("a loaded count is forgotten", COUNTED,
     on("b", S.known(2, 2, AVAILABLE, 3), S.took(0, 4)), VIOLATED, 1, ("b.1.1",)),
    ("more deliveries than allowed", COUNTED,
     on("b", S.known(0, 0, AVAILABLE, 5), S.took(0, 0, 6)), VIOLATED, 1, ("b.1.1",)),
    ("a release that does not count abandoned deliveries", COUNTED,
     on("b", S.took(0, 4, is_counted=False), S.took(0, 4, is_counted=False)), VACUOUS, 0),
    ("the start offset advances", ADVANCES,
     on("b", S.began(), S.moved(0, 4), S.stored(4, 4, start_offset=4), S.moved(4, 9),
        AGAIN.began(4)), OK, 4),
    ("it goes back", ADVANCES, on("b", S.moved(0, 9), S.moved(9, 8)), VIOLATED, 2, ("b.1.1",)),
    ("it goes back to a place from before", ADVANCES,
     on("b", S.moved(0, 9), S.moved(0, 8)), VIOLATED, 2, ("b.1.1",)),
    ("a new leader begins below what is stored", ADVANCES,
     [*on("b", S.stored(9, 9, start_offset=9)), *on("c", S.began(8))], VIOLATED, 1, ("c.1.0",)),
    ("another state epoch begins again", ADVANCES,
     [*on("b", S.stored(9, 9, start_offset=9)), *on("c", LATER.began(0))], OK, 1),
    ("released records are delivered again", DONE,
     on("b", S.began(), S.took(0, 9), S.stored(0, 9, AVAILABLE), S.took(0, 9, 2)), OK, 2),
    ("accepted ones are not", DONE,
     on("b", S.began(), S.took(0, 9), S.stored(3, 3), S.took(0, 9, 2)), VIOLATED, 2, ("b.1.3",),
     (("b.1.2", "b.1.3"),)),
    ("nor by the next leader", DONE,
     [*on("b", S.stored(3, 3, ARCHIVED)), *on("c", S.began(), S.took(2, 3, 2))], VIOLATED, 1,
     ("c.1.1",)),
    ("a former leader does not know", DONE,
     [*on("c", S.began()), *on("b", S.stored(3, 3)), *on("c", S.took(2, 3))], OK, 1),
    ("a new state epoch", DONE, on("b", S.stored(3, 3), LATER.began(), LATER.took(3, 3)), OK, 1),
    ("passed when it is done", KEPT,
     on("b", S.began(), S.known(0, 1, ARCHIVED), S.ended(2, 3, ACKNOWLEDGED), S.archived(4, 9),
        S.moved(0, 8), S.moved(8, 10)), OK, 2),
    ("a record is passed that is available", KEPT,
     on("b", S.began(), S.ended(0, 3, ACKNOWLEDGED), S.ended(4, 4), S.moved(0, 5)), VIOLATED, 1,
     ("b.1.3",)),
    ("done in another load", KEPT,
     on("b", S.ended(0, 3, ACKNOWLEDGED), AGAIN.moved(0, 3)), VIOLATED, 1, ("b.1.1",)),
    ("gaps are unknown", KEPT, on("b", S.began(has_gaps=True), S.moved(0, 5)), VACUOUS, 0),
]  # fmt: skip


def add_share_leader_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let two leaders deliver, store, and move their start offsets, mostly correctly."""
    end_offset, start_offset, load = 0, 0, 0
    counts: dict[int, int] = {}
    for leader in random.sample(("broker-7", "broker-8"), 2):
        load += 0 if slip() else 1
        shared = Shared(load=load, partition=7, state_epoch=2 if slip() else 1)
        history.emit(leader, shared.began(start_offset - (3 if slip() else 0), has_gaps=slip()))
        for offset, count in sorted(counts.items()):
            if offset >= start_offset and not slip():
                history.emit(leader, shared.known(offset, offset, AVAILABLE, count))
        for _ in range(random.randrange(6)):
            size = random.randrange(1, 5)
            first = start_offset if random.random() < 0.4 else end_offset
            last = first + size - 1
            end_offset = max(end_offset, last + 1)
            count = counts.get(first, 0) + (0 if slip() else 1)
            history.emit(leader, shared.took(first, last, count, is_counted=not slip()))
            for offset in range(first, last + 1):
                counts[offset] = count
            state = random.choice((AVAILABLE, ACKNOWLEDGED, ARCHIVED))
            if not slip():
                history.emit(leader, shared.stored(first, last, state, start_offset))
            if not slip():
                history.emit(leader, shared.ended(first, last - (1 if slip() else 0), state))
            if (state != AVAILABLE and first == start_offset) or slip():
                if random.random() < 0.3:
                    history.emit(leader, shared.archived(first, last))
                history.emit(leader, shared.moved(start_offset, last + (0 if slip() else 1)))
                start_offset = last + 1
