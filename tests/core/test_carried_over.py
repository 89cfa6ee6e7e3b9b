"""What counts as lost when the metadata log is compared with what ZooKeeper had before."""

from collections.abc import Sequence
from copy import copy
from typing import TypeVar

import pytest

from kraftsim.cluster.zookeeper_queries import not_carried_over
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_registries import MetadataRecord
from protocol.config_resources import ConfigResourceType
from protocol.metadata.controller import ProducerIdsRecord
from protocol.metadata.security import AccessControlEntryRecord, UserScramCredentialRecord
from protocol.metadata.settings import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
)
from protocol.metadata.topics import PartitionRecord, TopicRecord

TOPIC = TopicRecord(name="t", topic_id=bytes(15) + b"\x01")
OTHER_TOPIC = TopicRecord(name="u", topic_id=bytes(15) + b"\x02")
PARTITION = PartitionRecord(
    partition_id=0, topic_id=TOPIC.topic_id, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=5
)
CONFIG = ConfigRecord(
    resource_type=int(ConfigResourceType.TOPIC), resource_name="t", name="retention.ms", value="9"
)
QUOTA = ClientQuotaRecord(
    entity=[EntityData(entity_type="client-id", entity_name="c")],
    key="producer_byte_rate",
    value=5.0,
)
CREDENTIAL = UserScramCredentialRecord(name="bob", mechanism=1, salt=b"s", iterations=4096)
RULE = AccessControlEntryRecord(id=bytes(15) + b"\x07", resource_name="t", principal="User:a")
IDS = ProducerIdsRecord(broker_id=1, broker_epoch=-1, next_producer_id=3000)
BEFORE: tuple[MetadataRecord, ...] = (
    TOPIC,
    PARTITION,
    CONFIG,
    QUOTA,
    CREDENTIAL,
    RULE,
    IDS,
)


Record = TypeVar("Record")


def other(record: Record, **fields: object) -> Record:
    """A record with other values."""
    found = copy(record)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def image_of(records: Sequence[MetadataRecord]) -> MetadataImage:
    """The metadata of some records."""
    image = MetadataImage()
    for record in records:
        image.load(record)
    return image


def changed(record: MetadataRecord, *others: MetadataRecord) -> MetadataImage:
    """The metadata with other records in place of one."""
    return image_of([*(each for each in BEFORE if each is not record), *others])


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        (image_of(BEFORE), []),
        (image_of((*BEFORE, OTHER_TOPIC, FeatureLevelRecord(name="f", feature_level=1))), []),
        (
            changed(PARTITION, other(PARTITION, isr=[2], leader=2, leader_epoch=6)),
            [],
        ),
        (changed(RULE, other(RULE, id=bytes(15) + b"\x08")), []),
        (changed(IDS, other(IDS, next_producer_id=4000)), []),
        (image_of(BEFORE[2:]), ["topic t"]),
        (
            image_of((other(TOPIC, topic_id=OTHER_TOPIC.topic_id), *BEFORE[2:])),
            ["topic t"],
        ),
        (changed(PARTITION), ["replicas of t-0"]),
        (changed(PARTITION, other(PARTITION, replicas=[1, 3])), ["replicas of t-0"]),
        (
            changed(PARTITION, other(PARTITION, leader_epoch=4)),
            ["leader epoch of t-0: 4 after 5"],
        ),
        (changed(CONFIG), ["configuration 2 't'"]),
        (changed(CONFIG, other(CONFIG, value="8")), ["configuration 2 't'"]),
        (changed(QUOTA), ["quotas"]),
        (changed(CREDENTIAL), ["credentials"]),
        (changed(RULE, other(RULE, principal="User:b")), ["access rules"]),
        (changed(IDS), ["producer ids: None after 3000"]),
        (changed(IDS, other(IDS, next_producer_id=0)), ["producer ids: 0 after 3000"]),
    ],
)
def test_lost_metadata_is_named(after: MetadataImage, lost: list[str]) -> None:
    """More is no loss, and neither are another ISR, another leader, or ACLs with other ids."""
    assert not_carried_over(image_of(BEFORE), after) == lost
