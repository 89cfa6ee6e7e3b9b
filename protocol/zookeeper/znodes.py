"""Requests to a ZooKeeper server and their responses: sessions and watches, znodes, and several
requests that are applied atomically.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from protocol.codec.message_codec import compiled
from protocol.malformed import MalformedMessage
from protocol.schema import (
    Message,
    array,
    boolean,
    byte_string,
    int32,
    int64,
    message,
    struct,
    structure,
    ustring,
)
from protocol.zookeeper.op_codes import OpCode

# --------------------------------------------------------------------------------------------------
# Requests for znodes, and their responses
#
# Source: zookeeper.jute, org.apache.zookeeper.{data, proto}.


@structure
class Stat:
    """The stat of a znode. A zxid is a transaction number."""

    czxid: int = int64()
    mzxid: int = int64()
    ctime: int = int64()
    mtime: int = int64()
    version: int = int32()
    cversion: int = int32()
    aversion: int = int32()
    ephemeral_owner: int = int64()
    data_length: int = int32()
    num_children: int = int32()
    pzxid: int = int64()


@structure
class AclEntry:
    """An entry of an access control list."""

    perms: int = int32()
    scheme: str = ustring()
    id: str = ustring()


@message(kind="zookeeper", versions="0")
class CreateRequest:
    """`flags` is a CreateMode."""

    path: str = ustring()
    data: bytes | None = byte_string(nullable="0+")
    acl: list[AclEntry] | None = array(AclEntry, nullable="0+", default=())
    flags: int = int32()


@message(kind="zookeeper", versions="0")
class CreateTtlRequest:
    """A znode that is deleted when it is empty and unchanged for `ttl` ms."""

    path: str = ustring()
    data: bytes | None = byte_string(nullable="0+")
    acl: list[AclEntry] | None = array(AclEntry, nullable="0+", default=())
    flags: int = int32()
    ttl: int = int64()


@message(kind="zookeeper", versions="0")
class VersionedPath:
    """Delete and check: a znode, provided that it has this version."""

    path: str = ustring()
    version: int = int32(default=-1)


@message(kind="zookeeper", versions="0")
class WatchedPath:
    """Exists, getData, getChildren and getChildren2."""

    path: str = ustring()
    watch: bool = boolean()


@message(kind="zookeeper", versions="0")
class SetDataRequest:
    """New data, provided that the znode has this version."""

    path: str = ustring()
    data: bytes | None = byte_string(nullable="0+")
    version: int = int32(default=-1)


@message(kind="zookeeper", versions="0")
class SetAclRequest:
    """A new access control list, provided that the old one has this version."""

    path: str = ustring()
    acl: list[AclEntry] | None = array(AclEntry, nullable="0+", default=())
    version: int = int32(default=-1)


@message(kind="zookeeper", versions="0")
class PathOnly:
    """GetACL, sync, getAllChildrenNumber, getEphemerals; and the responses to create and sync."""

    path: str = ustring()


@message(kind="zookeeper", versions="0")
class Create2Response:
    """The path, including the sequence number of a sequential znode."""

    path: str = ustring()
    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class StatResponse:
    """Exists, setData and setACL."""

    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class GetDataResponse:
    """Null data is not empty data."""

    data: bytes | None = byte_string(nullable="0+")
    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class GetAclResponse:
    """An access control list."""

    acl: list[AclEntry] = array(AclEntry)
    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class GetChildrenResponse:
    """The names of the children of a znode, and for getEphemerals the paths; unordered."""

    children: list[str] = array(ustring)


@message(kind="zookeeper", versions="0")
class GetChildren2Response:
    """The names of the children of a znode, unordered."""

    children: list[str] = array(ustring)
    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class GetAllChildrenNumberResponse:
    """The number of descendants of a znode."""

    total_number: int = int32()


@structure
class ClientInfo:
    """One of the identities of a client."""

    auth_scheme: str = ustring()
    user: str = ustring()


@message(kind="zookeeper", versions="0")
class WhoAmIResponse:
    """All of them."""

    client_infos: list[ClientInfo] = array(ClientInfo, kafka_name="clientInfo")


# --------------------------------------------------------------------------------------------------
# Sessions and their watches: establishment, the headers of requests and replies, notifications from
# the server, and how a reconnected client sets its watches again
#
# Source: zookeeper.jute, org.apache.zookeeper.proto.


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


# --------------------------------------------------------------------------------------------------
# Several requests that are applied atomically: each after its own header, an empty header at the
# end
#
# Source: org.apache.zookeeper.{MultiOperationRecord, MultiResponse}.


@message(kind="zookeeper", versions="0")
class MultiHeader:
    """The type of the next one; -1 and done at the end."""

    op_code: int = int32(default=-1, kafka_name="type")
    done: bool = boolean(default=True)
    error: int = int32(default=-1, kafka_name="err")


@message(kind="zookeeper", versions="0")
class ErrorResult:
    """The error of one that failed, or 0 for one before it, or -2 (runtime inconsistency) for one
    after it.
    """

    error: int = int32(kafka_name="err")


END: Final = MultiHeader()
WRITES: Final[dict[int, type]] = {
    OpCode.CREATE: CreateRequest,
    OpCode.CREATE_2: CreateRequest,
    OpCode.CREATE_CONTAINER: CreateRequest,
    OpCode.CREATE_TTL: CreateTtlRequest,
    OpCode.DELETE: VersionedPath,
    OpCode.SET_DATA: SetDataRequest,
    OpCode.CHECK: VersionedPath,
}
READS: Final[dict[int, type]] = {OpCode.GET_CHILDREN: WatchedPath, OpCode.GET_DATA: WatchedPath}
RESULTS: Final[dict[int, type | None]] = {
    OpCode.CREATE: PathOnly,
    OpCode.CREATE_2: Create2Response,
    OpCode.CREATE_CONTAINER: Create2Response,
    OpCode.CREATE_TTL: Create2Response,
    OpCode.DELETE: None,
    OpCode.SET_DATA: StatResponse,
    OpCode.CHECK: None,
    OpCode.GET_CHILDREN: GetChildrenResponse,
    OpCode.GET_DATA: GetDataResponse,
    OpCode.ERROR: ErrorResult,
}
"""The result of each; None: only its header."""
RESULT_TYPES: Final[dict[int, int]] = {
    OpCode.CREATE_CONTAINER: OpCode.CREATE_2,
    OpCode.CREATE_TTL: OpCode.CREATE_2,
}
"""Results with the type of another one."""
Asked = tuple[OpCode, Message]
Result = tuple[OpCode, Message | None]


def parse_multi(content: bytes, position: int, kinds: dict[int, type]) -> list[Asked]:
    """Return the requests.

    Raises MalformedMessage, also for types that are not among `kinds` (WRITES or READS).
    """
    asked: list[Asked] = []
    decode_header = compiled(MultiHeader, 0).decode
    while True:
        header, position = decode_header(content, position)
        if header.done:
            return asked
        cls = kinds.get(header.op_code)
        if cls is None:
            raise MalformedMessage(
                None,
                None,
                f"operations[{len(asked)}]",
                f"type {header.op_code} cannot be one of several",
                position,
            )
        body: Message
        body, position = compiled(cls, 0).decode(content, position)
        asked.append((OpCode(header.op_code), body))


def build_multi(asked: Iterable[Asked]) -> bytes:
    """Return the bytes of several requests."""
    return b"".join(
        (
            *(_header(op_code) + compiled(type(body), 0).encode(body) for op_code, body in asked),
            compiled(MultiHeader, 0).encode(END),
        )
    )


def build_multi_results(results: Sequence[Result]) -> bytes:
    """Return the bytes of the results."""
    pieces: list[bytes] = []
    for op_code, body in results:
        error = body.error if isinstance(body, ErrorResult) else 0
        pieces += (
            _header(RESULT_TYPES.get(op_code, op_code), error),
            compiled(type(body), 0).encode(body) if body is not None else b"",
        )
    return b"".join((*pieces, compiled(MultiHeader, 0).encode(END)))


def parse_multi_results(content: bytes, position: int) -> list[Result]:
    """Return the results. Raises MalformedMessage."""
    results: list[Result] = []
    decode_header = compiled(MultiHeader, 0).decode
    while True:
        header, position = decode_header(content, position)
        if header.done:
            return results
        if header.op_code not in RESULTS:
            raise MalformedMessage(
                None,
                None,
                f"results[{len(results)}]",
                f"type {header.op_code} is none of a result",
                position,
            )
        cls = RESULTS[header.op_code]
        body: Message = None
        if cls is not None:
            body, position = compiled(cls, 0).decode(content, position)
        results.append((OpCode(header.op_code), body))


def _header(op_code: int, error: int = -1) -> bytes:
    return compiled(MultiHeader, 0).encode(MultiHeader(op_code=op_code, done=False, error=error))
