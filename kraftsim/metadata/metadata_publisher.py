"""Applies the committed metadata log to the broker: builds the image, and publishes it with its
delta, batch by batch.

A broker that starts publishes nothing before the image has reached the high watermark that it knows
of: else it would open partitions, and lead them, by metadata of long ago, such as a topic without
its configurations. A snapshot builds a new image; its difference to the previous one is published,
including what was removed.
Source: org.apache.kafka.image.loader.MetadataLoader, kafka.server.metadata.BrokerMetadataPublisher.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from kraftsim.metadata.events import MetadataApplied
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage, difference
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.rules_voters import VoterNode
from kraftsim.world.interface import World, YieldPoint
from protocol.metadata.registry import parse_record
from protocol.records.batches import RecordBatch
from protocol.schema import Message

NOTHING_PUBLISHED = -1
Publish = Callable[[MetadataImage, ImageChanges], Awaitable[None]]
OnBatch = Callable[[MetadataImage], None]
OnLeader = Callable[[VoterNode | None], None]
HighWatermark = Callable[[], int | None]
"""That of the replica of the metadata log; None while it is unknown."""


class MetadataPublisher:
    """The listener of the broker's metadata log replica. `publish` is awaited with each changed
    image, `on_leader` is called when the leader changes, `on_batch` after each batch of committed
    records. With `high_watermark` nothing is published before the image has reached it.
    `takes_effect`: the broker goes by the image; one that migrates only tracks its offset
    (KafkaServer, OffsetTrackingListener), and has its metadata from ZooKeeper.
    """

    def __init__(
        self,
        world: World,
        new_image: Callable[[], MetadataImage],
        publish: Publish,
        on_leader: OnLeader,
        on_batch: OnBatch = lambda image: None,
        *,
        high_watermark: HighWatermark | None = None,
        takes_effect: bool = True,
    ) -> None:
        self._world = world
        self._new_image = new_image
        self._publish = publish
        self._on_leader = on_leader
        self._on_batch = on_batch
        self._takes_effect = takes_effect
        self._high_watermark = high_watermark
        self._is_catching_up = high_watermark is not None
        self._holds_snapshot = False
        """Whether a snapshot was loaded and not published."""
        self.image = new_image()
        self.published_offset = NOTHING_PUBLISHED
        """The last offset that has been published to the broker."""

    async def on_committed(self, batches: Sequence[RecordBatch]) -> None:
        """Apply committed batches to the image, then publish it."""
        image = self.image
        for batch in batches:
            if batch.is_control:
                image.skip(batch.last_offset)
                continue
            for record, offset in await parsed_records(batch):
                image.replay(record, offset)
            self._on_batch(image)
        if self._is_behind():
            return
        if image.has_changes or self._holds_snapshot:
            await self._world.yield_point(YieldPoint.METADATA_IMAGE_UPDATED)
            await self._publish(image, self._take_changes())
        self._has_published()

    async def on_snapshot(self, snapshot: SnapshotId, batches: Iterator[RecordBatch]) -> None:
        """Publish the difference to a snapshot.

        Handlers see the previous image until the new one is complete.
        """
        image = self._new_image()
        for batch in batches:
            if not batch.is_control:
                for record in batch.records():
                    assert record.value is not None, "a metadata record has a value"
                    image.load(parse_record(record.value))
                await asyncio.sleep(0)
        image.skip(snapshot.end_offset - 1)
        image.take_changes()
        changes = difference(self._new_image() if self._is_catching_up else self.image, image)
        self.image = image
        if self._is_behind():
            self._holds_snapshot = True
            return
        if changes:
            await self._publish(image, changes)
        self._has_published()

    def _is_behind(self) -> bool:
        """Return whether the image has yet to reach the high watermark for the first time.

        Source: MetadataLoader.stillNeedToCatchUp.
        """
        if self._is_catching_up and self._high_watermark is not None:
            high_watermark = self._high_watermark()
            next_offset = self.image.highest_offset + 1
            self._is_catching_up = high_watermark is None or next_offset < high_watermark
        return self._is_catching_up

    def _take_changes(self) -> ImageChanges:
        """Return what was not published, with what a held snapshot has brought."""
        changes = self.image.take_changes()
        if self._holds_snapshot:
            self._holds_snapshot = False
            return difference(self._new_image(), self.image)
        return changes

    def on_leader(self, leader_epoch: int, leader: VoterNode | None) -> None:
        """The leader of the metadata quorum has changed; None if it is unknown."""
        self._on_leader(leader)

    def _has_published(self) -> None:
        self.published_offset = self.image.highest_offset
        if self._takes_effect:
            self._world.emit(MetadataApplied(next_offset=self.published_offset + 1))


# --------------------------------------------------------------------------------------------------
# Parses the records of committed batches, a few per event-loop turn: a batch of the metadata log
# may contain 10,000
#
# The parsed records of a batch are applied in one turn, so that readers never see a part of an
# atomic batch.
# Source: org.apache.kafka.image.loader.MetadataLoader, QuorumController.MAX_RECORDS_PER_USER_OP.

RECORDS_PER_TURN: Final = 500
"""These take 3 to 5 ms; a smaller batch is parsed in one turn."""


async def parsed_records(batch: RecordBatch) -> list[tuple[Message, int]]:
    """Return (record, offset) of each record."""
    parsed: list[tuple[Message, int]] = []
    for record in batch.records():
        if parsed and not len(parsed) % RECORDS_PER_TURN:
            await asyncio.sleep(0)
        assert record.value is not None, "a metadata record has a value"
        parsed.append((parse_record(record.value), record.offset))
    return parsed
