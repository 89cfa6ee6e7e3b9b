"""The records of a share-partition that are in flight: the delivery state of each, and the batches
in which they are kept.

A batch has one state for all its offsets, until something happens to a part of them: then every
offset gets a state of its own. Offsets without a record (compacted away, or those of a marker) have
states like all others; the member that acquired them reports them as gaps.

Source: KIP-932; org.apache.kafka.server.share.fetch.{RecordState, InFlightState, InFlightBatch}.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

NO_MEMBER: Final = ""


class RecordState(IntEnum):
    """The delivery state of a record, as it is stored. ACQUIRED is never stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether the record is never delivered again."""
        return self >= RecordState.ACKNOWLEDGED


class _Before:
    """What a state was before a change that is being stored."""

    __slots__ = ("delivery_count", "delivery_count_max", "member_id", "state")

    def __init__(
        self, state: RecordState, delivery_count: int, member_id: str, delivery_count_max: int
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.delivery_count_max = delivery_count_max


class InFlightState:
    """The state of one offset, or of all offsets of a batch.

    `lock_deadline_ms` is when the acquisition lock ends; None: there is no lock. While a change is
    being stored the lock still runs, and a change that could not be stored after its end makes the
    record available.
    """

    __slots__ = (
        "_before",
        "_is_archived",
        "delivery_count",
        "lock_deadline_ms",
        "member_id",
        "state",
    )

    def __init__(
        self,
        state: RecordState,
        delivery_count: int,
        member_id: str = NO_MEMBER,
        lock_deadline_ms: int | None = None,
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock_deadline_ms = lock_deadline_ms
        self._before: _Before | None = None
        self._is_archived = False

    @property
    def is_changing(self) -> bool:
        """Whether a change is being stored."""
        return self._before is not None

    @property
    def is_available(self) -> bool:
        """Whether a member may acquire it now."""
        return self.state is RecordState.AVAILABLE and self._before is None

    @property
    def is_settled(self) -> bool:
        """Whether it is in its last state, and that is stored."""
        return self.state.is_terminal and self._before is None

    def try_change(
        self, state: RecordState, delivery_count_max: int, member_id: str, *, counted: int = 0
    ) -> bool:
        """Change the state, and return whether that is possible.

        A record that was delivered `delivery_count_max` times is archived instead of made
        available. `counted` is added to the delivery count unless the record is archived.
        """
        if self._before is not None:
            return False
        if (
            state is RecordState.AVAILABLE
            and counted >= 0
            and self.delivery_count >= delivery_count_max
        ):
            state = RecordState.ARCHIVED
        if state is self.state or self.state.is_terminal:
            return False
        if self.state is RecordState.AVAILABLE and state is not RecordState.ACQUIRED:
            return False
        self.state = state
        if state is not RecordState.ARCHIVED:
            self.delivery_count += counted
        self.member_id = member_id
        return True

    def begin_change(
        self, state: RecordState, delivery_count_max: int, member_id: str, *, counted: int = 0
    ) -> bool:
        """The same, until `end_change` says whether it was stored."""
        before = _Before(self.state, self.delivery_count, self.member_id, delivery_count_max)
        if not self.try_change(state, delivery_count_max, member_id, counted=counted):
            return False
        self._before = before
        return True

    def end_change(self, *, is_stored: bool, now_ms: int) -> None:
        """Confirm a change, or take it back; after the end of the lock the record becomes
        available, or archived if it cannot be delivered again.
        """
        before = self._before
        assert before is not None, "a change ends once"
        self._before = None
        if is_stored or self._is_archived:
            self.lock_deadline_ms = None
        elif self.lock_deadline_ms is not None and self.lock_deadline_ms <= now_ms:
            self.state = (
                RecordState.ARCHIVED
                if before.delivery_count >= before.delivery_count_max
                else RecordState.AVAILABLE
            )
            self.member_id, self.lock_deadline_ms = NO_MEMBER, None
        else:
            self.state, self.member_id = before.state, before.member_id
            self.delivery_count = before.delivery_count

    def archive(self) -> None:
        """Archive at once, whatever is being stored: the record does not exist any more, or its
        transaction was aborted.
        """
        self._is_archived = True
        self.state, self.member_id, self.lock_deadline_ms = RecordState.ARCHIVED, NO_MEMBER, None


class InFlightBatch:
    """Offsets `first_offset` to `last_offset`, both inclusive.

    `whole` is the state of all of them; once that is None, `offsets` has the state of each, in
    ascending order.
    """

    __slots__ = ("first_offset", "last_offset", "offsets", "whole")

    def __init__(self, first_offset: int, last_offset: int, whole: InFlightState) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.whole: InFlightState | None = whole
        self.offsets: dict[int, InFlightState] = {}

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last_offset - self.first_offset + 1

    def split(self) -> None:
        """Give every offset a state of its own."""
        whole = self.whole
        if whole is None:
            return
        assert not whole.is_changing, "a batch whose change is being stored stays whole"
        self.offsets = {
            offset: InFlightState(
                whole.state, whole.delivery_count, whole.member_id, whole.lock_deadline_ms
            )
            for offset in range(self.first_offset, self.last_offset + 1)
        }
        self.whole = None

    def split_acquired(self, last_acquired_offset: int) -> None:
        """Leave only the offsets up to one acquired, and the others available and undelivered."""
        self.split()
        for offset in range(last_acquired_offset + 1, self.last_offset + 1):
            before = self.offsets[offset]
            self.offsets[offset] = InFlightState(RecordState.AVAILABLE, before.delivery_count - 1)

    def states(self) -> Iterator[tuple[int, int, InFlightState]]:
        """Yield first offset, last offset and state: one row, or one for each offset."""
        if self.whole is not None:
            yield self.first_offset, self.last_offset, self.whole
            return
        for offset, state in self.offsets.items():
            yield offset, offset, state

    def state_at(self, offset: int) -> InFlightState:
        """Return the state of an offset; of the nearest one if the batch does not contain it."""
        if self.whole is not None:
            return self.whole
        return self.offsets[min(max(offset, self.first_offset), self.last_offset)]


class InFlightCache:
    """The batches in flight, in ascending order without overlaps, but perhaps with gaps."""

    __slots__ = ("_batches", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: dict[int, InFlightBatch] = {}

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return (self._batches[first] for first in self._firsts)

    @property
    def first(self) -> InFlightBatch:
        """The lowest batch."""
        return self._batches[self._firsts[0]]

    @property
    def last(self) -> InFlightBatch:
        """The highest batch."""
        return self._batches[self._firsts[-1]]

    def put(self, batch: InFlightBatch) -> None:
        """Add a batch."""
        assert batch.first_offset not in self._batches, "batches do not overlap"
        if self._firsts and batch.first_offset < self._firsts[-1]:
            insort(self._firsts, batch.first_offset)
        else:
            self._firsts.append(batch.first_offset)
        self._batches[batch.first_offset] = batch

    def floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at an offset or below it."""
        place = bisect_right(self._firsts, offset)
        return self._batches[self._firsts[place - 1]] if place else None

    def after(self, offset: int) -> InFlightBatch | None:
        """Return the first batch that begins above an offset."""
        place = bisect_right(self._firsts, offset)
        return self._batches[self._firsts[place]] if place < len(self._firsts) else None

    def between(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches that begin in a range, both ends inclusive."""
        begin, end = (
            bisect_left(self._firsts, first_offset),
            bisect_right(self._firsts, last_offset),
        )
        return [self._batches[first] for first in self._firsts[begin:end]]

    def overlapping(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches that have offsets in a range, both ends inclusive."""
        floor = self.floor(first_offset)
        begin = (
            first_offset
            if floor is None or floor.last_offset < first_offset
            else floor.first_offset
        )
        return self.between(begin, last_offset)

    def remove_below(self, first_offset: int) -> None:
        """Remove the batches that begin below an offset."""
        end = bisect_left(self._firsts, first_offset)
        for first in self._firsts[:end]:
            del self._batches[first]
        del self._firsts[:end]

    def clear(self) -> None:
        """Remove all batches."""
        self._firsts.clear()
        self._batches.clear()
