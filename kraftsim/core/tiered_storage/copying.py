"""Which segments of a log a leader copies to the remote store next, and what it says of them.

The active segment stays where it is, and so does what readers of committed data cannot see yet. The oldest goes first; where it cannot go, none does.
Source: RemoteLogManager.RLMCopyTask (candidateLogSegments, copyLogSegment, findHighestRemoteOffset).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kraftsim.core.partitions.partition_replica import NOTHING_COPIED
from kraftsim.core.partitions.segments import Segment
from kraftsim.core.tiered_storage.segment_catalogue import SegmentCatalogue
from protocol.disk.leader_epoch_checkpoint import EpochStart


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment that may be copied; its records end before next_offset."""

    segment: Segment
    next_offset: int


def candidates(segments: Sequence[Segment], *, copied_offset: int, log_start_offset: int, last_stable_offset: int) -> list[Candidate]:
    """Return what may be copied, the oldest first. `copied_offset` is the last one that is in the remote store."""
    first_offset = max(copied_offset + 1, log_start_offset)
    return [
        Candidate(segment, following.base_offset)
        for segment, following in pairwise(segments)
        if following.base_offset > first_offset and following.base_offset <= last_stable_offset
    ]


def epochs_within(epochs: Sequence[EpochStart], first_offset: int, next_offset: int) -> tuple[EpochStart, ...]:
    """Return the epochs in which the records from first_offset up to next_offset were written, the first one beginning at first_offset."""
    earlier = [each for each in epochs if each.start_offset <= first_offset]
    inside = [each for each in epochs if first_offset < each.start_offset < next_offset]
    return (*(EpochStart(each.leader_epoch, first_offset) for each in earlier[-1:]), *inside)


def epochs_before(epochs: Sequence[EpochStart], next_offset: int) -> tuple[EpochStart, ...]:
    """Return the epochs that a segment's copy of the leader epoch checkpoint tells of: all that began before its end."""
    return tuple(each for each in epochs if each.start_offset < next_offset)


def highest_copied_offset(catalogue: SegmentCatalogue, epochs: Sequence[EpochStart], log_end_offset: int) -> int:
    """Return up to where the log is in the remote store, by its own epochs, the newest first; NOTHING_COPIED if nothing of it is."""
    end_offset = log_end_offset
    for each in reversed(epochs):
        highest = catalogue.highest_offset(each.leader_epoch)
        if highest is not None and highest >= each.start_offset:
            return min(highest, end_offset - 1)
        end_offset = each.start_offset
    return NOTHING_COPIED
