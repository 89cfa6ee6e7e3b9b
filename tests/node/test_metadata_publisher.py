"""A broker that starts publishes its image once it has reached the high watermark, and then with
every change.

Source: org.apache.kafka.image.loader.MetadataLoader.stillNeedToCatchUp.
"""

import asyncio
from collections.abc import Iterable

from kraftsim.metadata.events import MetadataApplied
from kraftsim.metadata.metadata_publisher import MetadataPublisher
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage
from kraftsim.raft.rules_log import SnapshotId
from protocol.metadata.registry import build_record
from protocol.metadata.topics import TopicRecord
from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.record import Record
from tests.node.conftest import MakeWorld, WatchedWorld


class Replica:
    """The publisher of a replica whose high watermark is set here, and what it has published."""

    def __init__(self, world: WatchedWorld, high_watermark: int | None) -> None:
        self.high_watermark = high_watermark
        self.published: list[set[str]] = []
        self.world = world
        self.publisher = MetadataPublisher(
            world,
            MetadataImage,
            self._publish,
            lambda leader: None,
            high_watermark=lambda: self.high_watermark,
        )

    async def _publish(self, image: MetadataImage, changes: ImageChanges) -> None:
        found = {topic.name for each in changes.topics if (topic := image.topic_by_id(each))}
        self.published.append(found)

    def commit(self, offset: int, *topics: str) -> None:
        """Pass a committed batch with one record for each topic."""
        asyncio.run(self.publisher.on_committed([batch(topics, offset)]))

    def load(self, end_offset: int, *topics: str) -> None:
        """Pass a snapshot."""
        snapshot = SnapshotId(end_offset, 1)
        asyncio.run(self.publisher.on_snapshot(snapshot, iter([batch(topics)])))

    @property
    def applied(self) -> list[int]:
        """The offsets up to which it said that the image is in effect."""
        return [event.next_offset for event in self.world.emitted_of(MetadataApplied)]


def batch(topics: Iterable[str], offset: int = 0) -> RecordBatch:
    """Build a batch of the metadata log."""
    records = [
        Record(value=build_record(TopicRecord(name=each, topic_id=topic_id(each)), 0))
        for each in topics
    ]
    (built,) = split_batches(build_batch(records, base_offset=offset))
    return built


def topic_id(name: str) -> bytes:
    """Return the id of a topic."""
    return name.encode().rjust(16, b"-")


def test_nothing_is_published_before_the_high_watermark(make_world: MakeWorld) -> None:
    """The first delta has everything up to there, and each later one what is new."""
    replica = Replica(make_world(), high_watermark=4)
    replica.commit(0, "a", "b")
    assert (replica.published, replica.applied) == ([], [])
    assert replica.publisher.published_offset == -1, "which heartbeats report"
    replica.commit(2, "c", "d")
    replica.high_watermark = 9
    replica.commit(4, "e")
    assert replica.published == [{"a", "b", "c", "d"}, {"e"}]
    assert replica.applied == [4, 5]


def test_nothing_is_published_while_the_high_watermark_is_unknown(make_world: MakeWorld) -> None:
    replica = Replica(make_world(), high_watermark=None)
    replica.load(3, "a")
    assert replica.published == []
    replica.high_watermark = 4
    replica.commit(3, "b")
    assert replica.published == [{"a", "b"}], "the snapshot and what follows"


def test_a_snapshot_that_replaces_what_was_not_published(make_world: MakeWorld) -> None:
    """The delta is that from nothing, not from an image that was not published."""
    replica = Replica(make_world(), high_watermark=5)
    replica.commit(0, "a", "gone")
    replica.load(5, "a", "b")
    assert replica.published == [{"a", "b"}]
    replica.load(9, "b", "c")
    assert replica.published[1:] == [{"c"}], "from then on what differs, and is there"
