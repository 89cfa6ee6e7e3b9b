"""Which segments are deleted, by log start offset, size, or age.

Source: UnifiedLog.deleteOldSegments.
"""

import pytest

from kraftsim.partitions.rules_log import (
    Expired,
    LeaderEpochs,
    Reason,
    RetentionRules,
    SegmentList,
    SegmentSettings,
    expired,
)
from protocol.storage.text_files import EpochStart

NOW_MS = 100_000
KEEPS_ALL = RetentionRules(retention_ms=-1, retention_bytes=-1)


def segments(*sizes: int, active: int = 0) -> SegmentList:
    """Return a log whose segments have ten offsets and so many bytes each; the n-th one was written
    at n * 1000 ms.
    """
    made = SegmentList(SegmentSettings())
    for number, size_bytes in enumerate((*sizes, active)):
        made.add_segment(number * 10, NOW_MS)
        if size_bytes:
            made.add_batch(
                first_offset=number * 10,
                last_offset=number * 10 + 9,
                size_bytes=size_bytes,
                max_timestamp=(number + 1) * 1000,
            )
    return made


@pytest.mark.parametrize(
    ("rules", "facts", "expected"),
    [
        (KEEPS_ALL, {}, None),
        (KEEPS_ALL, {"log_start_offset": 10}, Expired(1, Reason.LOG_START)),
        (KEEPS_ALL, {"log_start_offset": 19}, Expired(1, Reason.LOG_START)),
        (KEEPS_ALL, {"log_start_offset": 30}, Expired(3, Reason.LOG_START)),
        (RetentionRules(is_deleted=False, retention_ms=0), {}, None),
        (RetentionRules(is_deleted=False), {"log_start_offset": 20}, Expired(2, Reason.LOG_START)),
        (RetentionRules(retention_ms=-1, retention_bytes=300), {}, None),
        (RetentionRules(retention_ms=-1, retention_bytes=201), {}, None),
        (RetentionRules(retention_ms=-1, retention_bytes=200), {}, Expired(1, Reason.SIZE)),
        (RetentionRules(retention_ms=-1, retention_bytes=0), {}, Expired(3, Reason.SIZE)),
        (
            RetentionRules(retention_ms=-1, retention_bytes=0),
            {"high_watermark": 19},
            Expired(1, Reason.SIZE),
        ),
        (RetentionRules(retention_ms=99_000), {}, None),
        (RetentionRules(retention_ms=98_999), {}, Expired(1, Reason.TIME)),
        (RetentionRules(retention_ms=0), {}, Expired(3, Reason.TIME)),
        (RetentionRules(retention_ms=0), {"high_watermark": 9}, None),
        (RetentionRules(retention_ms=0, retention_bytes=200), {}, Expired(1, Reason.SIZE)),
    ],
)
def test_oldest_segments_are_deleted_for_the_first_reason_that_applies(
    rules: RetentionRules, facts: dict[str, int], expected: Expired | None
) -> None:
    """Three segments of 100 bytes, and an active one without records, which is kept."""
    log = segments(100, 100, 100)
    asked = {"log_start_offset": 0, "high_watermark": 30, "log_end_offset": 30} | facts
    assert expired(log.segments, rules, now_ms=NOW_MS, **asked) == expected


def test_active_segment_is_deleted_once_it_is_too_old() -> None:
    log = segments(100, active=100)
    assert expired(
        log.segments,
        RetentionRules(retention_ms=0),
        now_ms=NOW_MS,
        log_start_offset=0,
        log_end_offset=20,
        high_watermark=20,
    ) == Expired(2, Reason.TIME)


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, [EpochStart(1, 0), EpochStart(2, 10), EpochStart(5, 20)]),
        (4, [EpochStart(1, 4), EpochStart(2, 10), EpochStart(5, 20)]),
        (10, [EpochStart(2, 10), EpochStart(5, 20)]),
        (25, [EpochStart(5, 25)]),
    ],
)
def test_epochs_begin_at_the_log_start_offset(start: int, left: list[EpochStart]) -> None:
    """Source: LeaderEpochFileCache.truncateFromStartAsyncFlush."""
    epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(2, 10), EpochStart(5, 20)])
    assert epochs.advance_log_start(start) is (
        list(epochs.starts) != [EpochStart(1, 0), EpochStart(2, 10), EpochStart(5, 20)]
    )
    assert list(epochs.starts) == left
