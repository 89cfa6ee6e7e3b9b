"""Snapshots of the tree and the sessions: serialization and loading.

Source: DataTree.serialize, ReferenceCountedACLCache, SerializeUtils.
"""

from kraftsim.core.zookeeper.access import OPEN_TO_ALL, Acl, as_entries, from_entries
from kraftsim.core.zookeeper.paths import ROOT, name_of, parent_of
from kraftsim.core.zookeeper.server_state import ServerState
from kraftsim.core.zookeeper.znode import CONTAINER_OWNER, NO_OWNER, Znode
from protocol.zookeeper.snapshot import (
    OPEN_ACL,
    PersistedStat,
    PersistedZnode,
    ZookeeperSnapshot,
    build_snapshot,
)


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
