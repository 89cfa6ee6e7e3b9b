"""Read requests, and the watches that they set.

Source: org.apache.zookeeper.server.FinalRequestProcessor.
"""

from collections.abc import Sequence

from kraftsim.core.zookeeper.access import Identity, is_allowed, visible_acl
from kraftsim.core.zookeeper.changes import ZnodeRefused
from kraftsim.core.zookeeper.paths import ROOT
from kraftsim.core.zookeeper.tree import ZnodeTree
from kraftsim.core.zookeeper.watches import Mode, Watches
from kraftsim.core.zookeeper.znode import Znode
from protocol.message_codec import compiled
from protocol.schema import Message
from protocol.zookeeper.multi import ErrorResult, Result
from protocol.zookeeper.op_codes import AddWatchMode, OpCode, Permission, WatchKind, ZookeeperError
from protocol.zookeeper.watching import AddWatchRequest, PathAndWatchKind
from protocol.zookeeper.znodes import (
    ClientInfo,
    GetAclResponse,
    GetAllChildrenNumberResponse,
    GetChildren2Response,
    GetChildrenResponse,
    GetDataResponse,
    PathOnly,
    StatResponse,
    WatchedPath,
    WhoAmIResponse,
)

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


class Reader:
    """Serves one client: `watcher` is its connection, `names` its identities."""

    def __init__(
        self,
        tree: ZnodeTree,
        watches: Watches,
        watcher: int,
        session: int,
        names: Sequence[Identity],
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
            self._watches.data.add(body.path, self._watcher, Mode.ONCE)
        return StatResponse(stat=self._get(body.path).stat())

    def _data(self, body: WatchedPath) -> GetDataResponse:
        znode = self._readable(body.path)
        if body.watch:
            self._watches.data.add(body.path, self._watcher, Mode.ONCE)
        return GetDataResponse(data=znode.data, stat=znode.stat())

    def _children(self, body: WatchedPath) -> Znode:
        znode = self._readable(body.path)
        if body.watch:
            self._watches.children.add(body.path, self._watcher, Mode.ONCE)
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
