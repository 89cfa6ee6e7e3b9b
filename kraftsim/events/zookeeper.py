"""What happens at a ZooKeeper server. Source: org.apache.zookeeper."""

from kraftsim.events.event import Event


class ZookeeperSessionBegan(Event):
    """A client has a session; timeout_ms is what was agreed."""

    session: int
    timeout_ms: int


class ZookeeperSessionEnded(Event):
    """A session is over: closed by its client, or expired, because nothing was heard of it. `ephemerals` znodes went with it."""

    session: int
    is_expired: bool
    ephemerals: int


class ZnodeChanged(Event):
    """A znode was created, deleted, or given other data or another list of rights; version is -1 where it is gone."""

    path: str
    change: str
    version: int
    zxid: int
    session: int


class ZookeeperRecovered(Event):
    """A server has read its files: up to which change, and how many bytes behind it were torn."""

    zxid: int
    znodes: int
    sessions: int
    cut_bytes: int
