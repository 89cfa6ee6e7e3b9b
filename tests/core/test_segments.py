"""Where a log search may start, and when a segment is rolled.

Source: LogSegment, OffsetIndex, TimeIndex, UnifiedLog.maybeRoll.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftsim.partitions.rules_log import SegmentList, SegmentSettings
from protocol.storage.indexes import OffsetEntry, TimeEntry

SETTINGS = SegmentSettings(segment_bytes=1000, segment_ms=5000, index_interval_bytes=100)


@dataclass
class Placed:
    base_offset: int
    position: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass
class Filled:
    segments: SegmentList
    batches: list[Placed] = field(default_factory=list)


batches = st.lists(
    st.tuples(st.integers(1, 4), st.integers(20, 300), st.integers(0, 9000), st.integers(0, 1)),
    min_size=1,
    max_size=40,
)


def fill(rows: list[tuple[int, int, int, int]]) -> Filled:
    """Append batches (records, bytes, timestamp, gap before it), rolling when due."""
    filled = Filled(SegmentList(SETTINGS))
    segments = filled.segments
    segments.add_segment(0, now_ms=0)
    for count, size_bytes, timestamp, gap in rows:
        first_offset = segments.log_end_offset + gap
        last_offset = first_offset + count - 1
        if segments.must_roll(
            last_offset=last_offset, size_bytes=size_bytes, max_timestamp=timestamp, now_ms=0
        ):
            segments.active.close()
            segments.add_segment(segments.log_end_offset, now_ms=0)
        filled.batches.append(
            Placed(
                segments.active.base_offset,
                segments.active.size_bytes,
                first_offset,
                last_offset,
                timestamp,
            )
        )
        segments.add_batch(
            first_offset=first_offset,
            last_offset=last_offset,
            size_bytes=size_bytes,
            max_timestamp=timestamp,
        )
    return filled


@given(batches)
def test_search_by_offset_starts_at_or_before_its_batch(
    history: list[tuple[int, int, int, int]],
) -> None:
    """In the right segment, at the start of a batch, and not further back than an index interval
    and a batch.
    """
    filled = fill(history)
    for batch in filled.batches:
        segment = filled.segments.holding(batch.last_offset)
        assert segment is not None and segment.base_offset == batch.base_offset
        position = segment.position_before(batch.last_offset)
        starts = [
            other.position for other in filled.batches if other.base_offset == batch.base_offset
        ]
        assert position in starts and batch.position - 2 * 300 <= position <= batch.position
    assert filled.segments.holding(filled.segments.log_end_offset) is None
    assert all(segment.size_bytes <= SETTINGS.segment_bytes for segment in filled.segments.segments)


@given(batches, st.integers(0, 9001))
def test_search_by_timestamp_starts_at_or_before_its_batch(
    history: list[tuple[int, int, int, int]], timestamp: int
) -> None:
    """In the first segment with such a timestamp, at or before the first batch that has it."""
    filled = fill(history)
    wanted = next((batch for batch in filled.batches if batch.timestamp >= timestamp), None)
    segment = filled.segments.holding_timestamp(timestamp)
    assert (segment is None) == (wanted is None)
    if segment is not None and wanted is not None:
        assert segment.base_offset == wanted.base_offset
        assert segment.position_before_timestamp(timestamp) <= wanted.position
    newest = filled.segments.holding_max_timestamp()
    first_newest = max(filled.batches, key=lambda batch: batch.timestamp)
    assert newest is not None and newest.base_offset == first_newest.base_offset
    assert newest.offset_of_max_timestamp == first_newest.last_offset


@given(batches, st.integers(0, 60))
def test_truncated_segments_are_removed_and_the_log_ends_before_them(
    history: list[tuple[int, int, int, int]], offset: int
) -> None:
    """A truncation drops whole segments; the remaining part of one is added again batch by
    batch.
    """
    filled = fill(history)
    segments = filled.segments
    before = [segment.base_offset for segment in segments.segments]
    end_offset = segments.log_end_offset
    removed = [segment.base_offset for segment in segments.remove_from(offset)]
    assert removed == [base for base in before if base >= offset]
    assert [segment.base_offset for segment in segments.segments] == [
        base for base in before if base < offset
    ]
    assert segments.log_end_offset == (removed[0] if removed else end_offset)


@given(batches, st.integers(0, 60))
def test_only_segments_wholly_before_the_offset_are_dropped(
    history: list[tuple[int, int, int, int]], offset: int
) -> None:
    """The segment that holds the offset and the active segment are kept; no kept segment is wholly
    before the offset.
    """
    segments = fill(history).segments
    before = [segment.base_offset for segment in segments.segments]
    removed = [segment.base_offset for segment in segments.remove_before(offset)]
    kept = [segment.base_offset for segment in segments.segments]
    assert (removed + kept, len(kept) >= 1) == (before, True)
    assert not removed or kept[0] <= offset
    assert len(kept) == 1 or kept[1] > offset


@pytest.mark.parametrize(
    ("size_bytes", "max_timestamp", "last_offset", "rolls"),
    [
        (200, 0, 20, False),  # exactly full
        (201, 0, 20, True),
        (10, 6000, 20, False),  # exactly 5000 ms after the first record
        (10, 6001, 20, True),
        (10, 0, 2**31 - 1, False),
        (10, 0, 2**31, True),  # offsets are stored relative to the base as int32
    ],
)
def test_segment_is_rolled_by_size_age_or_offset(
    size_bytes: int, max_timestamp: int, last_offset: int, rolls: bool
) -> None:
    """Age is that of the records, from the first one's timestamp.   Source: KIP-33."""
    segments = SegmentList(SETTINGS)
    segments.add_segment(0, now_ms=0)
    segments.add_batch(first_offset=0, last_offset=9, size_bytes=800, max_timestamp=1000)
    assert (
        segments.must_roll(
            last_offset=last_offset,
            size_bytes=size_bytes,
            max_timestamp=max_timestamp,
            now_ms=10**9,
        )
        == rolls
    )


def test_empty_segment_is_never_rolled() -> None:
    """There would be two with one base offset."""
    segments = SegmentList(SETTINGS)
    segments.add_segment(0, now_ms=0)
    assert not segments.must_roll(last_offset=0, size_bytes=5000, max_timestamp=10**9, now_ms=10**9)


def test_index_gets_an_entry_per_interval_of_bytes() -> None:
    """The entry is for the batch after the interval is full; timestamps are added only if they
    increase.
    """
    segments = SegmentList(SETTINGS)
    segments.add_segment(50, now_ms=0)
    entries = [
        segments.add_batch(
            first_offset=offset, last_offset=offset, size_bytes=101, max_timestamp=timestamp
        )
        for offset, timestamp in ((50, 7), (51, 5), (52, 9), (53, 9))
    ]
    assert [entry and (entry.offset, entry.time) for entry in entries] == [
        None,
        (OffsetEntry(51, 101), TimeEntry(7, 50)),
        (OffsetEntry(52, 202), TimeEntry(9, 52)),
        (OffsetEntry(53, 303), None),
    ]
    assert segments.active.close() is None
