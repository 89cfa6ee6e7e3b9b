"""What one partition has in the remote store, as the records of `__remote_log_metadata` say: segments by the leader epochs that they hold.

Logs of several leaders may overlap there. A reader asks for an offset *and* the epoch in which its own log says that it was written, so that records
that were cut off long ago are never found.

Source: org.apache.kafka.server.log.remote.metadata.storage.{RemoteLogMetadataCache, RemoteLogLeaderEpochState}.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kraftsim.core.tiered_storage.remote_segment import RemoteSegment, SegmentState, SegmentUpdate, may_follow
from protocol.disk.leader_epoch_checkpoint import EpochStart


class _Epoch:
    """The finished segments that hold records of one leader epoch, by where its records begin in them."""

    __slots__ = ("finished", "highest_offset", "starts", "unreferenced")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.finished: list[bytes] = []
        self.unreferenced: dict[bytes, None] = {}
        """Of this epoch, but not to be read: not whole yet, replaced by a longer copy, or about to go."""
        self.highest_offset = -1

    def add(self, start_offset: int, end_offset: int, segment_id: bytes, ends: dict[bytes, int]) -> None:
        """Let a whole segment be found, unless a longer one is; those that it covers are not to be read any more."""
        self.unreferenced.pop(segment_id, None)
        self.highest_offset = max(self.highest_offset, end_offset)
        at = bisect_right(self.starts, start_offset)
        if at and ends[self.finished[at - 1]] >= end_offset and self.finished[at - 1] != segment_id:
            self.unreferenced[segment_id] = None
            return
        first = at - 1 if at and self.starts[at - 1] == start_offset else at
        last = first
        while last < len(self.starts) and ends[self.finished[last]] <= end_offset:
            self.unreferenced[self.finished[last]] = None
            last += 1
        self.starts[first:last] = [start_offset]
        self.finished[first:last] = [segment_id]
        self.unreferenced.pop(segment_id, None)

    def drop(self, segment_id: bytes) -> None:
        """Find a segment no more."""
        if segment_id in self.finished:
            at = self.finished.index(segment_id)
            del self.starts[at], self.finished[at]
        self.unreferenced[segment_id] = None

    def forget(self, segment_id: bytes) -> None:
        """Know nothing of a segment any more."""
        self.unreferenced.pop(segment_id, None)


class SegmentCatalogue:
    """The segments of one partition. `apply_*` follow the records in their order; one that cannot follow what is known is left out."""

    def __init__(self) -> None:
        self._segments: dict[bytes, RemoteSegment] = {}
        self._epochs: dict[int, _Epoch] = {}

    @property
    def segments(self) -> tuple[RemoteSegment, ...]:
        """Every segment that is not gone, by its first offset."""
        return tuple(sorted(self._segments.values(), key=lambda each: (each.start_offset, each.event_timestamp_ms, each.segment_id)))

    def find(self, segment_id: bytes) -> RemoteSegment | None:
        """Return a segment by its id."""
        return self._segments.get(segment_id)

    def apply_started(self, segment: RemoteSegment) -> bool:
        """A copy was begun; tell whether that is news. A finished one is taken, too: snapshots of metadata hold such."""
        if segment.segment_id in self._segments:
            return False
        self._segments[segment.segment_id] = segment
        for each in segment.leader_epochs:
            self._epoch(each.leader_epoch).unreferenced[segment.segment_id] = None
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
            self._finish(segment)
        return True

    def apply_update(self, update: SegmentUpdate) -> bool:
        """A segment is whole, or goes, or is gone; tell whether that is news and may be so."""
        known = self._segments.get(update.segment_id)
        if known is None or update.state is known.state or not may_follow(known.state, update.state):
            return False
        segment = self._segments[update.segment_id] = known.advanced(update)
        if update.state is SegmentState.COPY_SEGMENT_FINISHED:
            self._finish(segment)
        for each in segment.leader_epochs:
            if update.state is SegmentState.DELETE_SEGMENT_STARTED:
                self._epoch(each.leader_epoch).drop(update.segment_id)
            elif update.state is SegmentState.DELETE_SEGMENT_FINISHED:
                self._epoch(each.leader_epoch).forget(update.segment_id)
        if update.state is SegmentState.DELETE_SEGMENT_FINISHED:
            del self._segments[update.segment_id]
        return True

    def holding(self, leader_epoch: int, offset: int) -> RemoteSegment | None:
        """Return the whole segment that holds an offset which was written in an epoch; None if there is none to read."""
        epoch = self._epochs.get(leader_epoch)
        at = 0 if epoch is None else bisect_right(epoch.starts, offset)
        if epoch is None or not at:
            return None
        segment = self._segments[epoch.finished[at - 1]]
        return segment if offset <= end_of_epoch(segment, leader_epoch) else None

    def highest_offset(self, leader_epoch: int) -> int | None:
        """Return the last offset of an epoch that is in a whole segment; None if there is none."""
        epoch = self._epochs.get(leader_epoch)
        return None if epoch is None or epoch.highest_offset < 0 else epoch.highest_offset

    def of_epoch(self, leader_epoch: int) -> Iterator[RemoteSegment]:
        """Yield every segment with records of an epoch, in whatever state, by its first offset."""
        epoch = self._epochs.get(leader_epoch)
        known = () if epoch is None else (*epoch.finished, *epoch.unreferenced)
        yield from sorted((self._segments[each] for each in known), key=lambda each: (each.start_offset, each.segment_id))

    @property
    def leader_epochs(self) -> tuple[int, ...]:
        """The epochs of which something is known, ascending."""
        return tuple(sorted(epoch for epoch, known in self._epochs.items() if known.finished or known.unreferenced))

    def _finish(self, segment: RemoteSegment) -> None:
        for each in segment.leader_epochs:
            ends = {
                known: end_of_epoch(self._segments[known], each.leader_epoch)
                for known in (*self._epoch(each.leader_epoch).finished, segment.segment_id)
            }
            self._epoch(each.leader_epoch).add(each.start_offset, end_of_epoch(segment, each.leader_epoch), segment.segment_id, ends)

    def _epoch(self, leader_epoch: int) -> _Epoch:
        return self._epochs.setdefault(leader_epoch, _Epoch())


def end_of_epoch(segment: RemoteSegment, leader_epoch: int) -> int:
    """Return the last offset of an epoch in a segment."""
    for former, latter in pairwise(segment.leader_epochs):
        if former.leader_epoch == leader_epoch:
            return latter.start_offset - 1
    return segment.end_offset


def is_within(segment: RemoteSegment, log_end_offset: int, epochs: Sequence[EpochStart]) -> bool:
    """Tell whether a segment is a part of the log whose epochs these are: its own follow each other as they do there, and end no later.

    Epochs that ended before the log's start may be missing there.   Source: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
    """
    ours = segment.leader_epochs
    if not epochs or segment.end_offset >= log_end_offset or ours[-1].leader_epoch < epochs[0].leader_epoch:
        return False
    starts = {each.leader_epoch: each.start_offset for each in epochs}
    following = {former.leader_epoch: latter for former, latter in pairwise(epochs)}
    for index, each in enumerate(ours):
        if each.leader_epoch < epochs[0].leader_epoch:
            continue
        if each.leader_epoch not in starts:
            return False
        if index == 0 and each.start_offset < starts[each.leader_epoch] and each.leader_epoch != epochs[0].leader_epoch:
            return False
        after = following.get(each.leader_epoch)
        if index + 1 < len(ours) and after != ours[index + 1]:
            return False
        if index + 1 == len(ours) and after is not None and segment.end_offset >= after.start_offset:
            return False
    return True
