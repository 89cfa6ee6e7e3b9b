"""Combines the batches of a share-partition's state: of several that have an offset, the one with
the higher delivery count holds, and of these the one with the higher delivery state.

Source: org.apache.kafka.coordinator.share.PersisterStateBatchCombiner of 4.1.2, 4.2.2, 4.3.1 and
4.4.0. Since 4.4 one sweep over all ends replaces the repeated combination of the first two batches.
The results are equal but for one case: before, a batch that was complete is not joined to a later
one that becomes its equal.
"""

import heapq
from collections.abc import Iterator, Sequence

from kraftsim.share_groups.rules_share_states import UNINITIALIZED_START_OFFSET, StateBatch

Batches = tuple[StateBatch, ...]
Priority = tuple[int, int]
"""Delivery count, delivery state."""
Row = tuple[int, int, Priority]
"""First and last offset, both inclusive, and priority: the order of PersisterStateBatch."""


class ImpossibleBatch(Exception):
    """A batch ends in front of its beginning, and there are others to combine it with."""


def combine_in_one_sweep(
    former: Sequence[StateBatch], added: Sequence[StateBatch], start_offset: int
) -> Batches:
    """Return the batches at and above a start offset (-1: all), ascending and apart. Raises
    ImpossibleBatch.

    A single batch is returned as it is.
    """
    rows = _rows(former, added, start_offset)
    if rows is None:
        return _pruned(former, added, start_offset)
    ends = sorted({offset for first, last, _ in rows for offset in (first, last + 1)})
    rows.sort()
    combined: list[Row] = []
    active: list[tuple[int, int, int]] = []
    """A heap of negated priorities with the last offset, those that are over included."""
    upcoming = 0
    for index, offset in enumerate(ends):
        while upcoming < len(rows) and rows[upcoming][0] == offset:
            _, last, (count, state) = rows[upcoming]
            heapq.heappush(active, (-count, -state, last))
            upcoming += 1
        while active and active[0][2] < offset:
            heapq.heappop(active)
        if active:
            piece = (offset, ends[index + 1] - 1, (-active[0][0], -active[0][1]))
            if combined and _is_continued(combined[-1], piece):
                combined[-1] = (combined[-1][0], piece[1], piece[2])
            else:
                combined.append(piece)
    return tuple(map(_batch, combined))


def combine_in_pairs(
    former: Sequence[StateBatch], added: Sequence[StateBatch], start_offset: int
) -> Batches:
    """The same up to 4.3: the first two batches are combined until they are apart, then the first
    of them is complete.
    """
    rows = _rows(former, added, start_offset)
    if rows is None:
        return _pruned(former, added, start_offset)
    heapq.heapify(rows)
    combined: list[Row] = []
    first = heapq.heappop(rows)
    while rows:
        second = heapq.heappop(rows)
        if second[0] <= first[1] or _is_continued(first, second):
            for piece in _pieces(first, second):
                heapq.heappush(rows, piece)
            first = heapq.heappop(rows)
        else:
            combined.append(first)
            first = second
    combined.append(first)
    return tuple(map(_batch, combined))


def _pieces(first: Row, second: Row) -> Iterator[Row]:
    """Return two batches that overlap, or continue each other, as one to three that do not: what
    is left of the weaker one, and the stronger one.
    """
    (start, end, priority), (other_start, other_end, other_priority) = first, second
    if priority == other_priority:
        yield start, max(end, other_end), priority
        return
    if priority > other_priority:
        yield first
        if other_end > end:
            yield end + 1, other_end, other_priority
        return
    if start < other_start:
        yield start, other_start - 1, priority
    yield second
    if other_end < end:
        yield other_end + 1, end, priority


def _rows(
    former: Sequence[StateBatch], added: Sequence[StateBatch], start_offset: int
) -> list[Row] | None:
    """Return the batches to combine; None if there are fewer than two. Raises ImpossibleBatch.

    Kafka fails with a NullPointerException (4.4), or combines without end (before).
    """
    batches = _pruned(former, added, start_offset)
    if len(batches) < 2:
        return None
    for batch in batches:
        if batch.last_offset < batch.first_offset:
            raise ImpossibleBatch(f"{batch.first_offset}-{batch.last_offset}")
    return [
        (each.first_offset, each.last_offset, (each.delivery_count, each.delivery_state))
        for each in batches
    ]


def _pruned(
    former: Sequence[StateBatch], added: Sequence[StateBatch], start_offset: int
) -> Batches:
    """Return what of the batches is at or above the start offset."""
    batches = (*former, *added)
    if start_offset == UNINITIALIZED_START_OFFSET:
        return batches
    return tuple(
        each
        if each.first_offset >= start_offset
        else StateBatch(start_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in batches
        if each.last_offset >= start_offset
    )


def _is_continued(former: Row, row: Row) -> bool:
    return former[1] + 1 == row[0] and former[2] == row[2]


def _batch(row: Row) -> StateBatch:
    first, last, (count, state) = row
    return StateBatch(first, last, state, count)
