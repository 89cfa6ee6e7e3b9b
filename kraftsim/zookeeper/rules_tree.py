"""The tree of znodes: access control, the effects of a change, paths, one znode, and the tree that
applies validated changes.

Source: org.apache.zookeeper.server.{DataTree, DataNode, ZooKeeperServer.checkACL,
PrepRequestProcessor.fixupACL} and its package auth, org.apache.zookeeper.common.PathUtils.
"""

import base64
import hashlib
import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from protocol.schema import Message
from protocol.zookeeper.op_codes import EventType, OpCode, Permission
from protocol.zookeeper.txn_log import (
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
from protocol.zookeeper.znodes import AclEntry, Stat

# --------------------------------------------------------------------------------------------------
# Access control: ACLs, and the identities of a client
#
# Schemes: world (everyone), ip (an address or a network), digest (a name and a hash of name and
# password), auth (the requesting client). A client with the password of `super` has all
# permissions.


class ZnodeIdentity(NamedTuple):
    """An identity in a scheme."""

    scheme: str
    id: str


class Right(NamedTuple):
    """An identity with its permissions."""

    permissions: int
    identity: ZnodeIdentity


Acl = tuple[Right, ...]
ANYONE: Final = ZnodeIdentity("world", "anyone")
OPEN_TO_ALL: Final[Acl] = (Right(Permission.ALL, ANYONE),)
READ_BY_ALL: Final[Acl] = (Right(Permission.READ, ANYONE),)
_DIGEST_PARTS = 2


def digest_of(name_and_password: str) -> ZnodeIdentity:
    """Return the identity of a client that sent name:password."""
    name = name_and_password.split(":", 1)[0]
    hashed = base64.b64encode(hashlib.sha1(name_and_password.encode()).digest()).decode()
    return ZnodeIdentity("digest", f"{name}:{hashed}")


def is_allowed(acl: Acl, permissions: int, names: Sequence[ZnodeIdentity]) -> bool:
    """Return whether a client with these identities has at least one of the permissions."""
    if not acl or any(name.scheme == "super" for name in names):
        return True
    return any(
        right.permissions & permissions
        and (right.identity == ANYONE or any(_is(right.identity, name) for name in names))
        for right in acl
    )


def settled(entries: Sequence[AclEntry] | None, names: Sequence[ZnodeIdentity]) -> Acl | None:
    """Return the normalized ACL: without duplicates, `auth` replaced by the client's identities.

    None if it is invalid.
    """
    rights: dict[Right, None] = {}
    for entry in entries or ():
        identity = ZnodeIdentity(entry.scheme, entry.id)
        if identity == ANYONE:
            rights[Right(entry.perms, identity)] = None
        elif entry.scheme == "auth":
            own = [name for name in names if name.scheme == "digest"]
            if not own:
                return None
            rights.update((Right(entry.perms, name), None) for name in own)
        elif _is_valid(identity):
            rights[Right(entry.perms, identity)] = None
        else:
            return None
    return tuple(rights) or None


def visible_acl(acl: Acl, *, is_administrator: bool) -> list[AclEntry]:
    """Return the ACL as sent to a client: hashes are visible to administrators only."""
    return [
        AclEntry(
            perms=right.permissions,
            scheme=right.identity.scheme,
            id=right.identity.id
            if is_administrator or right.identity.scheme != "digest"
            else f"{right.identity.id.split(':', 1)[0]}:x",
        )
        for right in acl
    ]


def as_entries(acl: Acl) -> list[AclEntry]:
    """Return the ACL as stored in the log."""
    return visible_acl(acl, is_administrator=True)


def from_entries(entries: Sequence[AclEntry]) -> Acl:
    """Return the ACL from the log."""
    return tuple(Right(entry.perms, ZnodeIdentity(entry.scheme, entry.id)) for entry in entries)


def _is_valid(identity: ZnodeIdentity) -> bool:
    match identity.scheme:
        case "digest":
            return len(identity.id.split(":")) == _DIGEST_PARTS
        case "ip":
            return _network(identity.id) is not None
    return False


def _is(wanted: ZnodeIdentity, name: ZnodeIdentity) -> bool:
    if wanted.scheme != name.scheme:
        return False
    if wanted.scheme != "ip":
        return wanted.id == name.id
    network = _network(wanted.id)
    try:
        return network is not None and ipaddress.ip_address(name.id) in network
    except ValueError:
        return False


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


# --------------------------------------------------------------------------------------------------
# The effects of a change, for watches and for the event log


class ZnodeChange(NamedTuple):
    """A znode was created, deleted, or its data or children changed; only clients with read
    permission are notified.
    """

    event_type: EventType
    path: str
    acl: Acl


class ZnodeRefused(Exception):
    """ZooKeeper refuses a request; `error` is the code sent to the client."""

    def __init__(self, error: int, path: str = "") -> None:
        super().__init__(error, path)
        self.error = error
        self.path = path


# --------------------------------------------------------------------------------------------------
# Paths
#
# Source: PathUtils, DataTree (special paths).

ROOT: Final = "/"
SPECIAL: Final = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")
"""They always exist and cannot be deleted."""
_NOT_ALLOWED: Final = (
    ("\u0001", "\u001f"),
    ("\u007f", "\u009f"),
    ("\ud800", "\uf8ff"),
    ("\ufff0", "\uffff"),
)


def is_valid(path: str) -> bool:
    """Return whether a text is a valid path."""
    if path == ROOT:
        return True
    if not path.startswith(ROOT) or path.endswith(ROOT):
        return False
    names = path[1:].split("/")
    return all(name not in ("", ".", "..") for name in names) and not any(
        _is_refused(letter) for letter in path
    )


def parent_of(path: str) -> str:
    """Return the parent of a path."""
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    """Return the last component of a path."""
    return path[path.rindex("/") + 1 :]


def _is_refused(letter: str) -> bool:
    return letter == "\0" or any(first <= letter <= last for first, last in _NOT_ALLOWED)


# --------------------------------------------------------------------------------------------------
# One znode
#
# Source: DataNode, org.apache.zookeeper.data.StatPersisted.

NO_OWNER = 0
CONTAINER_OWNER = -(1 << 63)
"""The owner of a container node, instead of a session; not sent to clients.

EphemeralType.CONTAINER.
"""


@dataclass(slots=True)
class Znode:
    """Data and stat; a zxid is the number of a change, times are ms since 1970.

    `creations` counts all children ever created: it is the number of the next sequential one.
    """

    data: bytes | None = None
    acl: Acl = OPEN_TO_ALL
    czxid: int = 0
    mzxid: int = 0
    pzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    creations: int = 0
    aversion: int = 0
    owner: int = NO_OWNER
    """The owning session of an ephemeral znode."""
    children: dict[str, None] = field(default_factory=dict)
    """The names of the children, in order of creation."""

    def stat(self) -> Stat:
        """Return the stat sent to clients.

        Its cversion counts creations and deletions of children.
        """
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime=self.ctime,
            mtime=self.mtime,
            version=self.version,
            cversion=self.creations * 2 - len(self.children),
            aversion=self.aversion,
            ephemeral_owner=self.owner if self.owner != CONTAINER_OWNER else NO_OWNER,
            data_length=len(self.data or b""),
            num_children=len(self.children),
            pzxid=self.pzxid,
        )

    def copy(self) -> "Znode":
        """Return an independent copy."""
        return replace(self, children=dict(self.children))


# --------------------------------------------------------------------------------------------------
# The tree: applies validated changes, live and on loading the log


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
