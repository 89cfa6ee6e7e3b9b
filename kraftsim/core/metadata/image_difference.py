"""The difference between two images: the changes that a broker has to apply when it loads a
snapshot.

Records name their changes; a snapshot has the resulting state only, so deletions show by absence.
Source: org.apache.kafka.image.MetadataDelta (finishSnapshot of each delta).
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from kraftsim.core.metadata.image import ImageChanges, MetadataImage
from kraftsim.core.metadata.partition_registration import PartitionRegistration

K = TypeVar("K", bound=Hashable)


def difference(before: MetadataImage, after: MetadataImage) -> ImageChanges:
    """Return the changed keys: first the removed ones, then new and changed ones."""
    return ImageChanges(
        topics=_differing(
            {topic.topic_id: topic.name for topic in before.topics()},
            {topic.topic_id: topic.name for topic in after.topics()},
        ),
        partitions=_differing(_partitions(before), _partitions(after)),
        brokers=_differing(
            {broker.broker_id: broker for broker in before.brokers()},
            {broker.broker_id: broker for broker in after.brokers()},
        ),
        configs=_differing(dict(before.configs()), dict(after.configs())),
        features=before.finalized_features != after.finalized_features,
        registries=any(
            one != other for one, other in zip(_compared(before), _compared(after), strict=True)
        ),
    )


def _differing(before: Mapping[K, object], after: Mapping[K, object]) -> dict[K, None]:
    gone: Iterable[K] = (key for key in before if key not in after)
    changed = (key for key, value in after.items() if key not in before or before[key] != value)
    return dict.fromkeys([*gone, *changed])


def _partitions(image: MetadataImage) -> dict[tuple[bytes, int], PartitionRegistration]:
    return {
        (topic.topic_id, number): partition
        for topic in image.topics()
        for number, partition in topic.partitions.items()
    }


def _compared(image: MetadataImage) -> list[object]:
    held = image.registries
    kinds = (
        held.controllers,
        held.quotas,
        held.scram_credentials,
        held.delegation_tokens,
        held.access_rules,
    )
    return [*(kind.records() for kind in kinds), held.migration_state]
