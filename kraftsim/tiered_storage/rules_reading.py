"""Reads of remote segments by consumers, and the restart of a follower whose fetch offset is in
remote storage only.

Source: RemoteLogManager (read, lookupPositionForOffset, findOffsetByTimestamp,
collectAbortedTransactions), kafka.server.TierStateMachine (start, buildRemoteLogAuxState), KIP-405.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from kraftsim.tiered_storage.rules_segments import RemoteSegment, SegmentCatalogue
from protocol.errors import ErrorCode
from protocol.records.batches import HEADER_SIZE_BYTES, LENGTH_OVERHEAD_BYTES
from protocol.records.record import MalformedBatch
from protocol.storage.indexes import OffsetEntry, TimeEntry
from protocol.storage.text_files import EpochStart

_BATCH_START = Struct(">qi").unpack_from
_LAST_OFFSET_DELTA = Struct(">i").unpack_from
_LAST_OFFSET_DELTA_POSITION = 23


# --------------------------------------------------------------------------------------------------
# Lookup by the copied indexes, and the batches to return


@dataclass(frozen=True, slots=True)
class Stretch:
    """Complete batches of a chunk: from `position` on, with this size; `next_offset` is the offset
    after them.
    """

    position: int
    size_bytes: int
    next_offset: int


def position_of_offset(entries: Sequence[OffsetEntry], offset: int) -> int:
    """Return the position to start a search for an offset."""
    found = bisect_right([entry.offset for entry in entries], offset)
    return entries[found - 1].position if found else 0


def offset_of_timestamp(entries: Sequence[TimeEntry], timestamp: int) -> int | None:
    """Return the offset to start a search for a record with a timestamp or a later one; None: the
    beginning.
    """
    earlier = [entry.offset for entry in entries if entry.timestamp < timestamp]
    return earlier[-1] if earlier else None


def stretch_of(
    piece: bytes | memoryview, offset: int, bytes_max: int, end_offset: int, *, at_least_one: bool
) -> Stretch | int | None:
    """Find complete batches from the one with an offset on, which all begin below end_offset.

    An int: the chunk is too short for the first one, which ends there. None: the chunk has no such
    batch. Raises MalformedBatch for an invalid size (RemoteLogInputStream.nextBatch).
    """
    at, begin, taken, next_offset = 0, -1, 0, -1
    while at + HEADER_SIZE_BYTES <= len(piece):
        base_offset: int
        length: int
        base_offset, length = _BATCH_START(piece, at)
        size_bytes = length + LENGTH_OVERHEAD_BYTES
        if size_bytes < HEADER_SIZE_BYTES:
            raise MalformedBatch(f"a batch of {size_bytes} bytes", at, ErrorCode.CORRUPT_MESSAGE)
        last_offset = base_offset + _LAST_OFFSET_DELTA(piece, at + _LAST_OFFSET_DELTA_POSITION)[0]
        if last_offset < offset:
            at += size_bytes
            continue
        if base_offset >= end_offset:
            break
        if begin < 0:
            begin = at
            if size_bytes > bytes_max and not at_least_one:
                return None
            if at + size_bytes > len(piece):
                return at + size_bytes
        elif taken + size_bytes > bytes_max or at + size_bytes > len(piece):
            break
        taken, next_offset = taken + size_bytes, last_offset + 1
        at += size_bytes
    if begin < 0:
        return at + HEADER_SIZE_BYTES if at + HEADER_SIZE_BYTES > len(piece) else None
    return Stretch(begin, taken, next_offset)


# --------------------------------------------------------------------------------------------------
# The restart of a follower's log
#
# It requests the leader's local log start offset, finds the remote segment that ends there,
# restarts its log after it, and takes the leader epochs and the producer snapshot of the segment.


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
