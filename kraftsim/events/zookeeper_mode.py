"""A broker whose metadata is in ZooKeeper: its session, and what it could not read.   Source: kafka.server.KafkaServer."""

from kraftsim.events.event import Event


class BrokerSessionBegan(Event):
    """A broker has a session with ZooKeeper; timeout_ms is what was agreed."""

    session: int
    timeout_ms: int


class BrokerSessionLost(Event):
    """The session of a broker is over: it begins another one, and registers again."""

    session: int


class ZnodeNotUnderstood(Event):
    """A znode holds what cannot be read; what was known before goes on to hold."""

    path: str
    reason: str
