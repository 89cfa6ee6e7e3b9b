"""Watches.

A standard watch triggers once; a persistent one until it is removed, a recursive one for all
descendants, too.

Source: org.apache.zookeeper.server.watch.{WatchManager, WatcherModeManager}, DataTree.setWatches
(3.8: the last requested mode applies).
"""

from collections.abc import Iterator
from enum import Enum

from kraftsim.core.zookeeper.paths import ROOT, parent_of
from kraftsim.core.zookeeper.tree import ZnodeTree
from protocol.zookeeper.op_codes import AddWatchMode, EventType, WatchKind
from protocol.zookeeper.watching import SetWatches

Watcher = int
"""The connection that watches."""


class Mode(Enum):
    """The mode of a watch."""

    ONCE = "once"
    STAYING = "staying"
    RECURSIVE = "recursive"


MODES = {AddWatchMode.PERSISTENT: Mode.STAYING, AddWatchMode.PERSISTENT_RECURSIVE: Mode.RECURSIVE}


class WatchTable:
    """The watches of one type: by path, by connection, with their mode."""

    def __init__(self) -> None:
        self.by_path: dict[str, dict[Watcher, Mode]] = {}
        self._recursive_count = 0

    def add(self, path: str, watcher: Watcher, mode: Mode) -> None:
        """Add a watch."""
        self.remove(path, watcher)
        self.by_path.setdefault(path, {})[watcher] = mode
        self._recursive_count += mode is Mode.RECURSIVE

    def remove(self, path: str, watcher: Watcher) -> bool:
        """Remove a watch; False if there was none."""
        watchers = self.by_path.get(path, {})
        mode = watchers.pop(watcher, None)
        self._recursive_count -= mode is Mode.RECURSIVE
        if mode is not None and not watchers:
            del self.by_path[path]
        return mode is not None

    def trigger(self, path: str, event_type: EventType) -> list[Watcher]:
        """Return the watchers to notify, and remove their standard watches."""
        notified: dict[Watcher, None] = {}
        for place in _self_and_above(path) if self._recursive_count else (path,):
            for watcher, mode in list(self.by_path.get(place, {}).items()):
                if mode is Mode.RECURSIVE:
                    if event_type is not EventType.NODE_CHILDREN_CHANGED:
                        notified[watcher] = None
                elif place == path:
                    notified[watcher] = None
                    if mode is Mode.ONCE:
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
                self.data.add(path, watcher, Mode.ONCE)
        for path in wanted.exist_watches:
            if tree.get(path) is not None:
                missed.append((EventType.NODE_CREATED, path))
            else:
                self.data.add(path, watcher, Mode.ONCE)
        for path in wanted.child_watches:
            znode = tree.get(path)
            if znode is None:
                missed.append((EventType.NODE_DELETED, path))
            elif znode.pzxid > wanted.relative_zxid:
                missed.append((EventType.NODE_CHILDREN_CHANGED, path))
            else:
                self.children.add(path, watcher, Mode.ONCE)
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
