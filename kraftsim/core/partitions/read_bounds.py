"""What a leader answers to a Fetch or a ListOffsets before a byte is read: how far the reader may see, or where to look.

Source: KIP-98 (read_committed), KIP-320 (leader epochs in Fetch), kafka.cluster.Partition.readRecords and fetchOffsetForTimestamp.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """Read whole batches from the one that holds first_offset, up to end_offset (outside). Equal: nothing to read now."""

    first_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverging:
    """The reader's log parted from this one: here leader_epoch ended at end_offset (outside)."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAnswer:
    """The answer of ListOffsets; every field is -1 where nothing was found."""

    offset: int
    timestamp: int
    leader_epoch: int


NOTHING_FOUND = OffsetAnswer(offset=-1, timestamp=-1, leader_epoch=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTimestamp:
    """Look in the segments for the first record with this timestamp or a greater one; from end_offset on nothing counts."""

    timestamp: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMaxTimestamp:
    """Look in the segments for the first record with the greatest timestamp; from end_offset on nothing counts."""

    end_offset: int
