"""The znode tree: applies validated changes, live and on loading the log.

Source: org.apache.zookeeper.server.DataTree.
"""

from collections.abc import Iterable, Iterator

from kraftsim.core.zookeeper.access import OPEN_TO_ALL, READ_BY_ALL, from_entries
from kraftsim.core.zookeeper.changes import ZnodeChange
from kraftsim.core.zookeeper.paths import ROOT, name_of, parent_of
from kraftsim.core.zookeeper.znode import CONTAINER_OWNER, NO_OWNER, Znode
from protocol.schema import Message
from protocol.zookeeper.op_codes import EventType, OpCode
from protocol.zookeeper.txns import (
    CloseSessionTxn,
    CreateContainerTxn,
    CreateTxn,
    DeleteTxn,
    MultiTxn,
    SetAclTxn,
    SetDataTxn,
    TxnHeader,
    parse_record,
)


class ZnodeTree:
    """All znodes by path, and the ephemeral ones by session in order of creation."""

    def __init__(self) -> None:
        self.znodes: dict[str, Znode] = {ROOT: Znode(data=b"")}
        self.ephemerals: dict[int, dict[str, None]] = {}
        self._add("/zookeeper", Znode(data=b""))
        self._add("/zookeeper/config", Znode(data=b"", acl=READ_BY_ALL))
        self._add("/zookeeper/quota", Znode(data=b"", acl=OPEN_TO_ALL))

    def get(self, path: str) -> Znode | None:
        """Return a znode."""
        return self.znodes.get(path)

    def copy(self) -> "ZnodeTree":
        """Return an independent copy."""
        found = ZnodeTree()
        found.znodes = {path: znode.copy() for path, znode in self.znodes.items()}
        found.ephemerals = {session: dict(paths) for session, paths in self.ephemerals.items()}
        return found

    def paths_below(self, path: str) -> Iterator[str]:
        """Return the paths of all descendants of a znode."""
        return below(self.znodes, path)

    def replay(self, header: TxnHeader, record: Message) -> list[ZnodeChange]:
        """Apply a validated change, and return the changes to notify watchers of, in order."""
        match record:
            case CreateTxn() | CreateContainerTxn():
                return self._create(header, record)
            case DeleteTxn():
                return self._delete(record.path, header.zxid)
            case SetDataTxn():
                znode = self.znodes[record.path]
                znode.data, znode.version, znode.mzxid, znode.mtime = (
                    record.data,
                    record.version,
                    header.zxid,
                    header.time,
                )
                return [ZnodeChange(EventType.NODE_DATA_CHANGED, record.path, znode.acl)]
            case SetAclTxn():
                znode = self.znodes[record.path]
                znode.acl, znode.aversion = from_entries(record.acl), record.version
            case MultiTxn() if any(sub.op_code == OpCode.ERROR for sub in record.txns):
                return []  # one failed; ZooKeeper's log still has the records of those before it
            case MultiTxn():
                return [
                    change
                    for sub in record.txns
                    for change in self.replay(header, parse_record(sub.op_code, sub.data))
                ]
            case CloseSessionTxn():
                paths = record.paths_to_delete or list(self.ephemerals.get(header.client_id, ()))
                changes = [
                    change
                    for path in paths
                    if path in self.znodes
                    for change in self._delete(path, header.zxid)
                ]
                self.ephemerals.pop(header.client_id, None)
                return changes
        return []

    def _create(
        self, header: TxnHeader, record: CreateTxn | CreateContainerTxn
    ) -> list[ZnodeChange]:
        owner = NO_OWNER
        if isinstance(record, CreateContainerTxn):
            owner = CONTAINER_OWNER
        elif record.ephemeral:
            owner = header.client_id
            self.ephemerals.setdefault(owner, {})[record.path] = None
        znode = Znode(
            data=record.data,
            acl=from_entries(record.acl),
            czxid=header.zxid,
            mzxid=header.zxid,
            pzxid=header.zxid,
            ctime=header.time,
            mtime=header.time,
            owner=owner,
        )
        parent = self._add(record.path, znode)
        parent.creations, parent.pzxid = record.parent_cversion, header.zxid
        return [
            ZnodeChange(EventType.NODE_CREATED, record.path, znode.acl),
            ZnodeChange(EventType.NODE_CHILDREN_CHANGED, parent_of(record.path), parent.acl),
        ]

    def _add(self, path: str, znode: Znode) -> Znode:
        self.znodes[path] = znode
        parent = self.znodes[parent_of(path)]
        parent.children[name_of(path)] = None
        return parent

    def _delete(self, path: str, zxid: int) -> list[ZnodeChange]:
        znode = self.znodes.pop(path)
        parent = self.znodes[parent_of(path)]
        del parent.children[name_of(path)]
        parent.pzxid = max(parent.pzxid, zxid)
        if znode.owner in self.ephemerals:
            self.ephemerals[znode.owner].pop(path, None)
        return [
            ZnodeChange(EventType.NODE_DELETED, path, znode.acl),
            ZnodeChange(EventType.NODE_CHILDREN_CHANGED, parent_of(path), parent.acl),
        ]


def below(paths: Iterable[str], path: str) -> Iterator[str]:
    """Return the paths that are descendants of one."""
    beginning = path if path == ROOT else path + "/"
    return (each for each in paths if each.startswith(beginning) and each != ROOT)
