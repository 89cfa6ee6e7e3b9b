"""Histories of topic configurations that take effect, or not: rows for the table in `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.metadata.events import (
    ConfigChanged,
    ControllerElected,
    MetadataApplied,
    MetadataCommitted,
    TopicConfigInEffect,
    TopicDeleted,
)
from kraftsim.metadata.invariants.topic_configs_in_effect import NAME, OF_TOPIC
from kraftsim.partitions.events import LeaderElected, LeadershipLost
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

CONFIG, OTHER = "min.insync.replicas", "segment.bytes"


def changed(value: str | None, name: str = CONFIG, topic: str = "t") -> Event:
    """A controller has committed a change."""
    return ConfigChanged(
        resource_type=OF_TOPIC,
        resource_name=topic,
        name=name,
        value=value,
        is_removed=value is None,
    )


def uses(value: str | None, name: str = CONFIG, partition: int = 0, topic: str = "t") -> Event:
    """A leader uses another value."""
    return TopicConfigInEffect(topic=topic, partition=partition, name=name, value=value)


def leads(partition: int = 0, topic: str = "t", leader_epoch: int = 0) -> Event:
    """A broker becomes the leader of a partition."""
    return LeaderElected(topic=topic, partition=partition, leader_epoch=leader_epoch, next_offset=0)


def resigns(partition: int = 0, topic: str = "t") -> Event:
    """A broker leads a partition no longer."""
    return LeadershipLost(topic=topic, partition=partition, leader_epoch=0)


def committed(high_watermark: int) -> Event:
    """The controller reports its high watermark."""
    return MetadataCommitted(leader_epoch=1, high_watermark=high_watermark)


def applied(next_offset: int) -> Event:
    """A broker has applied the metadata log."""
    return MetadataApplied(next_offset=next_offset)


ELECTED = ControllerElected(leader_epoch=2, epoch_start_offset=9)
DELETED = TopicDeleted(topic="t", topic_id="i", partition_count=1)
OWN_DELETED = TopicDeleted(topic="own", topic_id="i", partition_count=2)
CHANGE = on("c", changed("2"), committed(5))
KEY = f"t-0/{CONFIG}"

TOPIC_CONFIG_ROWS: list[Row] = [
    ("in effect when applied", NAME, [*CHANGE, *on("b", leads(), uses("2"), applied(5))], OK, 1),
    ("not in effect", NAME, [*CHANGE, *on("b", leads(), applied(5))], VIOLATED, 1,
     (f"b.1.1/{KEY}",), (("c.1.0", "b.1.1"),)),
    ("no leader", NAME, [*CHANGE, *on("b", applied(5))], VACUOUS, 0),
    ("not leader any more", NAME, [*CHANGE, *on("b", leads(), resigns(), applied(5))], VACUOUS, 0),
    ("not applied", NAME, [*CHANGE, *on("b", leads(), applied(4))], VACUOUS, 0),
    ("at one of two partitions", NAME,
     [*CHANGE, *on("b", leads(0), leads(1), uses("2", partition=1), applied(5))], VIOLATED, 2,
     (f"b.1.3/{KEY}",)),
    ("another value", NAME, [*CHANGE, *on("b", leads(), uses("1"), applied(5))], VIOLATED, 1,
     (f"b.1.2/{KEY}",)),
    ("another configuration", NAME,
     [*CHANGE, *on("b", leads(), uses("9", OTHER), uses("2"), applied(5))], OK, 1),
    ("it flips back", NAME, [*CHANGE, *on("b", leads(), uses("2"), applied(5), uses(None))],
     VIOLATED, 1, (f"b.1.3/{KEY}",), (("c.1.0", "b.1.3"),)),
    ("leader only later, with another value", NAME,
     [*CHANGE, *on("b", applied(5), leads(), uses("1"))], VIOLATED, 0, (f"b.1.2/{KEY}",)),
    ("reported by a replica that does not lead", NAME,
     [*CHANGE, *on("b", applied(5), leads(), resigns(), uses("1"))], VACUOUS, 0),
    ("a value of the former leader epoch", NAME,
     [*CHANGE, *on("b", leads(), uses("2"), leads(leader_epoch=1), applied(5))], VIOLATED, 1,
     (f"b.1.3/{KEY}",)),
    ("the next change is in effect first", NAME,
     [*CHANGE, *on("b", leads(), uses("2"), applied(5)), *on("c", changed("1")),
      *on("b", uses("1"), applied(9)), *on("c", committed(9)), *on("b", applied(10))], OK, 2),
    ("a removal", NAME,
     [*CHANGE, *on("b", leads(), uses("2"), applied(5)), *on("c", changed(None), committed(6)),
      *on("b", uses(None), applied(6))], OK, 2),
    ("a removal without effect", NAME,
     [*CHANGE, *on("b", leads(), uses("2"), applied(5)), *on("c", changed(None), committed(6)),
      *on("b", applied(6))], VIOLATED, 2, (f"b.1.3/{KEY}",)),
    ("the topic is deleted", NAME,
     [*CHANGE, *on("c", DELETED), *on("b", leads(), applied(5))], VACUOUS, 0),
    ("changed before another topic of its name", NAME,
     [*on("b", leads()), *on("c", DELETED, changed("1"), committed(8)), *on("b", applied(8))],
     VACUOUS, 0),
    ("another controller is elected", NAME,
     [*CHANGE, *on("d", ELECTED), *on("b", leads(), applied(5))], VACUOUS, 0),
    ("of a configuration that is not watched", NAME,
     [*on("c", changed("2", "flush.messages"), committed(5)), *on("b", leads(), applied(5))],
     VACUOUS, 0),
    ("of a broker", NAME,
     [*on("c", ConfigChanged(resource_type=4, resource_name="t", name=CONFIG, value="2",
                             is_removed=False), committed(5)), *on("b", leads(), applied(5))],
     VACUOUS, 0),
]  # fmt: skip


def add_topic_config_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Change configurations, which mostly take effect at leaders that change."""
    offset = 20_000_000
    for broker in ("l1", "l2"):
        history.emit(broker, leads(0 if broker == "l1" else 1, "own"))
    for _ in range(random.randrange(5)):
        name, offset = random.choice((CONFIG, OTHER)), offset + 3
        value = random.choice((None, "1", "2"))
        history.emit("config-controller", changed(value, name, "own"))
        history.emit("config-controller", committed(offset))
        for partition, broker in enumerate(("l1", "l2")):
            if not slip():
                history.emit(broker, uses(value, name, partition, "own"))
            history.emit(broker, applied(offset - (1 if slip() else 0)))
            if slip():
                history.emit(broker, uses("3", name, partition, "own"))
            if slip():
                history.emit(broker, resigns(partition, "own"))
                history.emit(broker, leads(partition, "own", 1))
        if slip():
            history.emit("config-controller", random.choice((ELECTED, OWN_DELETED)))
