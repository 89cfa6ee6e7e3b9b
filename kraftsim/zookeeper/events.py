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


# --------------------------------------------------------------------------------------------------
# Controllers in ZooKeeper mode: elections and resignations.
#
# Source: kafka.controller.KafkaController.


class ZookeeperControllerElected(Event):
    """A broker has created /controller and set /controller_epoch."""

    controller_epoch: int


class ZookeeperControllerReady(Event):
    """A controller has loaded all metadata, and is active."""

    controller_epoch: int
    broker_count: int
    topic_count: int


class ZookeeperControllerResigned(Event):
    """A broker has resigned as controller."""

    controller_epoch: int
    reason: str


class BrokerJoined(Event):
    """A controller sees a broker, or another incarnation of it."""

    broker_id: int
    broker_epoch: int


class BrokerLeft(Event):
    """A controller sees that a broker is gone."""

    broker_id: int
    broker_epoch: int


# --------------------------------------------------------------------------------------------------
# A broker in ZooKeeper mode: its session, and unreadable znodes.
#
# Source: kafka.server.KafkaServer.


class BrokerSessionBegan(Event):
    """A broker has a session with ZooKeeper; timeout_ms is the negotiated value."""

    session: int
    timeout_ms: int


class BrokerSessionLost(Event):
    """The session of a broker expired: it opens another one, and registers again."""

    session: int


class ZnodeNotUnderstood(Event):
    """A znode has unreadable content; its former content stays in effect."""

    path: str
    reason: str
