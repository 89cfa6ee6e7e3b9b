"""The metadata image as snapshot records: the contents between header and footer.

Replaying them gives the same image without its history. Of producer id blocks only the end of the
last one is kept, with broker id -1.
Source: org.apache.kafka.image.MetadataImage.write, KIP-630.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from kraftsim.core.metadata.broker_registration import register_broker_record
from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.metadata.metadata_level import FEATURE
from kraftsim.core.metadata.partition_registration import partition_record
from protocol.metadata.m02_topic import TopicRecord
from protocol.metadata.m04_config import ConfigRecord
from protocol.metadata.m12_feature_level import FeatureLevelRecord
from protocol.metadata.m15_producer_ids import ProducerIdsRecord
from protocol.schema import Message

UNKNOWN_ID: Final = -1


def snapshot_records(image: MetadataImage) -> Iterator[Message]:
    """Yield records in Kafka's order.

    The image must not change meanwhile, and must not be in a metadata transaction.
    """
    assert not image.is_in_transaction, "no snapshot in a metadata transaction"
    return chain(
        _features(image), _cluster(image), _topics(image), _configs(image), _registry_records(image)
    )


def _features(image: MetadataImage) -> Iterator[Message]:
    levels = dict(image.finalized_features)
    if FEATURE in levels:
        yield FeatureLevelRecord(name=FEATURE, feature_level=levels.pop(FEATURE))
    for name, level in levels.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    if image.metadata_level.has_migration_state and image.remembers_zookeeper:
        yield image.registries.migration_state


def _cluster(image: MetadataImage) -> Iterator[Message]:
    for broker in image.brokers():
        yield register_broker_record(broker, image.metadata_level)
    if image.metadata_level.has_controller_registrations:
        yield from image.registries.controllers.records()


def _topics(image: MetadataImage) -> Iterator[Message]:
    for topic in image.topics():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for number in sorted(topic.partitions):
            yield partition_record(
                topic.topic_id, number, topic.partitions[number], image.metadata_level
            )


def _configs(image: MetadataImage) -> Iterator[Message]:
    for (resource_type, resource_name), configs in image.configs():
        for name, value in sorted(configs.items()):
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )


def _registry_records(image: MetadataImage) -> Iterator[Message]:
    registries = image.registries
    yield from registries.quotas.records()
    if image.next_producer_id is not None:
        yield ProducerIdsRecord(
            broker_id=UNKNOWN_ID, broker_epoch=UNKNOWN_ID, next_producer_id=image.next_producer_id
        )
    yield from registries.access_rules.records()
    yield from registries.scram_credentials.records()
    yield from registries.delegation_tokens.records()
