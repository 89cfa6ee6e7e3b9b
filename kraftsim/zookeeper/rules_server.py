"""The parts of a ZooKeeper server around the tree: validation of changes, sessions, watches, and
read requests.

Source: org.apache.zookeeper.server.{PrepRequestProcessor, FinalRequestProcessor,
SessionTrackerImpl, ExpiryQueue}, org.apache.zookeeper.server.watch.WatchManager.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kraftsim.zookeeper.rules_tree import (
    CONTAINER_OWNER,
    NO_OWNER,
    ROOT,
    SPECIAL,
    Acl,
    Znode,
    ZnodeIdentity,
    ZnodeRefused,
    ZnodeTree,
    as_entries,
    is_allowed,
    is_valid,
    name_of,
    parent_of,
    settled,
    visible_acl,
)
from protocol.codec.message_codec import compiled
from protocol.schema import Message
from protocol.zookeeper.op_codes import (
    ANY_VERSION,
    AddWatchMode,
    CreateMode,
    EventType,
    OpCode,
    Permission,
    WatchKind,
    ZookeeperError,
)
from protocol.zookeeper.txn_log import (
    CheckVersionTxn,
    CreateContainerTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    MultiTxn,
    SetAclTxn,
    SetDataTxn,
    SubTxn,
)
from protocol.zookeeper.znodes import (
    AddWatchRequest,
    Asked,
    ClientInfo,
    CreateRequest,
    CreateTtlRequest,
    ErrorResult,
    GetAclResponse,
    GetAllChildrenNumberResponse,
    GetChildren2Response,
    GetChildrenResponse,
    GetDataResponse,
    PathAndWatchKind,
    PathOnly,
    Result,
    SetAclRequest,
    SetDataRequest,
    SetWatches,
    StatResponse,
    VersionedPath,
    WatchedPath,
    WhoAmIResponse,
)

OF_TTL: Final = (OpCode.CREATE_TTL,)


# --------------------------------------------------------------------------------------------------
# Changes: the requests of a multi are validated on a draft, so that each sees the ones before it


class Draft:
    """The tree after the requests validated so far; the tree itself does not change."""

    def __init__(self, tree: ZnodeTree, session: int, names: Sequence[ZnodeIdentity]) -> None:
        self._tree = tree
        self._session = session
        self._names = names
        self._changed: dict[str, Znode | None] = {}

    def decide(self, op_code: int, body: Message) -> Message:
        """Return the record of one request. Raises ZnodeRefused."""
        match body:
            case CreateRequest() | CreateTtlRequest():
                return self._create(op_code, body)
            case VersionedPath() if op_code == OpCode.CHECK:
                znode = self._checked(body.path, Permission.READ)
                _require_version(znode.version, body.version, body.path)
                return CheckVersionTxn(path=body.path, version=body.version)
            case VersionedPath():
                return self._delete(body)
            case SetDataRequest():
                znode = self._checked(body.path, Permission.WRITE)
                _require_version(znode.version, body.version, body.path)
                znode = self._put(body.path, znode)
                znode.version += 1
                return SetDataTxn(path=body.path, data=body.data, version=znode.version)
            case SetAclRequest():
                return self._set_acl(body)
        raise ZnodeRefused(ZookeeperError.UNIMPLEMENTED)

    def decide_all(self, asked: Sequence[Asked]) -> MultiTxn:
        """Return the record of several requests; if one fails, all do: those before it get 0, those
        after it -2.
        """
        records: list[Message] = []
        for op_code, body in asked:
            try:
                records.append(self.decide(op_code, body))
            except ZnodeRefused as refused:
                errors = [ZookeeperError.OK] * len(records) + [refused.error]
                errors += [ZookeeperError.RUNTIME_INCONSISTENCY] * (len(asked) - len(errors))
                return MultiTxn(
                    txns=[_sub(OpCode.ERROR, ErrorTxn(error=error)) for error in errors]
                )
        return MultiTxn(
            txns=[
                _sub(op_code, record) for (op_code, _), record in zip(asked, records, strict=True)
            ]
        )

    def _create(
        self, op_code: int, body: CreateRequest | CreateTtlRequest
    ) -> CreateTxn | CreateContainerTxn:
        mode = _mode_of(op_code, body.flags)
        parent_path = _parent_path(body.path)
        acl = self._settled(body.acl, body.path)
        parent = self._get(parent_path)
        self._require(parent.acl, Permission.CREATE, body.path)
        path = f"{body.path}{parent.creations:010d}" if mode.is_sequential else body.path
        if not is_valid(path):
            raise ZnodeRefused(ZookeeperError.BAD_ARGUMENTS, path)
        if self._find(path) is not None:
            raise ZnodeRefused(ZookeeperError.NODE_EXISTS, path)
        if parent.owner not in (NO_OWNER, CONTAINER_OWNER):
            raise ZnodeRefused(ZookeeperError.NO_CHILDREN_FOR_EPHEMERALS, path)
        parent = self._put(parent_path, parent)
        parent.creations += 1
        parent.children[name_of(path)] = None
        self._changed[path] = Znode(
            data=body.data, acl=acl, owner=self._session if mode.is_ephemeral else NO_OWNER
        )
        if mode is CreateMode.CONTAINER:
            return CreateContainerTxn(
                path=path, data=body.data, acl=as_entries(acl), parent_cversion=parent.creations
            )
        return CreateTxn(
            path=path,
            data=body.data,
            acl=as_entries(acl),
            ephemeral=mode.is_ephemeral,
            parent_cversion=parent.creations,
        )

    def _delete(self, body: VersionedPath) -> DeleteTxn:
        path = body.path
        if path in SPECIAL:
            raise ZnodeRefused(ZookeeperError.BAD_ARGUMENTS, path)
        parent_path = _parent_path(path)
        parent = self._get(parent_path)
        self._require(parent.acl, Permission.DELETE, path)
        znode = self._get(path)
        _require_version(znode.version, body.version, path)
        if znode.children:
            raise ZnodeRefused(ZookeeperError.NOT_EMPTY, path)
        del self._put(parent_path, parent).children[name_of(path)]
        self._changed[path] = None
        return DeleteTxn(path=path)

    def _set_acl(self, body: SetAclRequest) -> SetAclTxn:
        _require_path(body.path)
        acl = self._settled(body.acl, body.path)
        znode = self._checked(body.path, Permission.ADMIN)
        _require_version(znode.aversion, body.version, body.path)
        znode = self._put(body.path, znode)
        znode.aversion, znode.acl = znode.aversion + 1, acl
        return SetAclTxn(path=body.path, acl=as_entries(acl), version=znode.aversion)

    def _settled(self, entries: Sequence[Message] | None, path: str) -> Acl:
        acl = settled(entries, self._names)
        if acl is None:
            raise ZnodeRefused(ZookeeperError.INVALID_ACL, path)
        return acl

    def _checked(self, path: str, permission: Permission) -> Znode:
        _require_path(path)
        znode = self._get(path)
        self._require(znode.acl, permission, path)
        return znode

    def _require(self, acl: Acl, permission: Permission, path: str) -> None:
        if not is_allowed(acl, permission, self._names):
            raise ZnodeRefused(ZookeeperError.NO_AUTH, path)

    def _find(self, path: str) -> Znode | None:
        return self._changed[path] if path in self._changed else self._tree.get(path)

    def _get(self, path: str) -> Znode:
        znode = self._find(path)
        if znode is None:
            raise ZnodeRefused(ZookeeperError.NO_NODE, path)
        return znode

    def _put(self, path: str, znode: Znode) -> Znode:
        """Return a mutable copy, which is in the draft from now on."""
        if self._changed.get(path) is not znode:
            self._changed[path] = znode = znode.copy()
        return znode


def results_of(record: MultiTxn) -> tuple[ZookeeperError, ...]:
    """Return the error of each part of a failed multi; empty if it succeeded."""
    return tuple(
        ZookeeperError(compiled(ErrorTxn, 0).parse(sub.data).error)
        for sub in record.txns
        if sub.op_code == OpCode.ERROR
    )


def _mode_of(op_code: int, flags: int) -> CreateMode:
    """Return the mode of a create. TTL nodes are an extension that is disabled by default."""
    try:
        mode = CreateMode(flags)
    except ValueError:
        raise ZnodeRefused(ZookeeperError.BAD_ARGUMENTS) from None
    if mode.has_ttl or op_code in OF_TTL:
        raise ZnodeRefused(ZookeeperError.UNIMPLEMENTED)
    return mode


def _parent_path(path: str) -> str:
    if "/" not in path or "\0" in path:
        raise ZnodeRefused(ZookeeperError.BAD_ARGUMENTS, path)
    return parent_of(path)


def _require_path(path: str) -> None:
    if not is_valid(path):
        raise ZnodeRefused(ZookeeperError.BAD_ARGUMENTS, path)


def _require_version(found: int, expected: int, path: str) -> None:
    if expected not in (ANY_VERSION, found):
        raise ZnodeRefused(ZookeeperError.BAD_VERSION, path)


def _sub(op_code: int, record: Message) -> SubTxn:
    return SubTxn(op_code=op_code, data=compiled(type(record), 0).encode(record))


# --------------------------------------------------------------------------------------------------
# Sessions: they outlive connections, and expire without requests for their timeout
#
# As in ZooKeeper they expire on the server's ticks: up to one tick later than requested.
# Source: SessionTrackerImpl, ExpiryQueue, ZooKeeperServer (session ids, passwords, limits).

PASSWORD_BYTES: Final = 16
_LAST_SESSION = (1 << 63) - 1


@dataclass(slots=True)
class ServerSession:
    """One session. `expires_ms` is on the monotonic clock."""

    id: int
    timeout_ms: int
    expires_ms: int = 0
    is_closing: bool = False


class Sessions:
    """All sessions, in order of creation. Minimum and maximum timeout are 2 and 20 ticks."""

    def __init__(self, tick_ms: int, secret: bytes) -> None:
        self.tick_ms = tick_ms
        self.by_id: dict[int, ServerSession] = {}
        self._secret = secret
        self._next_id = 0

    def begin_ids_at(self, wall_ms: int, server_id: int = 0) -> None:
        """Set the first session id by the wall clock: a restarted server does not reuse ids."""
        self._next_id = max(
            self._next_id,
            ((wall_ms << 24) & ((1 << 64) - 1)) >> 8 & _LAST_SESSION | server_id << 56,
        )

    def fresh_id(self) -> int:
        """Return the id of the next session."""
        self._next_id += 1
        return self._next_id - 1

    def bounded(self, timeout_ms: int) -> int:
        """Return the negotiated timeout for a requested one."""
        return min(max(timeout_ms, 2 * self.tick_ms), 20 * self.tick_ms)

    def password_of(self, session: int) -> bytes:
        """Return the password with which a client resumes a session."""
        return hashlib.sha256(self._secret + session.to_bytes(8, signed=True)).digest()[
            :PASSWORD_BYTES
        ]

    def add(self, session: int, timeout_ms: int, now_ms: int) -> ServerSession:
        """Create a session."""
        added = self.by_id[session] = ServerSession(session, timeout_ms)
        self.touch(session, now_ms)
        return added

    def touch(self, session: int, now_ms: int) -> None:
        """Extend a session after a request."""
        found = self.by_id.get(session)
        if found is not None:
            found.expires_ms = max(found.expires_ms, self._tick_after(now_ms + found.timeout_ms))

    def overdue(self, now_ms: int) -> list[int]:
        """Return the sessions that have expired."""
        return [
            session.id
            for session in self.by_id.values()
            if session.expires_ms <= now_ms and not session.is_closing
        ]

    def next_ms(self) -> int | None:
        """Return the next expiry time."""
        return min(
            (session.expires_ms for session in self.by_id.values() if not session.is_closing),
            default=None,
        )

    def remove(self, session: int) -> None:
        """Remove a session."""
        self.by_id.pop(session, None)

    def _tick_after(self, moment_ms: int) -> int:
        return (moment_ms // self.tick_ms + 1) * self.tick_ms


# --------------------------------------------------------------------------------------------------
# Watches
#
# A standard watch triggers once; a persistent one until it is removed, a recursive one for all
# descendants, too.
# Source: WatchManager, WatcherModeManager, DataTree.setWatches (3.8: the last requested mode
# applies).

Watcher = int
"""The connection that watches."""


class WatchMode(Enum):
    """The mode of a watch."""

    ONCE = "once"
    STAYING = "staying"
    RECURSIVE = "recursive"


MODES = {
    AddWatchMode.PERSISTENT: WatchMode.STAYING,
    AddWatchMode.PERSISTENT_RECURSIVE: WatchMode.RECURSIVE,
}


class WatchTable:
    """The watches of one type: by path, by connection, with their mode."""

    def __init__(self) -> None:
        self.by_path: dict[str, dict[Watcher, WatchMode]] = {}
        self._recursive_count = 0

    def add(self, path: str, watcher: Watcher, mode: WatchMode) -> None:
        """Add a watch."""
        self.remove(path, watcher)
        self.by_path.setdefault(path, {})[watcher] = mode
        self._recursive_count += mode is WatchMode.RECURSIVE

    def remove(self, path: str, watcher: Watcher) -> bool:
        """Remove a watch; False if there was none."""
        watchers = self.by_path.get(path, {})
        mode = watchers.pop(watcher, None)
        self._recursive_count -= mode is WatchMode.RECURSIVE
        if mode is not None and not watchers:
            del self.by_path[path]
        return mode is not None

    def trigger(self, path: str, event_type: EventType) -> list[Watcher]:
        """Return the watchers to notify, and remove their standard watches."""
        notified: dict[Watcher, None] = {}
        for place in _self_and_above(path) if self._recursive_count else (path,):
            for watcher, mode in list(self.by_path.get(place, {}).items()):
                if mode is WatchMode.RECURSIVE:
                    if event_type is not EventType.NODE_CHILDREN_CHANGED:
                        notified[watcher] = None
                elif place == path:
                    notified[watcher] = None
                    if mode is WatchMode.ONCE:
                        self.remove(place, watcher)
        return list(notified)

    def move(self, watcher: Watcher, other: "WatchTable") -> None:
        """Move a client's watches to another table."""
        for path in [path for path, watchers in self.by_path.items() if watcher in watchers]:
            other.add(path, watcher, self.by_path[path][watcher])
            self.remove(path, watcher)

    def has_any(self, path: str) -> bool:
        """Return whether a path has a watch, not counting recursive ones above.

        Raises ValueError for an invalid path.
        """
        return bool(path) and bool(parent_of(path)) and path in self.by_path

    def forget(self, watcher: Watcher) -> None:
        """Remove the watches of a closed connection."""
        for path in [path for path, watchers in self.by_path.items() if watcher in watchers]:
            self.remove(path, watcher)


