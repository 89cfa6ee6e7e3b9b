"""A follower whose fetch offset is in remote storage only: its requests, and the restart of its
log.

It requests the leader's local log start offset, finds the remote segment that ends there, restarts
its log after it, and takes the leader epochs and the producer snapshot of the segment.
Source: kafka.server.TierStateMachine (start, buildRemoteLogAuxState), KIP-405.
"""

from dataclasses import dataclass

from kraftsim.core.tiered_storage.remote_segment import RemoteSegment
from kraftsim.core.tiered_storage.segment_catalogue import SegmentCatalogue
from protocol.disk.leader_epoch_checkpoint import EpochStart


@dataclass(frozen=True, slots=True)
class LeaderBounds:
    """The leader's local log start offset with its epoch, and its log start offset."""

    local_start_offset: int
    local_start_epoch: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBehind:
    """The log restarts at an offset, after remote storage, with these epochs.

    `now_ms`: the wall clock.
    """

    offset: int
    log_start_offset: int
    epochs: tuple[EpochStart, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class NotThere:
    """The required data is not in remote storage, as far as known."""

    why: str


def needs_earlier_epoch(bounds: LeaderBounds) -> bool:
    """Return whether the epoch of the record before the leader's local log has to be requested."""
    return bounds.local_start_epoch > 0


def epoch_before(bounds: LeaderBounds, earlier_epoch: int, earlier_end_offset: int) -> int:
    """Return the epoch of the last record before the leader's local log; the arguments are the
    OffsetForLeaderEpoch response for the former epoch.
    """
    return (
        earlier_epoch
        if earlier_end_offset > bounds.local_start_offset - 1
        else bounds.local_start_epoch
    )


def segment_before(
    catalogue: SegmentCatalogue, bounds: LeaderBounds, leader_epoch: int
) -> RemoteSegment | NotThere:
    """Return the remote segment after which a follower restarts."""
    found = catalogue.holding(leader_epoch, bounds.local_start_offset - 1)
    if found is not None:
        return found
    return NotThere(
        f"no remote segment holds offset {bounds.local_start_offset - 1} of leader epoch "
        f"{leader_epoch}"
    )
