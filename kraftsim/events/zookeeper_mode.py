"""A broker in ZooKeeper mode: its session, and unreadable znodes.

Source: kafka.server.KafkaServer.
"""

from kraftsim.events.event import Event


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
