"""Watches: notifications from the server, and how a reconnected client sets them again.

Source: zookeeper.jute.
"""

from protocol.schema import array, int32, int64, message, ustring


@message(kind="zookeeper", versions="0")
class WatcherEvent:
    """The body of a notification."""

    event_type: int = int32(kafka_name="type")
    state: int = int32()
    path: str = ustring()


@message(kind="zookeeper", versions="0-1")
class SetWatches:
    """The watches of a reconnected client, and its last zxid; version 1 here is setWatches2."""

    relative_zxid: int = int64()
    data_watches: list[str] = array(ustring)
    exist_watches: list[str] = array(ustring)
    child_watches: list[str] = array(ustring)
    persistent_watches: list[str] = array(ustring, since=1)
    persistent_recursive_watches: list[str] = array(ustring, since=1)


@message(kind="zookeeper", versions="0")
class AddWatchRequest:
    """A persistent watch; `mode` is an AddWatchMode."""

    path: str = ustring()
    mode: int = int32()


@message(kind="zookeeper", versions="0")
class PathAndWatchKind:
    """RemoveWatches and checkWatches; `kind` is a WatchKind."""

    path: str = ustring()
    kind: int = int32(kafka_name="type")
