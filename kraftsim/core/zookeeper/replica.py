"""A copy of the tree that is behind: what a follower of an ensemble knows, with the watches of the clients that are connected to it.

Clients of a follower read what it knows and hear of changes when it makes them; what they change is decided by the leader, and answered once the
follower has made it.
Source: ZooKeeper Programmer's Guide (consistency guarantees), org.apache.zookeeper.server.quorum.{CommitProcessor, FollowerRequestProcessor}.
"""

from collections import deque

from kraftsim.core.zookeeper.tree import ZnodeTree
from kraftsim.core.zookeeper.watches import Watches
from protocol.schema import Message
from protocol.zookeeper.txns import TxnHeader


class Replica:
    """`zxid` is the number of the last change that was made here; those behind it wait."""

    def __init__(self, tree: ZnodeTree, zxid: int) -> None:
        self.tree = tree
        self.watches = Watches()
        self.zxid = zxid
        self._waiting: deque[tuple[TxnHeader, Message]] = deque()

    def hear(self, header: TxnHeader, record: Message) -> None:
        """A change was committed."""
        self._waiting.append((header, record))

    def next_until(self, zxid: int) -> tuple[TxnHeader, Message] | None:
        """Return the next change up to a number, inside: it is to be made now."""
        if not self._waiting or self._waiting[0][0].zxid > zxid:
            return None
        self.zxid = self._waiting[0][0].zxid
        return self._waiting.popleft()

    def differs_at(self, path: str, other: ZnodeTree) -> bool:
        """Tell whether somebody who reads a znode here learns something else than there."""
        here, there = self.tree.get(path), other.get(path)
        return here is not there and (here is None or there is None or here.stat() != there.stat())
