"""Compares the metadata in ZooKeeper with the metadata log during a migration: each is read on its
own, as brokers of either mode would.

A configuration without values equals a missing one. The block of producer ids in ZooKeeper is the
last one that was allocated, as it is right after the migration of metadata, or the next one, as it
is after each allocation since.
Source: KIP-866.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kraftsim.metadata.rules_image import MetadataImage, difference
from kraftsim.migration.events import ZookeeperCompared
from kraftsim.producer_ids.rules_blocks import BLOCK_SIZE
from kraftsim.zookeeper.rules_znodes import Znodes, records_of_znodes
from protocol.zookeeper.kafka_znodes import DELETE_TOPICS, MIGRATION, TOPICS, MigrationZnode

if TYPE_CHECKING:
    from kraftsim.migration.migration import Migration

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
