"""Which part of a log is cleaned, when cleaning is due, and which segments are merged.

Source: kafka.log.{LogCleanerManagerTest, LogCleanerTest}, KIP-58 (min.compaction.lag.ms), KIP-354
(max.compaction.lag.ms).
"""

import pytest

from kraftsim.partitions.rules_cleaning import (
    BatchCleaner,
    CleaningRules,
    KeyScan,
    LogExtent,
    OffsetMap,
    RetainedOfProducer,
    Retention,
    cleanable,
    groups,
)
from kraftsim.partitions.rules_log import Segment
from protocol.records.batches import HEADER_SIZE_BYTES, RecordBatch, build_batch
from protocol.records.record import MalformedRecord, Record
from tests.core.batches import doctored, make_batch, make_marker

RULES = CleaningRules(is_compacted=True)
NOW = 10_000


def segment(base_offset: int, size_bytes: int, timestamp: int = 0) -> Segment:
    made = Segment(base_offset, 0)
    if size_bytes:
        made.add_batch(base_offset, size_bytes, timestamp, 1 << 30)
    return made


SEGMENTS = (
    segment(0, 100, 1000),
    segment(10, 200, 2000),
    segment(20, 300, 3000),
    segment(30, 50, 4000),
)
"""The last one is active; the log ends at 40."""


@pytest.mark.parametrize(
    ("rules", "checkpoint", "stable", "expected"),
    [
        ({}, None, 40, (0, 30, 0, 600)),
        ({}, 10, 40, (10, 30, 100, 500)),
        ({}, 15, 40, (15, 30, 300, 500)),
        ({}, 30, 40, (30, 30, 600, 0)),
        ({}, 35, 40, (35, 30, 650, 0)),
        ({}, 10, 25, (10, 20, 100, 200)),
        ({}, 10, 20, (10, 20, 100, 200)),
        ({}, None, 5, (0, 0, 0, 0)),
        ({"min_compaction_lag_ms": 7500}, None, 40, (0, 20, 0, 300)),
        ({"min_compaction_lag_ms": 7000}, None, 40, (0, 30, 0, 600)),
        ({"min_compaction_lag_ms": 60_000}, None, 40, (0, 0, 0, 0)),
    ],
)
def test_cleanable_range(
    rules: dict[str, int], checkpoint: int | None, stable: int, expected: tuple[int, int, int, int]
) -> None:
    """(first dirty offset, end, clean bytes, cleanable bytes): whole segments; none that is active,
    unstable or too young.
    """
    extent = LogExtent(
        segments=SEGMENTS, log_start_offset=0, log_end_offset=40, last_stable_offset=stable
    )
    found = cleanable(
        extent, CleaningRules(is_compacted=True, **rules), checkpoint_offset=checkpoint, now_ms=NOW
    )
    assert (
        found.first_dirty_offset,
        found.end_offset,
        found.clean_bytes,
        found.cleanable_bytes,
    ) == expected


@pytest.mark.parametrize(
    ("checkpoint", "start", "is_reset"),
    [(5, 8, True), (41, 0, True), (40, 0, False), (8, 8, False), (None, 8, False)],
)
def test_checkpoint_outside_of_the_log_is_ignored(
    checkpoint: int | None, start: int, is_reset: bool
) -> None:
    """The log was truncated, or its start offset has advanced: it counts as dirty from its
    beginning.
    """
    extent = LogExtent(
        segments=SEGMENTS, log_start_offset=start, log_end_offset=40, last_stable_offset=40
    )
    found = cleanable(extent, RULES, checkpoint_offset=checkpoint, now_ms=NOW)
    assert found.has_new_start is is_reset and (not is_reset or found.first_dirty_offset == start)


@pytest.mark.parametrize(
    ("rules", "is_due"),
    [
        ({"min_cleanable_ratio": 0.83}, True),
        ({"min_cleanable_ratio": 0.84}, False),
        ({"min_cleanable_ratio": 1.0, "max_compaction_lag_ms": 7999}, True),
        ({"min_cleanable_ratio": 1.0, "max_compaction_lag_ms": 8000}, False),
    ],
)
def test_cleaning_is_due_by_dirty_ratio_or_age(rules: dict[str, float], is_due: bool) -> None:
    """500 of 600 bytes are dirty, and the oldest of them have timestamp 2000."""
    # arg-type: a dict of values of several types
    chosen = CleaningRules(is_compacted=True, **rules)  # type: ignore[arg-type]
    extent = LogExtent(
        segments=SEGMENTS, log_start_offset=0, log_end_offset=40, last_stable_offset=40
    )
    assert cleanable(extent, chosen, checkpoint_offset=10, now_ms=NOW).is_due(chosen) is is_due


@pytest.mark.parametrize(
    ("segment_bytes", "sizes", "expected"),
    [
        (1000, (100, 200, 300), [[0, 10, 20]]),
        (500, (100, 200, 300), [[0, 10], [20]]),
        (300, (100, 200, 300), [[0, 10], [20]]),
        (99, (100, 200, 300), [[0], [10], [20]]),
        (300, (0, 0, 300), [[0, 10, 20]]),
    ],
)
def test_adjacent_small_segments_are_merged(
    segment_bytes: int, sizes: tuple[int, ...], expected: list[list[int]]
) -> None:
    rules = CleaningRules(is_compacted=True, segment_bytes=segment_bytes)
    found = groups([segment(10 * number, size) for number, size in enumerate(sizes)], rules, 30)
    assert [[each.base_offset for each in group] for group in found] == expected


