"""The effects of a change to the tree, for watches and for the event log."""

from typing import NamedTuple

from kraftsim.core.zookeeper.access import Acl
from protocol.zookeeper.op_codes import EventType


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
