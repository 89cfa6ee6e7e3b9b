"""The segments that a leader copies to remote storage next, and their metadata.

The active segment is not copied, nor segments above the last stable offset. The oldest is first; if
it cannot be copied, no later one is.
Source: RemoteLogManager.RLMCopyTask (candidateLogSegments, copyLogSegment,
findHighestRemoteOffset).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kraftsim.core.partitions.partition_replica import NO_REMOTE_OFFSET
from kraftsim.core.partitions.segments import Segment
from kraftsim.core.tiered_storage.segment_catalogue import SegmentCatalogue
from protocol.disk.leader_epoch_checkpoint import EpochStart


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment to copy; its records end before next_offset."""

    segment: Segment
    next_offset: int


def candidates(
    segments: Sequence[Segment],
    *,
    remote_end_offset: int,
    log_start_offset: int,
    last_stable_offset: int,
) -> list[Candidate]:
    """Return the segments to copy, oldest first.

    `remote_end_offset` is the highest offset in remote storage.
    """
    first_offset = max(remote_end_offset + 1, log_start_offset)
    return [
        Candidate(segment, following.base_offset)
        for segment, following in pairwise(segments)
        if following.base_offset > first_offset and following.base_offset <= last_stable_offset
    ]


def epochs_within(
    epochs: Sequence[EpochStart], first_offset: int, next_offset: int
) -> tuple[EpochStart, ...]:
    """Return the epochs of the records from first_offset up to next_offset (exclusive), the first
    one starting at first_offset.
    """
    earlier = [each for each in epochs if each.start_offset <= first_offset]
    inside = [each for each in epochs if first_offset < each.start_offset < next_offset]
    return (*(EpochStart(each.leader_epoch, first_offset) for each in earlier[-1:]), *inside)


def epochs_before(epochs: Sequence[EpochStart], next_offset: int) -> tuple[EpochStart, ...]:
    """Return the epochs in the leader epoch checkpoint of a remote segment: all that start before
    its end.
    """
    return tuple(each for each in epochs if each.start_offset < next_offset)


def highest_remote_offset(
    catalogue: SegmentCatalogue, epochs: Sequence[EpochStart], log_end_offset: int
) -> int:
    """Return the highest remote offset of the log, by its own epochs, latest first;
    NO_REMOTE_OFFSET if there is none.
    """
    end_offset = log_end_offset
    for each in reversed(epochs):
        highest = catalogue.highest_offset(each.leader_epoch)
        if highest is not None and highest >= each.start_offset:
            return min(highest, end_offset - 1)
        end_offset = each.start_offset
    return NO_REMOTE_OFFSET
