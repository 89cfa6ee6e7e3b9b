"""Validation of requests that change the tree.

The requests of a multi are validated on a draft, so that each sees the ones before it.

Source: org.apache.zookeeper.server.PrepRequestProcessor.
"""

from collections.abc import Sequence
from typing import Final

from kraftsim.core.zookeeper.access import Acl, Identity, as_entries, is_allowed, settled
from kraftsim.core.zookeeper.changes import ZnodeRefused
from kraftsim.core.zookeeper.paths import SPECIAL, is_valid, name_of, parent_of
from kraftsim.core.zookeeper.tree import ZnodeTree
from kraftsim.core.zookeeper.znode import CONTAINER_OWNER, NO_OWNER, Znode
from protocol.message_codec import compiled
from protocol.schema import Message
from protocol.zookeeper.multi import Asked
from protocol.zookeeper.op_codes import ANY_VERSION, CreateMode, OpCode, Permission, ZookeeperError
from protocol.zookeeper.txns import (
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
    CreateRequest,
    CreateTtlRequest,
    SetAclRequest,
    SetDataRequest,
    VersionedPath,
)

OF_TTL: Final = (OpCode.CREATE_TTL,)


class Draft:
    """The tree after the requests validated so far; the tree itself does not change."""

    def __init__(self, tree: ZnodeTree, session: int, names: Sequence[Identity]) -> None:
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
