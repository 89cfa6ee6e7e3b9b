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
