"""The result of a Fetch or ListOffsets before any byte is read: the readable range, or what to
search.

Source: KIP-98 (read_committed), KIP-320 (leader epochs in Fetch),
kafka.cluster.Partition.readRecords and fetchOffsetForTimestamp.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """Read whole batches from the one with first_offset, up to end_offset (exclusive).

    Equal: nothing to read now.
    """

    first_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverging:
    """The reader's log diverges: here leader_epoch ended at end_offset (exclusive)."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAnswer:
    """The ListOffsets response; every field is -1 if nothing was found."""

    offset: int
    timestamp: int
    leader_epoch: int


NOTHING_FOUND = OffsetAnswer(offset=-1, timestamp=-1, leader_epoch=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTimestamp:
    """Search the segments for the first record with this timestamp or a later one, below
    end_offset.
    """

    timestamp: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMaxTimestamp:
    """Search the segments for the first record with the maximum timestamp, below end_offset."""

    end_offset: int
