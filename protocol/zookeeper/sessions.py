"""Sessions and their watches: establishment, the headers of requests and replies, notifications
from the server, and how a reconnected client sets its watches again.

Source: zookeeper.jute, org.apache.zookeeper.proto.
"""

from protocol.schema import array, boolean, byte_string, int32, int64, message, ustring


@message(kind="zookeeper", versions="0-1")
class ConnectRequest:
    """The first frame of a client, without a header.

    Clients before 3.4 do not send the last field: that is version 0 here.
    """

    protocol_version: int = int32()
    last_zxid_seen: int = int64()
    timeout_ms: int = int32(kafka_name="timeOut")
    session_id: int = int64()
    password: bytes | None = byte_string(nullable="0+", kafka_name="passwd")
    read_only: bool = boolean(since=1, ignorable=True)


@message(kind="zookeeper", versions="0-1")
class ConnectResponse:
    """Time-out 0 and session 0 mean that the session has expired."""

    protocol_version: int = int32()
    timeout_ms: int = int32(kafka_name="timeOut")
    session_id: int = int64()
    password: bytes | None = byte_string(nullable="0+", kafka_name="passwd")
    read_only: bool = boolean(since=1, ignorable=True)


@message(kind="zookeeper", versions="0")
class ZookeeperRequestHeader:
    """`xid` counts the requests of a session."""

    xid: int = int32()
    op_code: int = int32(kafka_name="type")


@message(kind="zookeeper", versions="0")
class ZookeeperReplyHeader:
    """`zxid` is the last transaction of the server."""

    xid: int = int32()
    zxid: int = int64()
    error: int = int32(kafka_name="err")


@message(kind="zookeeper", versions="0")
class AuthPacket:
    """An authentication of the client."""

    auth_type: int = int32(kafka_name="type")
    scheme: str | None = ustring(nullable="0+")
    auth: bytes | None = byte_string(nullable="0+")


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
