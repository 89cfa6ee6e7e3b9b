"""Controllers of ZooKeeper's time: who becomes one, and who is one no more.   Source: kafka.controller.KafkaController."""

from kraftsim.events.event import Event


class ZookeeperControllerElected(Event):
    """A broker has made /controller, and /controller_epoch is its own."""

    controller_epoch: int


class ZookeeperControllerReady(Event):
    """A controller has read everything, and begins to decide."""

    controller_epoch: int
    broker_count: int
    topic_count: int


class ZookeeperControllerResigned(Event):
    """A broker is controller no more, as far as it knows."""

    controller_epoch: int
    reason: str


class BrokerCame(Event):
    """A controller sees a broker, or another life of it."""

    broker_id: int
    broker_epoch: int


class BrokerWent(Event):
    """A controller sees a broker no more."""

    broker_id: int
    broker_epoch: int
