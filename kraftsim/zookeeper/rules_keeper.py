"""A ZooKeeper server without sockets and files: requests in, log records and response frames out;
besides, a lagging replica of it, and its snapshots.

Everything happens in the order of requests. The caller sends no frame before the records returned
with it are in the log and flushed: so no client reads what a power loss could revert.
Source: org.apache.zookeeper.server.{ZooKeeperServer, PrepRequestProcessor, FinalRequestProcessor,
DataTree}.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftsim.events.event import Event
from kraftsim.zookeeper.events import ZnodeChanged, ZookeeperSessionBegan, ZookeeperSessionEnded
from kraftsim.zookeeper.rules_server import (
    REQUESTS,
    Draft,
    Sessions,
    TreeReader,
    Watches,
    parse_body,
    results_of,
)
from kraftsim.zookeeper.rules_tree import (
    CONTAINER_OWNER,
    NO_OWNER,
    OPEN_TO_ALL,
    ROOT,
    Acl,
    Znode,
    ZnodeChange,
    ZnodeIdentity,
    ZnodeRefused,
    ZnodeTree,
    as_entries,
    digest_of,
    from_entries,
    is_allowed,
    name_of,
    parent_of,
)
from protocol.codec.message_codec import compiled
from protocol.schema import Message
from protocol.zookeeper.op_codes import (
    NOTIFICATION_XID,
    EventType,
    KeeperState,
    OpCode,
    Permission,
    ZookeeperError,
)
from protocol.zookeeper.txn_log import (
    OPEN_ACL,
    CloseSessionTxn,
    CreateSessionTxn,
    ErrorTxn,
    PersistedStat,
    PersistedZnode,
    TxnHeader,
    ZookeeperSnapshot,
    build_snapshot,
    parse_record,
)
from protocol.zookeeper.znodes import (
    READS,
    WRITES,
    AuthPacket,
    ConnectRequest,
    ConnectResponse,
    Create2Response,
    ErrorResult,
    PathOnly,
    Result,
    SetAclRequest,
    SetWatches,
    StatResponse,
    WatcherEvent,
    ZookeeperReplyHeader,
    ZookeeperRequestHeader,
    build_multi_results,
    parse_multi,
)

# --------------------------------------------------------------------------------------------------
# A lagging replica of the tree: the state of a follower in an ensemble, with the watches of its
# clients
#
# Clients of a follower read its state and are notified when it applies a change; their writes are
# decided by the leader, and answered once the follower has applied them.
# Source: ZooKeeper Programmer's Guide (consistency guarantees),
# org.apache.zookeeper.server.quorum.{CommitProcessor, FollowerRequestProcessor}.


class Replica:
    """`zxid` is the last applied change; later ones are queued."""

    def __init__(self, tree: ZnodeTree, zxid: int) -> None:
        self.tree = tree
        self.watches = Watches()
        self.zxid = zxid
        self._waiting: deque[tuple[TxnHeader, Message]] = deque()

    def receive(self, header: TxnHeader, record: Message) -> None:
        """Queue a committed change."""
        self._waiting.append((header, record))

    def next_until(self, zxid: int) -> tuple[TxnHeader, Message] | None:
        """Return the next change up to a zxid, inclusive: it is to be applied now."""
        if not self._waiting or self._waiting[0][0].zxid > zxid:
            return None
        self.zxid = self._waiting[0][0].zxid
        return self._waiting.popleft()

    def differs_at(self, path: str, other: ZnodeTree) -> bool:
        """Return whether a znode is different here."""
        here, there = self.tree.get(path), other.get(path)
        return here is not there and (here is None or there is None or here.stat() != there.stat())


# --------------------------------------------------------------------------------------------------
# The server

WRITING: Final[dict[int, type]] = {
    **{code: cls for code, cls in WRITES.items() if code != OpCode.CHECK},
    OpCode.SET_ACL: SetAclRequest,
}
CONNECTION_NEEDED: Final = (OpCode.PING, OpCode.AUTH, OpCode.SET_WATCHES, OpCode.SET_WATCHES_2)
NOT_SERVED: Final = (OpCode.RECONFIG, OpCode.SASL)
CREATES: Final = (OpCode.CREATE, OpCode.CREATE_2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL)
Frame = bytes
"""The bytes after the size."""


@dataclass(frozen=True, slots=True)
class KeeperMoment:
    """Both clocks of the node, in ms: the monotonic one for timeouts, the wall clock for znode
    timestamps.
    """

    monotonic_ms: int
    wall_ms: int


@dataclass(slots=True)
class KeeperStep:
    """The result of an input: records for the log first, then frames to clients, in order, then
    connections to close.
    """

    txns: list[tuple[TxnHeader, Message]] = field(default_factory=list)
    frames: list[tuple[int, Frame]] = field(default_factory=list)
    to_close: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Client:
    """A connection with its session and identities."""

    session: int
    names: list[ZnodeIdentity]
    has_read_only: bool = True


class ServerState:
    """The state of a server. Connections are identified by the caller's numbers."""

    def __init__(
        self, sessions: Sessions, emit: Callable[[Event], None], super_digest: str = ""
    ) -> None:
        self.tree = ZnodeTree()
        self.sessions = sessions
        self.watches = Watches()
        self.last_zxid = 0
        self._emit = emit
        self._super = super_digest
        self._clients: dict[int, _Client] = {}
        self._connection_of: dict[int, int] = {}
        self._replica_of: dict[int, Replica] = {}
        """The connections served by a lagging replica."""
        self._step = KeeperStep()

    # Load
    # ----------------------------------------------------------------------------------------------

    def replay(self, header: TxnHeader, record: Message, now_ms: int) -> None:
        """Replay a record of the log."""
        self.last_zxid = header.zxid
        match record:
            case CreateSessionTxn():
                self.sessions.add(header.client_id, record.timeout_ms, now_ms)
            case CloseSessionTxn():
                self.sessions.remove(header.client_id)
        self.tree.replay(header, record)

    # Connections
    # ----------------------------------------------------------------------------------------------

    def connect(
        self, connection: int, host: str, content: bytes, moment: KeeperMoment
    ) -> KeeperStep:
        """Handle the first frame of a connection. Raises MalformedMessage."""
        request, has_read_only = _connect_request(content)
        step = self._begin()
        if request.last_zxid_seen > self.last_zxid:
            step.to_close.append(connection)  # the client has seen a higher zxid
            return step
        session, timeout_ms = request.session_id, 0
        if session == 0:
            session, timeout_ms = (
                self.sessions.fresh_id(),
                self.sessions.bounded(request.timeout_ms),
            )
            self._write(
                session, 0, OpCode.CREATE_SESSION, CreateSessionTxn(timeout_ms=timeout_ms), moment
            )
        elif session in self.sessions.by_id and request.password == self.sessions.password_of(
            session
        ):
            former = self._connection_of.get(session)
            if former is not None:
                self._drop(former)
                step.to_close.append(former)
            timeout_ms = self.sessions.by_id[session].timeout_ms
        else:
            session = 0
        answer = ConnectResponse(
            timeout_ms=timeout_ms,
            session_id=session,
            password=self.sessions.password_of(session) if session else bytes(16),
        )
        step.frames.append(
            (connection, compiled(ConnectResponse, int(has_read_only)).encode(answer))
        )
        if not session:
            step.to_close.append(connection)
            return step
        self.sessions.touch(session, moment.monotonic_ms)
        self._clients[connection] = _Client(session, [ZnodeIdentity("ip", host)], has_read_only)
        self._connection_of[session] = connection
        return step

    def disconnect(self, connection: int) -> None:
        """A connection is closed; its session remains."""
        self._drop(connection)

    def session_of(self, connection: int) -> int | None:
        """Return the session of a connection."""
        client = self._clients.get(connection)
        return client.session if client is not None else None

    def expire(self, moment: KeeperMoment) -> KeeperStep:
        """Expire the sessions without a request within their timeout."""
        return self.end_sessions(self.sessions.overdue(moment.monotonic_ms), moment)

    def end_sessions(self, sessions: Sequence[int], moment: KeeperMoment) -> KeeperStep:
        """End sessions, connected or not."""
        step = self._begin()
        for session in sessions:
            self._close(session, 0, moment, is_expired=True)
            if session in self._connection_of:
                step.to_close.append(self._connection_of[session])
                self._drop(self._connection_of[session])
        return step

    # Lagging replica
    # ----------------------------------------------------------------------------------------------

    def serve_from(self, replica: Replica | None, connection: int) -> None:
        """Serve a client's reads from a replica from now on, or, for None, from here again; its
        watches move, too.
        """
        former = self._replica_of.pop(connection, None)
        if replica is not None:
            self._replica_of[connection] = replica
        (self.watches if former is None else former.watches).move(
            connection, self.watches if replica is None else replica.watches
        )

    def is_served_from(self, connection: int) -> Replica | None:
        """Return the replica that serves a client; None if it is served from here."""
        return self._replica_of.get(connection)

    def follow(self, replica: Replica, zxid: int) -> KeeperStep:
        """Apply changes to a replica up to a zxid, and notify its watchers."""
        step = self._begin()
        while (change := replica.next_until(zxid)) is not None:
            self._notify_watchers(replica.watches, replica.tree.replay(*change))
        return step

    # Requests
    # ----------------------------------------------------------------------------------------------

    def serve(self, connection: int, content: bytes, moment: KeeperMoment) -> KeeperStep:
        """Handle a request. Raises MalformedMessage if its header cannot be parsed."""
        client = self._clients[connection]
        header, position = compiled(ZookeeperRequestHeader, 0).decode(content, 0)
        step = self._begin()
        self.sessions.touch(client.session, moment.monotonic_ms)
        try:
            body = self._serve(connection, client, header, content, position, moment)
        except ZnodeRefused as refused:
            self._reply(connection, header.xid, refused.error)
        except ValueError:  # malformed bytes, unknown codes, an invalid path
            self._reply(connection, header.xid, ZookeeperError.MARSHALLING_ERROR)
        else:
            self._reply(connection, header.xid, ZookeeperError.OK, body)
        if header.op_code == OpCode.CLOSE_SESSION:
            self._drop(connection)
            step.to_close.append(connection)
        return step

    def _serve(
        self,
        connection: int,
        client: _Client,
        header: ZookeeperRequestHeader,
        content: bytes,
        position: int,
        moment: KeeperMoment,
    ) -> bytes:
        op_code = header.op_code
        if op_code in WRITING:
            asked: Message = compiled(WRITING[op_code], 0).decode(content, position)[0]
            return self._change(client, header, asked, moment)
        match op_code:
            case OpCode.MULTI:
                return self._change_all(client, header, content, position, moment)
            case OpCode.MULTI_READ:
                asked_all = parse_multi(content, position, READS)
                return build_multi_results(self._reader(connection, client).read_all(asked_all))
            case OpCode.PING:
                return b""
            case OpCode.AUTH:
                self._authenticate(client, compiled(AuthPacket, 0).decode(content, position)[0])
                return b""
            case OpCode.SET_WATCHES | OpCode.SET_WATCHES_2:
                wanted = compiled(SetWatches, int(op_code == OpCode.SET_WATCHES_2)).decode(
                    content, position
                )[0]
                tree, watches = self._read_from(connection)
                for event_type, path in watches.restore(wanted, tree, connection):
                    self._notify(connection, event_type, path)
                return b""
            case OpCode.CLOSE_SESSION:
                self._close(client.session, header.xid, moment, is_expired=False)
                return b""
        if op_code not in REQUESTS and op_code != OpCode.WHO_AM_I:
            raise ZnodeRefused(ZookeeperError.UNIMPLEMENTED)
        body: Message = (
            None if op_code == OpCode.WHO_AM_I else parse_body(op_code, content, position)
        )
        return _encoded(self._reader(connection, client).read(op_code, body))

    def _reader(self, connection: int, client: _Client) -> TreeReader:
        return TreeReader(*self._read_from(connection), connection, client.session, client.names)

    def _read_from(self, connection: int) -> tuple[ZnodeTree, Watches]:
        replica = self._replica_of.get(connection)
        return (self.tree, self.watches) if replica is None else (replica.tree, replica.watches)

    def _change(
        self, client: _Client, header: ZookeeperRequestHeader, asked: Message, moment: KeeperMoment
    ) -> bytes:
        """Apply one change, or log that it failed."""
        try:
            record = Draft(self.tree, client.session, client.names).decide(header.op_code, asked)
        except ZnodeRefused as refused:
            self._write(
                client.session, header.xid, OpCode.ERROR, ErrorTxn(error=refused.error), moment
            )
            raise
        self._write(client.session, header.xid, header.op_code, record, moment)
        return _encoded(self._result(header.op_code, record))

    def _change_all(
        self,
        client: _Client,
        header: ZookeeperRequestHeader,
        content: bytes,
        position: int,
        moment: KeeperMoment,
    ) -> bytes:
        """Apply several changes, or none."""
        asked = parse_multi(content, position, WRITES)
        record = Draft(self.tree, client.session, client.names).decide_all(asked)
        self._write(client.session, header.xid, OpCode.MULTI, record, moment)
        errors = results_of(record)
        if errors:
            return build_multi_results(
                [(OpCode.ERROR, ErrorResult(error=error)) for error in errors]
            )
        results: list[Result] = [
            (op_code, self._result(op_code, parse_record(sub.op_code, sub.data)))
            for (op_code, _), sub in zip(asked, record.txns, strict=True)
        ]
        return build_multi_results(results)

    def _result(self, op_code: int, record: Message) -> Message | None:
        """Return the response to an applied change."""
        if op_code == OpCode.CREATE:
            return PathOnly(path=record.path)
        if op_code in CREATES:
            return Create2Response(path=record.path, stat=self.tree.znodes[record.path].stat())
        if op_code in (OpCode.SET_DATA, OpCode.SET_ACL):
            return StatResponse(stat=self.tree.znodes[record.path].stat())
        return None

    def _authenticate(self, client: _Client, packet: AuthPacket) -> None:
        """Add an identity of a client.

        Raises ZnodeRefused for an unknown scheme; then the connection is to be closed.
        """
        if packet.scheme == "ip":
            return
        if packet.scheme != "digest":
            raise ZnodeRefused(ZookeeperError.AUTH_FAILED)
        name = digest_of((packet.auth or b"").decode(errors="replace"))
        if self._super and name.id == self._super:
            client.names.append(ZnodeIdentity("super", ""))
        if name not in client.names:
            client.names.append(name)

    # Changes and notifications
    # ----------------------------------------------------------------------------------------------

    def _write(
        self, session: int, cxid: int, op_code: int, record: Message, moment: KeeperMoment
    ) -> None:
        """Assign a zxid to a change, apply it, and notify its watchers."""
        self.last_zxid += 1
        header = TxnHeader(
            client_id=session, cxid=cxid, zxid=self.last_zxid, time=moment.wall_ms, op_code=op_code
        )
        self._step.txns.append((header, record))
        if isinstance(record, CreateSessionTxn):
            self.sessions.add(session, record.timeout_ms, moment.monotonic_ms)
            self._emit(ZookeeperSessionBegan(session=session, timeout_ms=record.timeout_ms))
        changes = self.tree.replay(header, record)
        self._notify_watchers(self.watches, changes)
        self._emit_changes(header, record, changes)

    def _notify_watchers(self, watches: Watches, changes: Sequence[ZnodeChange]) -> None:
        for change in changes:
            for watcher in watches.triggered(change.event_type, change.path):
                if is_allowed(change.acl, Permission.READ, self._clients[watcher].names):
                    self._notify(watcher, change.event_type, change.path)

    def _close(self, session: int, cxid: int, moment: KeeperMoment, *, is_expired: bool) -> None:
        paths = list(self.tree.ephemerals.get(session, ()))
        self._write(
            session, cxid, OpCode.CLOSE_SESSION, CloseSessionTxn(paths_to_delete=paths), moment
        )
        self.sessions.remove(session)
        self._emit(
            ZookeeperSessionEnded(session=session, is_expired=is_expired, ephemerals=len(paths))
        )

    def _emit_changes(
        self, header: TxnHeader, record: Message, changes: Sequence[ZnodeChange]
    ) -> None:
        for change in changes:
            if change.event_type is not EventType.NODE_CHILDREN_CHANGED:
                znode = self.tree.get(change.path)
                version = -1 if znode is None else znode.version
                self._emit(
                    ZnodeChanged(
                        path=change.path,
                        change=change.event_type.name.lower(),
                        version=version,
                        zxid=header.zxid,
                        session=header.client_id,
                    )
                )

    def _notify(self, connection: int, event_type: EventType, path: str) -> None:
        header = ZookeeperReplyHeader(xid=NOTIFICATION_XID, zxid=-1, error=ZookeeperError.OK)
        event = WatcherEvent(event_type=event_type, state=KeeperState.SYNC_CONNECTED, path=path)
        self._step.frames.append((connection, _encoded(header) + _encoded(event)))

    def _reply(self, connection: int, xid: int, error: int, body: bytes = b"") -> None:
        replica = None if self._step.txns else self._replica_of.get(connection)
        header = ZookeeperReplyHeader(
            xid=xid, zxid=self.last_zxid if replica is None else replica.zxid, error=error
        )
        self._step.frames.append((connection, _encoded(header) + body))

    def _begin(self) -> KeeperStep:
        self._step = KeeperStep()
        return self._step

    def _drop(self, connection: int) -> None:
        client = self._clients.pop(connection, None)
        if client is not None and self._connection_of.get(client.session) == connection:
            del self._connection_of[client.session]
        self.watches.forget(connection)
        replica = self._replica_of.pop(connection, None)
        if replica is not None:
            replica.watches.forget(connection)


