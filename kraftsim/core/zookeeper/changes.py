"""What a change did to the tree, for watchers and for the event log."""

from typing import NamedTuple

from kraftsim.core.zookeeper.access import Acl
from protocol.zookeeper.op_codes import EventType


class ZnodeChange(NamedTuple):
    """A znode was created, deleted, or has other data or another list of children; only who may read it is told."""

    event_type: EventType
    path: str
    acl: Acl


class ZnodeRefused(Exception):
    """ZooKeeper forbids it; `error` is the code that the client gets."""

    def __init__(self, error: int, path: str = "") -> None:
        super().__init__(error, path)
        self.error = error
        self.path = path
