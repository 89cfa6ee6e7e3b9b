"""A follower whose leader has what it asks for in the remote store only: what it asks, and from where it goes on.

It asks where the leader's local log begins, finds the remote segment that ends right before that, begins an empty log behind it, and takes over the
leader epochs and the producers that were written down with the segment.
Source: kafka.server.TierStateMachine (start, buildRemoteLogAuxState), KIP-405.
"""

from dataclasses import dataclass

from kraftsim.core.tiered_storage.remote_segment import RemoteSegment
from kraftsim.core.tiered_storage.segment_catalogue import SegmentCatalogue
from protocol.disk.leader_epoch_checkpoint import EpochStart


@dataclass(frozen=True, slots=True)
class LeaderBounds:
    """Where the leader's local log begins and in which epoch, and where its whole log begins."""

    local_start_offset: int
    local_start_epoch: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBehind:
    """A log begins anew at an offset, behind what is in the remote store, whose epochs these are. `now_ms`: the wall clock."""

    offset: int
    log_start_offset: int
    epochs: tuple[EpochStart, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class NotThere:
    """What has to be read is not in the remote store, as far as is known by now."""

    why: str


def needs_earlier_epoch(bounds: LeaderBounds) -> bool:
    """Tell whether the leader must be asked in which epoch the record before its local log was written."""
    return bounds.local_start_epoch > 0


def epoch_before(bounds: LeaderBounds, earlier_epoch: int, earlier_end_offset: int) -> int:
    """Return the epoch of the last record before the leader's local log; the arguments are what OffsetForLeaderEpoch said of the epoch before."""
    return earlier_epoch if earlier_end_offset > bounds.local_start_offset - 1 else bounds.local_start_epoch


def segment_before(catalogue: SegmentCatalogue, bounds: LeaderBounds, leader_epoch: int) -> RemoteSegment | NotThere:
    """Return the remote segment that a follower goes on behind."""
    found = catalogue.holding(leader_epoch, bounds.local_start_offset - 1)
    if found is not None:
        return found
    return NotThere(f"no remote segment holds offset {bounds.local_start_offset - 1} of leader epoch {leader_epoch}")