class Watches:
    """All watches: on data and existence, and on children. Persistent ones are in both."""

    def __init__(self) -> None:
        self.data = WatchTable()
        self.children = WatchTable()

    def add(self, path: str, mode: AddWatchMode, watcher: Watcher) -> None:
        """Add a persistent watch."""
        for table in (self.children, self.data):
            table.add(path, watcher, MODES[mode])

    def triggered(self, event_type: EventType, path: str) -> list[Watcher]:
        """Return the watchers of a change, without duplicates."""
        if event_type is EventType.NODE_CHILDREN_CHANGED:
            return self.children.trigger(path, event_type)
        notified = self.data.trigger(path, event_type)
        if event_type is EventType.NODE_DELETED:
            notified += [
                watcher
                for watcher in self.children.trigger(path, event_type)
                if watcher not in notified
            ]
        return notified

    def forget(self, watcher: Watcher) -> None:
        """Remove the watches of a closed connection."""
        self.data.forget(watcher)
        self.children.forget(watcher)

    def move(self, watcher: Watcher, other: "Watches") -> None:
        """Move a client's watches to another object."""
        self.data.move(watcher, other.data)
        self.children.move(watcher, other.children)

    def has_any(self, path: str, kind: WatchKind) -> bool:
        """Return whether there is a watch of any client, as 3.8 does.

        Raises ValueError for an invalid path.
        """
        return any(table.has_any(path) for table in self._of(kind))

    def remove(self, path: str, kind: WatchKind, watcher: Watcher) -> bool:
        """Remove a watch; False if there was none."""
        removed = [table.remove(path, watcher) for table in self._of(kind)]
        return any(removed)

    def restore(
        self, wanted: SetWatches, tree: ZnodeTree, watcher: Watcher
    ) -> list[tuple[EventType, str]]:
        """Restore the watches of a reconnected client; return the events that it missed."""
        missed: list[tuple[EventType, str]] = []
        for path in wanted.data_watches:
            znode = tree.get(path)
            if znode is None:
                missed.append((EventType.NODE_DELETED, path))
            elif znode.mzxid > wanted.relative_zxid:
                missed.append((EventType.NODE_DATA_CHANGED, path))
            else:
                self.data.add(path, watcher, WatchMode.ONCE)
        for path in wanted.exist_watches:
            if tree.get(path) is not None:
                missed.append((EventType.NODE_CREATED, path))
            else:
                self.data.add(path, watcher, WatchMode.ONCE)
        for path in wanted.child_watches:
            znode = tree.get(path)
            if znode is None:
                missed.append((EventType.NODE_DELETED, path))
            elif znode.pzxid > wanted.relative_zxid:
                missed.append((EventType.NODE_CHILDREN_CHANGED, path))
            else:
                self.children.add(path, watcher, WatchMode.ONCE)
        for path in wanted.persistent_watches:
            self.add(path, AddWatchMode.PERSISTENT, watcher)
        for path in wanted.persistent_recursive_watches:
            self.add(path, AddWatchMode.PERSISTENT_RECURSIVE, watcher)
        return missed

    def counts(self) -> tuple[int, int, int]:
        """Return the number of watching connections, of watched paths, and of watches."""
        tables = (self.data.by_path, self.children.by_path)
        watchers = {watcher for table in tables for each in table.values() for watcher in each}
        paths = {path for table in tables for path in table}
        return (
            len(watchers),
            len(paths),
            sum(len(each) for table in tables for each in table.values()),
        )

    def _of(self, kind: WatchKind) -> Iterator[WatchTable]:
        if kind in (WatchKind.CHILDREN, WatchKind.ANY):
            yield self.children
        if kind in (WatchKind.DATA, WatchKind.ANY):
            yield self.data


