"""The lifecycle of a node: start, readiness, stop, and the recovery of its disk."""

from kraftsim.events.event import Event


class NodeStarted(Event):
    """A process started; nothing is listening yet."""

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
    """A broker is unfenced, or a controller is the active one, or follows it and has applied the
    committed records: it serves its clients.
    """


class FencedByController(Event):
    """The metadata log has this running broker as fenced: it leads no partition until it is
    unfenced again.
    """

    broker_epoch: int


class UnfencedByController(Event):
    """The metadata log has this broker as unfenced again."""

    broker_epoch: int


class NodeStopped(Event):
    """A node stopped cleanly."""

    reason: str


class NodeFailed(Event):
    """A node stops because of a fatal error (disk, configuration, a violated assertion)."""

    reason: str


class LogRecovered(Event):
    """A log was opened: `next_offset` is the first offset not in it; the bytes of a torn or corrupt
    tail were truncated.
    """

    topic: str
    partition: int
    next_offset: int
    truncated_bytes: int
    clean: bool


class DiskFailed(Event):
    """A read, write or flush failed."""

    path: str
    operation: str
    reason: str


class LogDirectoryFailed(Event):
    """A log directory of a broker failed, and its partitions are offline."""

    path: str
    directory_id: str
    partition_count: int


class ReplicaMoveBegan(Event):
    """A replica moves from one log directory of its broker to another."""

    topic: str
    partition: int
    from_path: str
    to_path: str


class ReplicaMoved(Event):
    """A replica has moved to another log directory of its broker."""

    topic: str
    partition: int
    from_path: str
    to_path: str


class SegmentsCleaned(Event):
    """Some segments were replaced by their compacted form: records from `first_offset` to before
    `next_offset` may be gone.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    segment_count: int


class LogCleaned(Event):
    """A log was compacted: records from `first_dirty_offset` to before `next_dirty_offset` were
    dirty, and everything before was cleaned again.

    Segments, records and bytes are counted before and after; `keys` is the number of distinct keys
    in the dirty part.
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
    """A log cannot be compacted, because a part of it cannot be read; it is skipped until it is
    opened again.
    """

    topic: str
    partition: int
    reason: str
