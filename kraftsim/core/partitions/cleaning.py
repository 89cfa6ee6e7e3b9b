"""The log cleaner's choices: the cleanable part of a compacted log, the order of logs, and the
grouping of segments.

Nothing is cleaned at or above the last stable offset, in the active segment, or younger than
min.compaction.lag.ms.
Source: kafka.log.{LogCleanerManager.{cleanableOffsets, maxCompactionDelay,
calculateCleanableBytes}, LogToClean, Cleaner.groupSegmentsBySize}.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from kraftsim.core.partitions.segments import RELATIVE_OFFSET_MAX, Segment

SHORT_KEY_BYTES_MAX: Final = 16
DIGEST_BYTES: Final = 17
"""Longer than any key that is stored itself: a digest cannot equal a key."""
KEY_COST_BYTES: Final = 160
"""The memory of an entry in the map: 64 for the key, 32 for the offset, 36 to 72 for the slot in a
table that grows by doubling.
"""
NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRules:
    """cleanup.policy (compact), min.cleanable.dirty.ratio, min and max.compaction.lag.ms,
    delete.retention.ms, segment.bytes, segment.index.bytes.
    """

    is_compacted: bool = False
    min_cleanable_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 86_400_000
    segment_bytes: int = 1 << 30
    index_bytes: int = 10_485_760


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExtent:
    """A log as the cleaner's input: start, end and last stable offset, and its segments, the active
    one last.
    """

    segments: Sequence[Segment]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The cleanable part of a log: from first_dirty_offset up to end_offset (exclusive), a
    segment's base offset.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """Whether a part of it is older than max.compaction.lag.ms."""
    has_new_start: bool
    """Whether the checkpoint is outside of the log and has to be rewritten."""

    @property
    def ratio(self) -> float:
        """The dirty ratio, from 0 to 1."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, rules: CleaningRules) -> bool:
        """Return whether it should be cleaned now."""
        return (
            self.is_overdue and self.cleanable_bytes > 0
        ) or self.ratio > rules.min_cleanable_ratio


def cleanable(
    extent: LogExtent, rules: CleaningRules, *, checkpoint_offset: int | None, now_ms: int
) -> Cleanable:
    """Return the cleanable part.

    `checkpoint_offset` is the end of the last cleaning; `now_ms` is the wall clock.
    """
    first_dirty_offset = extent.log_start_offset if checkpoint_offset is None else checkpoint_offset
    has_new_start = not extent.log_start_offset <= first_dirty_offset <= extent.log_end_offset
    if has_new_start:
        first_dirty_offset = extent.log_start_offset
    active = extent.segments[-1]
    dirty = _closed_from(extent.segments, first_dirty_offset)
    uncleanable_offset = min(extent.last_stable_offset, active.base_offset)
    if rules.min_compaction_lag_ms > 0:
        young = next(
            (each for each in dirty if each.max_timestamp > now_ms - rules.min_compaction_lag_ms),
            None,
        )
        if young is not None:
            uncleanable_offset = min(uncleanable_offset, young.base_offset)
    uncleanable_offset = max(uncleanable_offset, first_dirty_offset)
    first_uncleanable = next(iter(_closed_from(extent.segments, uncleanable_offset)), active)
    end_offset = first_uncleanable.base_offset
    begun = min(first_dirty_offset, end_offset)
    return Cleanable(
        first_dirty_offset=first_dirty_offset,
        end_offset=end_offset,
        clean_bytes=sum(
            each.size_bytes for each in extent.segments if each.base_offset < first_dirty_offset
        ),
        cleanable_bytes=sum(
            each.size_bytes for each in segments_between(extent.segments, begun, end_offset)
        ),
        is_overdue=_is_overdue(dirty, rules, now_ms),
        has_new_start=has_new_start,
    )


def segments_between(segments: Sequence[Segment], offset: int, end_offset: int) -> list[Segment]:
    """Return the segment with an offset, and the later ones that begin below end_offset."""
    if offset >= end_offset:
        return []
    first = max(
        (index for index, each in enumerate(segments) if each.base_offset <= offset), default=0
    )
    return [each for each in segments[first:] if each.base_offset < end_offset]


def groups(
    segments: Sequence[Segment], rules: CleaningRules, end_offset: int
) -> list[list[Segment]]:
    """Group adjacent segments that fit into one, oldest first.

    `end_offset`: the end of the cleaning.
    """
    found: list[list[Segment]] = []
    size_bytes = offset_bytes = time_bytes = 0
    for index, segment in enumerate(segments):
        last_offset = (
            segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        ) - 1
        fits = (
            found
            and size_bytes + segment.size_bytes <= rules.segment_bytes
            and offset_bytes + segment.offset_index_bytes <= rules.index_bytes
            and time_bytes + segment.time_index_bytes <= rules.index_bytes
            and (
                not segment.size_bytes
                or last_offset - found[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            )
        )
        if not fits:
            found.append([])
            size_bytes = offset_bytes = time_bytes = 0
        found[-1].append(segment)
        size_bytes += segment.size_bytes
        offset_bytes += segment.offset_index_bytes
        time_bytes += segment.time_index_bytes
    return found


class OffsetMap:
    """The last offset of each key, for as many keys as fit into `buffer_bytes`.

    Long keys are stored as 136-bit digests.
    """

    __slots__ = ("_keys_max", "_offsets", "latest_offset")

    def __init__(self, buffer_bytes: int, load_factor: float) -> None:
        self._keys_max = max(int(buffer_bytes * load_factor) // KEY_COST_BYTES, 1)
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = NO_OFFSET
        """The last offset that was scanned, inclusive."""

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Store the offset of a key; False if the map is full: even for a known key the scan ends
        here, as in Kafka.
        """
        if len(self._offsets) >= self._keys_max:
            return False
        self._offsets[_short(key)] = offset
        self.latest_offset = offset
        return True

    def last_offset_of(self, key: bytes) -> int:
        """Return the last scanned offset of a key; NO_OFFSET if it was not seen."""
        return self._offsets.get(_short(key), NO_OFFSET)


def _short(key: bytes) -> bytes:
    return (
        key if len(key) <= SHORT_KEY_BYTES_MAX else blake2b(key, digest_size=DIGEST_BYTES).digest()
    )


def _closed_from(segments: Sequence[Segment], offset: int) -> list[Segment]:
    """Return the segment with an offset and the later ones, without the active one."""
    return segments_between(segments, offset, segments[-1].base_offset)


def _is_overdue(dirty: Iterable[Segment], rules: CleaningRules, now_ms: int) -> bool:
    firsts = [
        each.first_timestamp
        for each in dirty
        if each.first_timestamp is not None and each.first_timestamp > 0
    ]
    return bool(firsts) and min(firsts) < now_ms - max(rules.max_compaction_lag_ms, 0)
