"""Retention: the segments to delete, below the log start offset, beyond the size limit, or expired;
always the oldest first.

Records above the high watermark and an empty active segment stay. Without cleanup.policy delete
only segments below the log start offset are deleted.
Source: org.apache.kafka.storage.internals.log.UnifiedLog.{deleteOldSegments, deletableSegments}.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kraftsim.core.partitions.segments import Segment

WITHOUT_LIMIT: Final = -1


class Reason(StrEnum):
    """Why segments are deleted."""

    LOG_START = "log start offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """`is_deleted`: cleanup.policy has delete. retention.ms and retention.bytes are -1 without
    limit.
    """

    is_deleted: bool = True
    retention_ms: int = 7 * 86_400_000
    retention_bytes: int = WITHOUT_LIMIT


@dataclass(frozen=True, slots=True)
class Expired:
    """The number of oldest segments to delete."""

    count: int
    reason: Reason


def expired(
    segments: Sequence[Segment],
    rules: RetentionRules,
    *,
    now_ms: int,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    remote_end_offset: int | None = None,
) -> Expired | None:
    """Return the segments to delete next; None if there are none.

    `now_ms` is the wall clock. Repeat until None.

    `remote_end_offset`: the highest offset in remote storage, and no later segment is deleted; None
    without remote storage.
    """
    following = [*(segment.base_offset for segment in segments[1:]), log_end_offset]

    def leading(is_due: Callable[[int, Segment], bool]) -> int:
        count = 0
        for index, segment in enumerate(segments):
            is_empty_active = index == len(segments) - 1 and not segment.size_bytes
            is_only_here = remote_end_offset is not None and following[index] > max(
                remote_end_offset + 1, log_start_offset
            )
            if (
                is_empty_active
                or is_only_here
                or high_watermark < following[index]
                or not is_due(index, segment)
            ):
                break
            count += 1
        return count

    count = leading(
        lambda index, segment: index < len(segments) - 1 and following[index] <= log_start_offset
    )
    if count:
        return Expired(count, Reason.LOG_START)
    if not rules.is_deleted:
        return None
    if rules.retention_bytes >= 0:
        surplus = sum(segment.size_bytes for segment in segments) - rules.retention_bytes

        def is_surplus(index: int, segment: Segment) -> bool:
            nonlocal surplus
            surplus -= segment.size_bytes
            return surplus >= 0

        count = leading(is_surplus) if surplus > 0 else 0
        if count:
            return Expired(count, Reason.SIZE)
    if rules.retention_ms >= 0:
        count = leading(lambda index, segment: now_ms - segment.age_timestamp > rules.retention_ms)
        if count:
            return Expired(count, Reason.TIME)
    return None
