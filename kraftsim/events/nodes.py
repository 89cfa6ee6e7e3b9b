"""The life of a node: starting, becoming ready, stopping, and what it found on its disk."""

from kraftsim.events.event import Event


class NodeStarted(Event):
    """A process came up; nothing is listening yet."""

    role: str
    node_id: int
    release: str
    cluster_id: str


class ListenerOpened(Event):
    """A listener accepts connections."""

    listener: str
    host: str
    port: int


class NodeReady(Event):
    """A broker is unfenced, or a controller is the active one, or follows it and has read what is committed: it serves its clients."""


class FencedByController(Event):
    """The metadata log says that this running broker is fenced: it leads no partition until it is unfenced again."""

    broker_epoch: int


class UnfencedByController(Event):
    """The metadata log says that this broker is unfenced again."""

    broker_epoch: int


class NodeStopped(Event):
    """A node went down in good order."""

    reason: str


class NodeFailed(Event):
    """A node stops because something it relies on is broken (disk, configuration, its own belief)."""

    reason: str


class LogRecovered(Event):
    """A log was opened: `next_offset` is the first offset not in it; bytes of a torn or corrupt tail were cut."""

    topic: str
    partition: int
    next_offset: int
    cut_bytes: int
    clean: bool


class DiskFailed(Event):
    """A read, write or flush was refused by the disk."""

    path: str
    operation: str
    reason: str


class LogDirectoryFailed(Event):
    """A broker uses one of its log directories no more, and the partitions that lie in it are offline."""

    path: str
    directory_id: str
    partition_count: int


class ReplicaMoveBegan(Event):
    """A replica is copied from one log directory of its broker to another."""

    topic: str
    partition: int
    from_path: str
    to_path: str


class ReplicaMoved(Event):
    """A replica lies in another log directory of its broker now."""

    topic: str
    partition: int
    from_path: str
    to_path: str


class SegmentsCleaned(Event):
    """What is left of some segments takes their place now: of their offsets from `first_offset` to before `next_offset`, records may be gone."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    segment_count: int


class LogCleaned(Event):
    """A log was compacted: records from `first_dirty_offset` to before `next_dirty_offset` were new, and all before that was looked at again.

    Segments, records and bytes are counted before and after; `keys` is how many different ones the new part had.
    """

    topic: str
    partition: int
    first_dirty_offset: int
    next_dirty_offset: int
    read_records: int
    kept_records: int
    read_bytes: int
    kept_bytes: int
    keys: int
    segments_before: int
    segments_after: int


class CleaningFailed(Event):
    """A log cannot be compacted, because something in it cannot be read; it is left as it is until it is opened anew."""

    topic: str
    partition: int
    reason: str
