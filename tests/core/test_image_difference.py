"""What a snapshot changes for a broker with an older image: what the log in between would have
touched, if it made a difference.
"""

from collections.abc import Iterable

import pytest

from kraftsim.metadata.rules_image import ImageChanges, MetadataImage, difference
from protocol.metadata.topics import RemoveTopicRecord, TopicRecord
from tests.core.test_snapshot import FIRST_TOPIC, SECOND_TOPIC, a_long_history, partition, replayed

HISTORY = a_long_history(21)


def values(image: MetadataImage) -> dict[object, object]:
    """Everything that changes can name, by that name."""
    found: dict[object, object] = {
        ("broker", broker.broker_id): broker for broker in image.brokers()
    }
    found |= {("config", resource): dict(configs) for resource, configs in image.configs()}
    for topic in image.topics():
        found["topic", topic.topic_id] = topic.name
        found |= {
            ("partition", (topic.topic_id, number)): each
            for number, each in topic.partitions.items()
        }
    return found


def named(changes: ImageChanges) -> set[object]:
    """The names in changes."""
    rows: dict[str, Iterable[object]] = {
        "topic": changes.topics,
        "partition": changes.partitions,
        "broker": changes.brokers,
        "config": changes.configs,
    }
    return {(kind, key) for kind, keys in rows.items() for key in keys}


@pytest.mark.parametrize("cut", range(0, len(HISTORY), 3))
def test_difference_names_exactly_what_changed(cut: int) -> None:
    """A broker does not reopen its partitions because of a snapshot."""
    before, after = replayed(HISTORY[:cut]), replayed(HISTORY)
    known, knows = values(before), values(after)
    changes = difference(before, after)
    assert named(changes) == {
        name for name in {*known, *knows} if known.get(name) != knows.get(name)
    }
    assert changes.features == (before.finalized_features != after.finalized_features)
    touched = replayed(HISTORY[:cut])
    touched.take_changes()
    log = replayed(HISTORY[cut:], touched).take_changes()
    assert changes.registries <= log.registries
    # index: names are pairs
    assert named(changes) - {name for name in named(changes) if name[0] == "config"} <= named(log)  # type: ignore[index]


def test_image_does_not_differ_from_itself() -> None:
    assert not difference(replayed(HISTORY), replayed(HISTORY))


def test_removals_come_first() -> None:
    """A topic that was deleted and created again is another topic: its old partitions are dropped
    before the new ones are opened.
    """
    first = [TopicRecord(name="t", topic_id=SECOND_TOPIC), partition(SECOND_TOPIC, 0)]
    again = [
        RemoveTopicRecord(topic_id=SECOND_TOPIC),
        TopicRecord(name="t", topic_id=FIRST_TOPIC),
        partition(FIRST_TOPIC, 0),
    ]
    changes = difference(replayed(HISTORY[:1] + first), replayed(HISTORY[:1] + first + again))
    assert list(changes.topics) == [SECOND_TOPIC, FIRST_TOPIC]
    assert list(changes.partitions) == [(SECOND_TOPIC, 0), (FIRST_TOPIC, 0)]
