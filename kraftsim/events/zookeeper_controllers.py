"""Controllers in ZooKeeper mode: elections and resignations.

Source: kafka.controller.KafkaController.
"""

from kraftsim.events.event import Event


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