def _self_and_above(path: str) -> Iterator[str]:
    yield path
    while path != ROOT:
        path = parent_of(path)
        yield path


# --------------------------------------------------------------------------------------------------
# Reads, and the watches that they set

REQUESTS: dict[int, type] = {
    OpCode.EXISTS: WatchedPath,
    OpCode.GET_DATA: WatchedPath,
    OpCode.GET_CHILDREN: WatchedPath,
    OpCode.GET_CHILDREN_2: WatchedPath,
    OpCode.GET_ACL: PathOnly,
    OpCode.SYNC: PathOnly,
    OpCode.GET_EPHEMERALS: PathOnly,
    OpCode.GET_ALL_CHILDREN_NUMBER: PathOnly,
    OpCode.ADD_WATCH: AddWatchRequest,
    OpCode.CHECK_WATCHES: PathAndWatchKind,
    OpCode.REMOVE_WATCHES: PathAndWatchKind,
}


class TreeReader:
    """Serves one client: `watcher` is its connection, `names` its identities."""

    def __init__(
        self,
        tree: ZnodeTree,
        watches: Watches,
        watcher: int,
        session: int,
        names: Sequence[ZnodeIdentity],
    ) -> None:
        self._tree = tree
        self._watches = watches
        self._watcher = watcher
        self._session = session
        self._names = names

    def read(self, op_code: int, body: Message) -> Message | None:
        """Return the response. Raises ZnodeRefused."""
        match op_code:
            case OpCode.EXISTS:
                return self._exists(body)
            case OpCode.GET_DATA:
                return self._data(body)
            case OpCode.GET_CHILDREN:
                return GetChildrenResponse(children=list(self._children(body).children))
            case OpCode.GET_CHILDREN_2:
                znode = self._children(body)
                return GetChildren2Response(children=list(znode.children), stat=znode.stat())
            case OpCode.GET_ACL:
                return self._acl(body.path)
            case OpCode.SYNC:
                return PathOnly(path=body.path)
            case OpCode.GET_EPHEMERALS:
                paths = self._tree.ephemerals.get(self._session, {})
                return GetChildrenResponse(
                    children=[path for path in paths if path.startswith(body.path)]
                )
            case OpCode.GET_ALL_CHILDREN_NUMBER:
                self._readable(body.path)
                return GetAllChildrenNumberResponse(
                    total_number=sum(1 for _ in self._tree.paths_below(body.path))
                )
            case OpCode.WHO_AM_I:
                return WhoAmIResponse(
                    client_infos=[
                        ClientInfo(auth_scheme=name.scheme, user=name.id.split(":", 1)[0])
                        for name in self._names
                    ]
                )
        return self._watching(op_code, body)

    def read_all(self, asked: Sequence[tuple[OpCode, Message]]) -> list[Result]:
        """Return the responses to several reads, independently."""
        results: list[Result] = []
        for op_code, body in asked:
            try:
                results.append((op_code, self.read(op_code, body)))
            except ZnodeRefused as refused:
                results.append((OpCode.ERROR, ErrorResult(error=refused.error)))
        return results

    def _exists(self, body: WatchedPath) -> StatResponse:
        znode = self._tree.get(body.path or ROOT)
        if znode is not None:
            self._require(znode, Permission.READ, body.path)
        if body.watch:
            self._watches.data.add(body.path, self._watcher, WatchMode.ONCE)
        return StatResponse(stat=self._get(body.path).stat())

    def _data(self, body: WatchedPath) -> GetDataResponse:
        znode = self._readable(body.path)
        if body.watch:
            self._watches.data.add(body.path, self._watcher, WatchMode.ONCE)
        return GetDataResponse(data=znode.data, stat=znode.stat())

    def _children(self, body: WatchedPath) -> Znode:
        znode = self._readable(body.path)
        if body.watch:
            self._watches.children.add(body.path, self._watcher, WatchMode.ONCE)
        return znode

    def _acl(self, path: str) -> GetAclResponse:
        znode = self._get(path)
        self._require(znode, Permission.READ | Permission.ADMIN, path)
        return GetAclResponse(
            acl=visible_acl(
                znode.acl, is_administrator=is_allowed(znode.acl, Permission.ADMIN, self._names)
            ),
            stat=znode.stat(),
        )

    def _watching(self, op_code: int, body: Message) -> Message | None:
        match op_code:
            case OpCode.ADD_WATCH:
                self._watches.add(body.path, AddWatchMode(body.mode), self._watcher)
                return ErrorResult(error=ZookeeperError.OK)
            case OpCode.CHECK_WATCHES:
                if not self._watches.has_any(body.path, WatchKind(body.kind)):
                    raise ZnodeRefused(ZookeeperError.NO_WATCHER, body.path)
                return None
            case OpCode.REMOVE_WATCHES:
                if not self._watches.remove(body.path, WatchKind(body.kind), self._watcher):
                    raise ZnodeRefused(ZookeeperError.NO_WATCHER, body.path)
                return None
        raise ZnodeRefused(ZookeeperError.UNIMPLEMENTED)

    def _readable(self, path: str) -> Znode:
        znode = self._get(path)
        self._require(znode, Permission.READ, path)
        return znode

    def _get(self, path: str) -> Znode:
        znode = self._tree.get(path or ROOT)
        if znode is None:
            raise ZnodeRefused(ZookeeperError.NO_NODE, path)
        return znode

    def _require(self, znode: Znode, permissions: int, path: str) -> None:
        if not is_allowed(znode.acl, permissions, self._names):
            raise ZnodeRefused(ZookeeperError.NO_AUTH, path)


def parse_body(op_code: int, content: bytes, position: int) -> Message:
    """Return the body of a request. Raises MalformedMessage."""
    return compiled(REQUESTS[op_code], 0).decode(content, position)[0]
