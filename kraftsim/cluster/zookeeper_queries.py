"""What scenarios ask of ZooKeeper itself: the state of a migration, and whether its metadata equals
the metadata log.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kraftsim.metadata.rules_image import MetadataImage, difference
from kraftsim.migration.events import ZookeeperCompared
from kraftsim.producer_ids.rules_allocation import BLOCK_SIZE
from kraftsim.world.interface import World
from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.rules_znodes import Znodes, records_of_znodes
from kraftsim.zookeeper.znode_writer import read_all
from protocol.malformed import MalformedMessage
from protocol.metadata.registry import parse_record
from protocol.records.batches import split_batches
from protocol.zookeeper.kafka_znodes import (
    CONTROLLER,
    DELETE_TOPICS,
    MIGRATION,
    TOPICS,
    MigrationZnode,
)
from protocol.zookeeper.op_codes import ZookeeperError

if TYPE_CHECKING:
    from kraftsim.migration.migration import Migration


# --------------------------------------------------------------------------------------------------
# Compares the metadata in ZooKeeper with the metadata log during a migration: each is read on its
# own, as brokers of either mode would
#
# A configuration without values equals a missing one. The block of producer ids in ZooKeeper is the
# last one that was allocated, as it is right after the migration of metadata, or the next one, as
# it is after each allocation since.
# Source: KIP-866.

NO_ID = bytes(16)


def compare(
    znodes: Znodes, migrations: "Sequence[tuple[str, Migration]]"
) -> ZookeeperCompared | None:
    """Return the differences between ZooKeeper and the active controller; None while ZooKeeper is
    not at the offset of the log.
    """
    data, _ = znodes.get(MIGRATION, (None, None))
    if data is None:
        return None
    until = MigrationZnode.parse(data).kraft_metadata_offset
    for name, migration in migrations:
        if migration.mirrored is not None and migration.mirrored[0] == until:
            found = differences(_without_pending(znodes), migration.mirrored[1])
            return ZookeeperCompared(
                controller=name, offset=until, differences=len(found), what=",".join(found)
            )
    return None


def _without_pending(znodes: Znodes) -> Znodes:
    """Return all znodes but those of topics that are about to be deleted."""
    pending = [
        f"{TOPICS}/{path.removeprefix(DELETE_TOPICS + '/')}"
        for path in znodes
        if path.startswith(f"{DELETE_TOPICS}/")
    ]
    return {
        path: znode
        for path, znode in znodes.items()
        if not any(path == each or path.startswith(f"{each}/") for each in pending)
    }


def differences(znodes: Znodes, image: MetadataImage) -> list[str]:
    """Return what differs, sorted.

    Brokers, features and controllers are not compared: ZooKeeper has them elsewhere, or not at all.
    """
    mirror = MetadataImage()
    for piece in records_of_znodes(znodes, lambda: NO_ID):
        for record in piece:
            mirror.load(record)
    return sorted([*_differing(mirror, image), *_differing_access(mirror, image)])


def _differing(mirror: MetadataImage, image: MetadataImage) -> Iterator[str]:
    changes = difference(mirror, image)
    yield from (f"topic {_name(mirror, image, topic_id)}" for topic_id in changes.topics)
    for topic_id, number in changes.partitions:
        before, after = mirror.topic_by_id(topic_id), image.topic_by_id(topic_id)
        if before is None or after is None:
            continue  # reported with the topic
        one, other = before.partitions.get(number), after.partitions.get(number)
        same = (
            one is not None
            and other is not None
            and (one.leader, one.leader_epoch, one.isr, one.replicas)
            == (
                other.leader,
                other.leader_epoch,
                other.isr,
                other.replicas,
            )
        )
        if not same:
            yield f"partition {after.name}-{number}"
    yield from (
        f"configuration {resource_type} {name!r}" for resource_type, name in changes.configs
    )
    mirrored, given = mirror.next_producer_id, image.next_producer_id
    if mirrored != given and (mirrored is None or given is None or mirrored - BLOCK_SIZE != given):
        yield f"producer ids: {mirrored} in ZooKeeper, {given} in the log"


def _differing_access(mirror: MetadataImage, image: MetadataImage) -> Iterator[str]:
    registries: tuple[tuple[str, Callable[[MetadataImage], object]], ...] = (
        (
            "quotas",
            lambda each: [
                (record.entity, record.key, record.value)
                for record in each.registries.quotas.records()
            ],
        ),
        ("credentials", lambda each: each.registries.scram_credentials.records()),
        ("tokens", lambda each: each.registries.delegation_tokens.records()),
    )
    for what, found in registries:
        if found(mirror) != found(image):
            yield what


def _name(mirror: MetadataImage, image: MetadataImage, topic_id: bytes) -> str:
    topic = image.topic_by_id(topic_id) or mirror.topic_by_id(topic_id)
    assert topic is not None, "one of them has it"
    return topic.name


# --------------------------------------------------------------------------------------------------
# Requests of a scenario to ZooKeeper itself: read the migration state, and delete it


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
