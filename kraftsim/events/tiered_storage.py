"""Segments that go to a remote store, come back from there, and are deleted.   Source: KIP-405."""

from kraftsim.events.event import Event


class RemoteCopyStarted(Event):
    """A leader said in `__remote_log_metadata` that it copies a segment; both ends of the offsets are inside."""

    topic: str
    partition: int
    segment_id: str
    first_offset: int
    last_offset: int
    size_bytes: int
    leader_epoch: int


class RemoteCopyFinished(Event):
    """The copy of a segment is whole. producer_count: how many its producer snapshot names; -1 if it has none."""

    topic: str
    partition: int
    segment_id: str
    first_offset: int
    last_offset: int
    producer_count: int = -1


class RemoteCopyFailed(Event):
    """A segment could not be copied; was_announced: the metadata say that it is on its way."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    was_announced: bool
    reason: str


class EmptySnapshotWritten(Event):
    """A segment had no producer snapshot behind it, and got one that names nobody; next_offset: what it does not cover any more."""

    topic: str
    partition: int
    next_offset: int


class LocalLogStartMoved(Event):
    """Local segments went that are in the remote store: what is before local_start_offset is there only."""

    topic: str
    partition: int
    local_start_offset: int
    log_start_offset: int


class RemoteSegmentDeleted(Event):
    """A remote segment was deleted; reason is why."""

    topic: str
    partition: int
    segment_id: str
    first_offset: int
    last_offset: int
    reason: str


class RemoteRead(Event):
    """A reader got records from the remote store; size_bytes may be 0. reason is why, if it got none."""

    topic: str
    partition: int
    fetch_offset: int
    size_bytes: int
    reason: str = ""


class RebuiltFromRemote(Event):
    """A follower begins anew behind a remote segment, with the producers that are told of there; replayed_bytes were read for that."""

    topic: str
    partition: int
    segment_id: str
    next_offset: int
    producer_count: int
    replayed_bytes: int
    remedy: str


class ProducerStateCompared(Event):
    """What a replica knows of its producers at an offset, as a digest. promised: its remedy says that it is what the leader knew."""

    topic: str
    partition: int
    next_offset: int
    producer_count: int
    digest: str
    promised: bool
