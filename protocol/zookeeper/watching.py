"""Watches: what a server tells without being asked, and how a client that comes back asks for them again. Source: zookeeper.jute."""

from protocol.schema import array, int32, int64, message, ustring


@message(kind="zookeeper", versions="0")
class WatcherEvent:
    """Comes with the header of a notification."""

    event_type: int = int32(kafka_name="type")
    state: int = int32()
    path: str = ustring()


@message(kind="zookeeper", versions="0-1")
class SetWatches:
    """The watches of a client that has another connection now, and what it has seen; version 1 here is setWatches2."""

    relative_zxid: int = int64()
    data_watches: list[str] = array(ustring)
    exist_watches: list[str] = array(ustring)
    child_watches: list[str] = array(ustring)
    persistent_watches: list[str] = array(ustring, since=1)
    persistent_recursive_watches: list[str] = array(ustring, since=1)


@message(kind="zookeeper", versions="0")
class AddWatchRequest:
    """A watch that stays; `mode` is an AddWatchMode."""

    path: str = ustring()
    mode: int = int32()


@message(kind="zookeeper", versions="0")
class PathAndWatchKind:
    """RemoveWatches and checkWatches; `kind` is a WatchKind."""

    path: str = ustring()
    kind: int = int32(kafka_name="type")