def _connect_request(content: bytes) -> tuple[ConnectRequest, bool]:
    """Return the first frame of a client, and whether it has the read-only flag."""
    end = compiled(ConnectRequest, 0).decode(content, 0)[1]
    has_read_only = end < len(content)
    return compiled(ConnectRequest, int(has_read_only)).decode(content, 0)[0], has_read_only


def _encoded(answer: Message | None) -> bytes:
    return b"" if answer is None else compiled(type(answer), 0).encode(answer)


# --------------------------------------------------------------------------------------------------
# Snapshots of the tree and the sessions
#
# Source: DataTree.serialize, ReferenceCountedACLCache, SerializeUtils.


def snapshot_of(znode_state: ServerState) -> bytes:
    """Return the snapshot file of a server."""
    numbers: dict[Acl, int] = {OPEN_TO_ALL: OPEN_ACL}
    znodes: list[tuple[str, PersistedZnode]] = []
    waiting = [ROOT]
    while waiting:
        path = waiting.pop()
        znode = znode_state.tree.znodes[path]
        number = numbers.setdefault(znode.acl, len(numbers))
        znodes.append(("" if path == ROOT else path, _persisted(znode, number)))
        beginning = path if path == ROOT else path + "/"
        waiting += [beginning + name for name in reversed(znode.children)]
    acls = {number: as_entries(acl) for acl, number in numbers.items() if number != OPEN_ACL}
    sessions = {session.id: session.timeout_ms for session in znode_state.sessions.by_id.values()}
    return build_snapshot(sessions, acls, znodes)


