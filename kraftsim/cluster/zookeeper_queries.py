"""What scenarios ask of ZooKeeper itself: the state of a migration, and whether its metadata equals
the metadata log.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraftsim.events.event import Event
from kraftsim.metadata.rules_image import MetadataImage, difference
from kraftsim.migration.events import MetadataCarriedOver, ZookeeperCompared
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

RULE_FIELDS: Final = (
    "resource_type",
    "resource_name",
    "pattern_type",
    "principal",
    "host",
    "operation",
    "permission_type",
)
"""The fields of AccessControlEntryRecord but its id."""


def compare(
    znodes: Znodes,
    migrations: "Sequence[tuple[str, Migration]]",
    before: MetadataImage | None = None,
) -> list[Event] | None:
    """Return the differences between ZooKeeper and the active controller, and what its log lacks of
    the metadata `before` the migration, if that is given; None while ZooKeeper is not at the offset
    of the log.
    """
    data, _ = znodes.get(MIGRATION, (None, None))
    if data is None:
        return None
    until = MigrationZnode.parse(data).kraft_metadata_offset
    for name, migration in migrations:
        if migration.mirrored is not None and migration.mirrored[0] == until:
            return _compared(name, until, _without_pending(znodes), migration.mirrored[1], before)
    return None


def _compared(
    controller: str,
    offset: int,
    znodes: Znodes,
    image: MetadataImage,
    before: MetadataImage | None,
) -> list[Event]:
    found = differences(znodes, image)
    compared: list[Event] = [
        ZookeeperCompared(
            controller=controller, offset=offset, differences=len(found), what=",".join(found)
        )
    ]
    if before is not None:
        lost = not_carried_over(before, image)
        compared.append(
            MetadataCarriedOver(controller=controller, differences=len(lost), what=",".join(lost))
        )
    return compared


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
    mirror = image_of(znodes)
    return sorted([*_differing(mirror, image), *_differing_access(mirror, image)])


def image_of(znodes: Znodes) -> MetadataImage:
    """Return the metadata in ZooKeeper; its ACLs have no ids of their own."""
    image, ids = MetadataImage(), count()
    for piece in records_of_znodes(znodes, lambda: next(ids).to_bytes(16, "big")):
        for record in piece:
            image.load(record)
    return image


def not_carried_over(before: MetadataImage, after: MetadataImage) -> list[str]:
    """Return what of the metadata before a migration is missing or other after it, sorted: topics
    with their ids and replicas, configurations, quotas, credentials, ACLs; what goes back: leader
    epochs and producer ids. ISRs and leaders may change.
    """
    return sorted([*_lost_topics(before, after), *_lost_access(before, after)])


def _lost_topics(before: MetadataImage, after: MetadataImage) -> Iterator[str]:
    for topic in before.topics():
        left = after.topic(topic.name)
        if left is None or left.topic_id != topic.topic_id:
            yield f"topic {topic.name}"
            continue
        for number, partition in topic.partitions.items():
            found = left.partitions.get(number)
            if found is None or found.replicas != partition.replicas:
                yield f"replicas of {topic.name}-{number}"
            elif found.leader_epoch < partition.leader_epoch:
                yield (
                    f"leader epoch of {topic.name}-{number}: {found.leader_epoch} after "
                    f"{partition.leader_epoch}"
                )
    for (resource_type, name), values in before.configs():
        if after.configs_of(resource_type, name) != values:
            yield f"configuration {resource_type} {name!r}"
    former, given = before.next_producer_id, after.next_producer_id
    if former is not None and (given is None or given < former):
        yield f"producer ids: {given} after {former}"


def _lost_access(before: MetadataImage, after: MetadataImage) -> Iterator[str]:
    yield from _differing_access(before, after)
    if _rules_of(before) != _rules_of(after):
        yield "access rules"


def _rules_of(image: MetadataImage) -> list[str]:
    """Return the ACLs without their ids, which ZooKeeper does not have."""
    return sorted(
        repr([getattr(record, name) for name in RULE_FIELDS])
        for record in image.registries.access_rules.records()
    )


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


async def metadata_in(world: World, servers: Sequence[tuple[str, int]]) -> MetadataImage | None:
    """Return the metadata in ZooKeeper; None if it does not answer."""
    client = ZookeeperClient(world, servers)
    client.start()
    try:
        return image_of(await read_all(client))
    except ZookeeperRefused:
        return None
    finally:
        await client.close()


async def compared_from_outside(
    world: World,
    servers: Sequence[tuple[str, int]],
    logs: Sequence[Path],
    before: MetadataImage | None = None,
) -> list[Event] | None:
    """Return the same as `compare`, with a metadata log on disk; None if ZooKeeper changed while it
    was read.
    """
    client = ZookeeperClient(world, servers)
    client.start()
    try:
        data, stat = await client.get(MIGRATION)
        znodes = await read_all(client)
        _, later = await client.get(MIGRATION)
    except ZookeeperRefused:
        return None
    finally:
        await client.close()
    until = MigrationZnode.parse(data or b"").kraft_metadata_offset
    if stat.version != later.version or until <= 0:
        return None
    for log in logs:
        image = _image_until(log, until)
        if image is not None:
            return _compared(log.parent.parent.name, until, znodes, image, before)
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
