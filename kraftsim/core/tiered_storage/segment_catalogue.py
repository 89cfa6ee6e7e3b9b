"""The remote segments of one partition, as in the records of `__remote_log_metadata`: segments by
their leader epochs.

Segments of several leaders may overlap. A reader looks up an offset *and* the epoch that its own
log has for it, so that truncated records are never found.

Source: org.apache.kafka.server.log.remote.metadata.storage.{RemoteLogMetadataCache,
RemoteLogLeaderEpochState}.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kraftsim.core.tiered_storage.remote_segment import (
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    may_follow,
)
from protocol.disk.leader_epoch_checkpoint import EpochStart


class _Epoch:
    """The complete segments with records of one leader epoch, by the first offset of its records in
    them.
    """

    __slots__ = ("finished", "highest_offset", "starts", "unreferenced")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.finished: list[bytes] = []
        self.unreferenced: dict[bytes, None] = {}
        """Segments of this epoch that cannot be read: incomplete, replaced by a longer copy, or
        being deleted.
        """
        self.highest_offset = -1

    def add(
        self, start_offset: int, end_offset: int, segment_id: bytes, ends: dict[bytes, int]
    ) -> None:
        """Add a complete segment, unless a longer one covers it; segments that it covers are not
        readable any more.
        """
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
        """Make a segment unreadable."""
        if segment_id in self.finished:
            at = self.finished.index(segment_id)
            del self.starts[at], self.finished[at]
        self.unreferenced[segment_id] = None

    def forget(self, segment_id: bytes) -> None:
        """Remove a segment."""
        self.unreferenced.pop(segment_id, None)


class SegmentCatalogue:
    """The segments of one partition.

    `apply_*` apply the records in order; an invalid transition is ignored.
    """

    def __init__(self) -> None:
        self._segments: dict[bytes, RemoteSegment] = {}
        self._epochs: dict[int, _Epoch] = {}

    @property
    def segments(self) -> tuple[RemoteSegment, ...]:
        """All segments that are not deleted, by first offset."""
        return tuple(
            sorted(
                self._segments.values(),
                key=lambda each: (each.start_offset, each.event_timestamp_ms, each.segment_id),
            )
        )

    def find(self, segment_id: bytes) -> RemoteSegment | None:
        """Return a segment by its id."""
        return self._segments.get(segment_id)

    def apply_started(self, segment: RemoteSegment) -> bool:
        """Apply a started copy; return whether it changed anything.

        A finished one is accepted, too: metadata snapshots have them.
        """
        if segment.segment_id in self._segments:
            return False
        self._segments[segment.segment_id] = segment
        for each in segment.leader_epochs:
            self._epoch(each.leader_epoch).unreferenced[segment.segment_id] = None
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
            self._finish(segment)
        return True

    def apply_update(self, update: SegmentUpdate) -> bool:
        """Apply a state change; return whether it is valid and changed anything."""
        known = self._segments.get(update.segment_id)
        if (
            known is None
            or update.state is known.state
            or not may_follow(known.state, update.state)
        ):
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
        """Return the complete segment with an offset of an epoch; None if none is readable."""
        epoch = self._epochs.get(leader_epoch)
        at = 0 if epoch is None else bisect_right(epoch.starts, offset)
        if epoch is None or not at:
            return None
        segment = self._segments[epoch.finished[at - 1]]
        return segment if offset <= end_of_epoch(segment, leader_epoch) else None

    def highest_offset(self, leader_epoch: int) -> int | None:
        """Return the highest offset of an epoch in complete segments; None if there is none."""
        epoch = self._epochs.get(leader_epoch)
        return None if epoch is None or epoch.highest_offset < 0 else epoch.highest_offset

    def of_epoch(self, leader_epoch: int) -> Iterator[RemoteSegment]:
        """Yield all segments with records of an epoch, in any state, by first offset."""
        epoch = self._epochs.get(leader_epoch)
        known = () if epoch is None else (*epoch.finished, *epoch.unreferenced)
        yield from sorted(
            (self._segments[each] for each in known),
            key=lambda each: (each.start_offset, each.segment_id),
        )

    @property
    def leader_epochs(self) -> tuple[int, ...]:
        """The known epochs, ascending."""
        return tuple(
            sorted(
                epoch
                for epoch, known in self._epochs.items()
                if known.finished or known.unreferenced
            )
        )

    def _finish(self, segment: RemoteSegment) -> None:
        for each in segment.leader_epochs:
            ends = {
                known: end_of_epoch(self._segments[known], each.leader_epoch)
                for known in (*self._epoch(each.leader_epoch).finished, segment.segment_id)
            }
            self._epoch(each.leader_epoch).add(
                each.start_offset,
                end_of_epoch(segment, each.leader_epoch),
                segment.segment_id,
                ends,
            )

    def _epoch(self, leader_epoch: int) -> _Epoch:
        return self._epochs.setdefault(leader_epoch, _Epoch())


def end_of_epoch(segment: RemoteSegment, leader_epoch: int) -> int:
    """Return the last offset of an epoch in a segment."""
    for former, latter in pairwise(segment.leader_epochs):
        if former.leader_epoch == leader_epoch:
            return latter.start_offset - 1
    return segment.end_offset


def is_within(segment: RemoteSegment, log_end_offset: int, epochs: Sequence[EpochStart]) -> bool:
    """Return whether a segment belongs to the log with these epochs: its own are consecutive there,
    and end no later.

    Epochs that ended before the log start offset may be missing there.
    Source: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
    """
    ours = segment.leader_epochs
    if (
        not epochs
        or segment.end_offset >= log_end_offset
        or ours[-1].leader_epoch < epochs[0].leader_epoch
    ):
        return False
    starts = {each.leader_epoch: each.start_offset for each in epochs}
    following = {former.leader_epoch: latter for former, latter in pairwise(epochs)}
    for index, each in enumerate(ours):
        if each.leader_epoch < epochs[0].leader_epoch:
            continue
        if each.leader_epoch not in starts:
            return False
        if (
            index == 0
            and each.start_offset < starts[each.leader_epoch]
            and each.leader_epoch != epochs[0].leader_epoch
        ):
            return False
        after = following.get(each.leader_epoch)
        if index + 1 < len(ours) and after != ours[index + 1]:
            return False
        if (
            index + 1 == len(ours)
            and after is not None
            and segment.end_offset >= after.start_offset
        ):
            return False
    return True
