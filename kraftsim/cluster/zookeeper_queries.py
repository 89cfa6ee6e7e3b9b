"""Requests of a scenario to ZooKeeper itself: read the migration state, and delete it."""

from collections.abc import Sequence
from pathlib import Path

from kraftsim.cluster.zookeeper_mirror import differences
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.migration.events import ZookeeperCompared
from kraftsim.world.interface import World
from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.znode_reader import read_all
from protocol.malformed import MalformedMessage
from protocol.metadata.registry import parse_record
from protocol.records.batches import split_batches
from protocol.zookeeper.kafka_znodes import CONTROLLER, MIGRATION, MigrationZnode
from protocol.zookeeper.op_codes import ZookeeperError


async def migrated_until(world: World, servers: Sequence[tuple[str, int]]) -> int:
    """Return the offset in /migration; -1 before the migration of metadata, or if ZooKeeper does
    not answer.
    """
    client = ZookeeperClient(world, servers)
    client.start()
    try:
        data, _ = await client.get(MIGRATION)
    except ZookeeperRefused:
        return -1
    finally:
        await client.close()
    return MigrationZnode.parse(data or b"").kraft_metadata_offset


async def compared_from_outside(
    world: World, servers: Sequence[tuple[str, int]], logs: Sequence[Path]
) -> ZookeeperCompared | None:
    """Return the differences between ZooKeeper and a metadata log on disk; None if ZooKeeper
    changed while it was read.
    """
    client = ZookeeperClient(world, servers)
    client.start()
    try:
        data, before = await client.get(MIGRATION)
        znodes = await read_all(client)
        _, after = await client.get(MIGRATION)
    except ZookeeperRefused:
        return None
    finally:
        await client.close()
    until = MigrationZnode.parse(data or b"").kraft_metadata_offset
    if before.version != after.version or until <= 0:
        return None
    for log in logs:
        image = _image_until(log, until)
        if image is not None:
            found = differences(znodes, image)
            return ZookeeperCompared(
                controller=log.parent.parent.name,
                offset=until,
                differences=len(found),
                what=",".join(found),
            )
    return None


def _image_until(log: Path, last_offset: int) -> MetadataImage | None:
    """Return the metadata of a log up to an offset (inclusive); None if it ends before."""
    image = MetadataImage()
    try:
        for batch in split_batches(memoryview(log.read_bytes())):
            if batch.is_control:
                image.skip(batch.last_offset)
                continue
            for record in batch.records():
                if record.offset <= last_offset:
                    image.replay(parse_record(record.value or b""), record.offset)
            if batch.last_offset >= last_offset:
                return image
    except (OSError, MalformedMessage):
        return None
    return None


async def take_back(world: World, servers: Sequence[tuple[str, int]]) -> None:
    """Delete /controller, so that a broker can be elected, and /migration, so that a later attempt
    migrates again.

    Source: KIP-866, KAFKA-15945.
    """
    client = ZookeeperClient(world, servers)
    client.start()
    try:
        for path in (CONTROLLER, MIGRATION):
            try:
                await client.delete(path)
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.NO_NODE:
                    raise
    finally:
        await client.close()
