"""Segments that are copied to a remote store, fetched from there, and deleted.

Source: KIP-405.
"""

from kraftsim.events.event import Event


class RemoteCopyStarted(Event):
    """A leader announced in `__remote_log_metadata` that it copies a segment; both offsets are
    inclusive.
    """

    topic: str
    partition: int
    segment_id: str
    first_offset: int
    last_offset: int
    size_bytes: int
    leader_epoch: int


class RemoteCopyFinished(Event):
    """The copy of a segment is complete. producer_count: the number of producers in its snapshot;
    -1 if it has none.
    """

    topic: str
    partition: int
    segment_id: str
    first_offset: int
    last_offset: int
    producer_count: int = -1


class RemoteCopyFailed(Event):
    """A segment could not be copied; was_announced: the metadata contain COPY_SEGMENT_STARTED."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    was_announced: bool
    reason: str


class EmptySnapshotWritten(Event):
    """A segment had no producer snapshot behind it, and got an empty one; next_offset: the first
    offset that it does not cover.
    """

    topic: str
    partition: int
    next_offset: int


class LocalLogStartMoved(Event):
    """Local segments that are in the remote store were deleted: records before local_start_offset
    are there only.
    """

    topic: str
    partition: int
    local_start_offset: int
    log_start_offset: int


class RemoteSegmentDeleted(Event):
    """A remote segment was deleted; reason is the cause."""

    topic: str
    partition: int
    segment_id: str
    first_offset: int
    last_offset: int
    reason: str


class RemoteRead(Event):
    """A fetch was answered from the remote store; size_bytes may be 0. reason is the cause if there
    are no records.
    """

    topic: str
    partition: int
    fetch_offset: int
    size_bytes: int
    reason: str = ""


class RebuiltFromRemote(Event):
    """A follower restarts its log behind a remote segment, with the producer state of its snapshot;
    replayed_bytes were read for that.
    """

    topic: str
    partition: int
    segment_id: str
    next_offset: int
    producer_count: int
    replayed_bytes: int
    remedy: str


class ProducerStateCompared(Event):
    """A digest of a replica's producer state at an offset. promised: its recovery method guarantees
    that it equals the leader's.
    """

    topic: str
    partition: int
    next_offset: int
    producer_count: int
    digest: str
    promised: bool


class FinalRemoteSegment(Event):
    """Read after the run: a segment of `__remote_log_metadata` in its last state, and the suffixes
    of its objects in the remote store, comma-separated.

    `status` is a RemoteLogSegmentState; -1: objects of which the log says nothing.
    """

    topic: str
    partition: int
    segment_id: str
    status: int
    first_offset: int
    last_offset: int
    objects: str
    is_transaction_index_empty: bool


class FinalRemoteEpoch(Event):
    """Right after FinalRemoteSegment, once per leader epoch of a complete segment: its offsets
    there; both are inclusive.
    """

    topic: str
    partition: int
    segment_id: str
    leader_epoch: int
    first_offset: int
    last_offset: int