def test_segment_spans_no_more_offsets_than_its_index_can_represent() -> None:
    """Except an empty segment."""
    far = 2**31
    assert len(groups([segment(0, 10), segment(far - 100, 10)], RULES, far)) == 1
    assert len(groups([segment(0, 10), segment(far - 100, 10)], RULES, far + 1)) == 2


def cleaner(latest: dict[bytes, int], until: int = 100, now_ms: int = NOW) -> BatchCleaner:
    offsets = OffsetMap(1 << 20, 0.9)
    for key, offset in latest.items():
        offsets.put(key, offset)
    offsets.latest_offset = until
    return BatchCleaner(offsets, end_offset=1000, now_ms=now_ms, delete_retention_ms=500)


def tombstones(base_offset: int, *keys: bytes) -> RecordBatch:
    return RecordBatch(
        build_batch(
            [Record(timestamp=1, key=key, value=None) for key in keys], base_offset=base_offset
        )
    )


def test_tombstone_is_kept_until_its_delete_horizon() -> None:
    """The horizon is set at the first cleaning: the time of that cleaning plus delete.retention.ms
    (KIP-534).
    """
    stamped = cleaner({b"a": 5}).clean(tombstones(5, b"a"))
    assert stamped is not None
    batch = RecordBatch(stamped)
    assert (
        batch.delete_horizon_ms == NOW + 500
        and [record.timestamp for record in batch.records()] == [1]
        and batch.crc_is_valid()
    )
    assert cleaner({b"a": 5}, now_ms=NOW + 499).clean(batch) == batch.view()
    assert cleaner({b"a": 5}, now_ms=NOW + 500).clean(batch) is None


def test_records_beyond_the_offset_map_are_kept() -> None:
    """Even a record without a key, which is otherwise dropped."""
    batch = make_batch(0, 0, key=None, base_offset=50, producer_id=-1)
    assert (
        cleaner({}, until=49).clean(batch) == batch.view()
        and cleaner({}, until=50).clean(batch) is None
    )


def test_last_batch_of_a_producer_is_kept_without_records() -> None:
    """Its offsets and sequences remain, so that the producer's next batch is in sequence."""
    batch = make_batch(3, 6, base_offset=10, producer_id=7)
    work = cleaner({b"k": 90})
    work.lasts = {7: RetainedOfProducer(13, 0)}
    left = work.clean(batch)
    assert left is not None
    kept = RecordBatch(left)
    assert (
        kept.base_offset,
        kept.last_offset,
        kept.base_sequence,
        kept.last_sequence,
        kept.record_count,
    ) == (10, 13, 3, 6, 0)
    work.lasts = {7: RetainedOfProducer(20, 0)}
    assert work.clean(batch) is None
    work.lasts = {}
    assert work.clean(batch) is None


def test_marker_is_kept_with_its_transaction_and_for_the_delete_retention() -> None:
    """If it is the only entry of its producer it is kept without limit, as an empty batch."""
    data, marker = make_batch(0, 0, base_offset=1, transactional=True), make_marker(base_offset=2)
    work = cleaner({b"k": 1})
    assert work.clean(data) == data.view() and work.clean(marker) == marker.view()
    stamped = cleaner({}).clean(marker)
    assert stamped is not None and RecordBatch(stamped).delete_horizon_ms == NOW + 500
    later = cleaner({}, now_ms=NOW + 500)
    assert later.clean(RecordBatch(stamped)) is None
    later.lasts = {7: RetainedOfProducer(-1, 0)}
    left = later.clean(RecordBatch(stamped))
    assert left is not None and RecordBatch(left).record_count == 0
    assert later.clean(RecordBatch(left)) is not None


def numbered_at_will() -> dict[str, RecordBatch]:
    """Batches with valid checksums whose records have inconsistent offsets."""
    keys = (b"key-0", b"one", b"two")
    whole = RecordBatch(
        build_batch([Record(timestamp=1, key=key, value=b"v") for key in keys], base_offset=10)
    )
    bodies = [
        bytes(
            RecordBatch(
                build_batch(
                    [Record(offset=10 + number, timestamp=1, key=key, value=b"v")], base_offset=10
                )
            ).view()[HEADER_SIZE_BYTES:]
        )
        for number, key in enumerate(keys)
    ]
    first, second, third = bodies
    return {
        "backwards": doctored(whole, base_offset=10, records=third + second + first),
        "twice": doctored(whole, base_offset=10, records=second + second + first),
        "beyond": doctored(
            whole, base_offset=10, records=third, last_offset_delta=0, record_count=1
        ),
    }


@pytest.mark.parametrize("what", ["backwards", "twice", "beyond"])
def test_log_with_inconsistent_record_offsets_is_not_cleaned(what: str) -> None:
    """The log is skipped and nothing fails; an offset beyond its batch must not shadow later
    records.
    """
    batch = numbered_at_will()[what]
    with pytest.raises(MalformedRecord):
        KeyScan(OffsetMap(1 << 20, 0.9), 0, ()).take(batch)
        control = cleaner({})
        control._left(
            batch, list(batch.records()), False, owes_horizon=True, retention=Retention.DELETE_EMPTY
        )