def load(znode_state: ServerState, found: ZookeeperSnapshot, zxid: int, now_ms: int) -> None:
    """Load a snapshot into a new server."""
    tree = znode_state.tree
    acls = {
        OPEN_ACL: OPEN_TO_ALL,
        **{number: from_entries(entries) for number, entries in found.acls.items()},
    }
    tree.znodes, tree.ephemerals = {}, {}
    for name, persisted in found.znodes.items():
        path = name or ROOT
        stat = persisted.stat
        tree.znodes[path] = Znode(
            data=persisted.data,
            acl=acls.get(persisted.acl, OPEN_TO_ALL),
            czxid=stat.czxid,
            mzxid=stat.mzxid,
            pzxid=stat.pzxid,
            ctime=stat.ctime,
            mtime=stat.mtime,
            version=stat.version,
            creations=stat.cversion,
            aversion=stat.aversion,
            owner=stat.ephemeral_owner,
        )
        if path != ROOT:
            tree.znodes[parent_of(path)].children[name_of(path)] = None
        if stat.ephemeral_owner not in (NO_OWNER, CONTAINER_OWNER):
            tree.ephemerals.setdefault(stat.ephemeral_owner, {})[path] = None
    for session, timeout_ms in found.sessions.items():
        znode_state.sessions.add(session, timeout_ms, now_ms)
    znode_state.last_zxid = zxid


def _persisted(znode: Znode, acl_number: int) -> PersistedZnode:
    stat = PersistedStat(
        czxid=znode.czxid,
        mzxid=znode.mzxid,
        ctime=znode.ctime,
        mtime=znode.mtime,
        version=znode.version,
        cversion=znode.creations,
        aversion=znode.aversion,
        ephemeral_owner=znode.owner,
        pzxid=znode.pzxid,
    )
    return PersistedZnode(data=znode.data, acl=acl_number, stat=stat)
