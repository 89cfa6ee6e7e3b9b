"""A lagging replica of the tree: the state of a follower in an ensemble, with the watches of its
clients.

Clients of a follower read its state and are notified when it applies a change; their writes are
decided by the leader, and answered once the follower has applied them.
Source: ZooKeeper Programmer's Guide (consistency guarantees),
org.apache.zookeeper.server.quorum.{CommitProcessor, FollowerRequestProcessor}.
"""

from collections import deque

from kraftsim.core.zookeeper.tree import ZnodeTree
from kraftsim.core.zookeeper.watches import Watches
from protocol.schema import Message
from protocol.zookeeper.txns import TxnHeader


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
