"""Events of a ZooKeeper server. Source: org.apache.zookeeper."""

from kraftsim.events.event import Event


class ZookeeperSessionBegan(Event):
    """A client has a session; timeout_ms is the negotiated value."""

    session: int
    timeout_ms: int


class ZookeeperSessionEnded(Event):
    """A session ended: closed by its client, or expired.

    `ephemerals` znodes were deleted with it.
    """

    session: int
    is_expired: bool
    ephemerals: int


class ZnodeChanged(Event):
    """A znode was created or deleted, or its data or ACL were set; version is -1 after a
    deletion.
    """

    path: str
    change: str
    version: int
    zxid: int
    session: int


class ZookeeperRecovered(Event):
    """A server has loaded its files: the last change, and the number of torn bytes behind it."""

    zxid: int
    znodes: int
    sessions: int
    truncated_bytes: int
