"""A broker's metadata image: the state of the committed metadata log, and the changes since they
were last taken.

Records of a metadata transaction become visible at its end.
Source: org.apache.kafka.image.MetadataImage, MetadataBatchLoader.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftsim.core.metadata.broker_registration import (
    BrokerRegistration,
    as_registration_change,
    registration_of,
)
from kraftsim.core.metadata.config_control import NO_CONFIGS, changed_configs
from kraftsim.core.metadata.metadata_level import FEATURE, MINIMUM_LEVEL, MetadataLevel
from kraftsim.core.metadata.partition_registration import (
    NO_ELIGIBLE_LEADERS,
    PartitionRegistration,
    partition_of,
)
from kraftsim.core.metadata.record_kinds import MetadataRecord
from kraftsim.core.metadata.registries import Registries
from protocol.metadata.m00_register_broker import RegisterBrokerRecord
from protocol.metadata.m01_unregister_broker import UnregisterBrokerRecord
from protocol.metadata.m02_topic import TopicRecord
from protocol.metadata.m03_partition import PartitionRecord
from protocol.metadata.m04_config import TOPIC_RESOURCE, ConfigRecord
from protocol.metadata.m05_partition_change import PartitionChangeRecord
from protocol.metadata.m07_fence_broker import FenceBrokerRecord
from protocol.metadata.m08_unfence_broker import UnfenceBrokerRecord
from protocol.metadata.m09_remove_topic import RemoveTopicRecord
from protocol.metadata.m12_feature_level import FeatureLevelRecord
from protocol.metadata.m15_producer_ids import ProducerIdsRecord
from protocol.metadata.m17_broker_registration_change import BrokerRegistrationChangeRecord
from protocol.metadata.m20_no_op import NoOpRecord
from protocol.metadata.m23_begin_transaction import BeginTransactionRecord
from protocol.metadata.m24_end_transaction import EndTransactionRecord
from protocol.metadata.m25_abort_transaction import AbortTransactionRecord
from protocol.metadata.m28_clear_elr import ClearElrRecord
from protocol.schema import Message

NO_OFFSET: Final = -1


@dataclass(slots=True)
class TopicImage:
    """A topic; its partitions are numbered from 0."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionRegistration] = field(default_factory=dict)


@dataclass(slots=True)
class ImageChanges:
    """The keys that the log changed, in order of their first change; the values are in the
    image.
    """

    topics: dict[bytes, None] = field(default_factory=dict)
    partitions: dict[tuple[bytes, int], None] = field(default_factory=dict)
    brokers: dict[int, None] = field(default_factory=dict)
    configs: dict[tuple[int, str], None] = field(default_factory=dict)
    features: bool = False
    registries: bool = False
    """Whether controllers, quotas, credentials, tokens, ACLs or the migration state changed."""

    def __bool__(self) -> bool:
        return bool(
            self.topics
            or self.partitions
            or self.brokers
            or self.configs
            or self.features
            or self.registries
        )


class MetadataImage:
    """Receives committed records only, so nothing is ever reverted."""

    remembers_zookeeper = True
    """Whether a snapshot has the migration state."""

    def __init__(self) -> None:
        self.highest_offset = NO_OFFSET
        """The last offset in the image; control records count (`skip`)."""
        self.next_producer_id: int | None = None
        self.before_applying: Callable[[MetadataRecord], None] | None = None
        """Called with each record before it becomes visible."""
        self.registries = Registries(dict)
        self._features: dict[str, int] = {}
        self._brokers: dict[int, BrokerRegistration] = {}
        self._topics: dict[bytes, TopicImage] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._configs: dict[tuple[int, str], Mapping[str, str]] = {}
        self._changes = ImageChanges()
        self._transaction: list[MetadataRecord] | None = None
        """The records of the open transaction."""

    @property
    def metadata_level(self) -> MetadataLevel:
        """The metadata.version of the cluster; the lowest until the log has one."""
        return MetadataLevel(self._features.get(FEATURE, MINIMUM_LEVEL))

    @property
    def finalized_features(self) -> Mapping[str, int]:
        """feature -> level, sorted by name."""
        return dict(sorted(self._features.items()))

    def level_of(self, feature: str) -> int:
        """Return the finalized level of a feature; 0 if it is not finalized."""
        return self._features.get(feature, 0)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """Return a registration, fenced or not, or None."""
        return self._brokers.get(broker_id)

    def brokers(self) -> Iterator[BrokerRegistration]:
        """Yield every registration, fenced or not, by broker id."""
        return (self._brokers[broker_id] for broker_id in sorted(self._brokers))

    def alive_brokers(self) -> Iterator[BrokerRegistration]:
        """Yield the unfenced brokers, which Metadata responses have, by broker id."""
        return (broker for broker in self.brokers() if not broker.fenced)

    def topic(self, name: str) -> TopicImage | None:
        """Return a topic by its name, or None."""
        topic_id = self._topic_ids.get(name)
        return None if topic_id is None else self._topics[topic_id]

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """Return a topic by its id, or None."""
        return self._topics.get(topic_id)

    def topics(self) -> Iterator[TopicImage]:
        """Yield every topic, by name."""
        return (self._topics[self._topic_ids[name]] for name in sorted(self._topic_ids))

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        """Return a partition, or None."""
        found = self.topic(topic)
        return None if found is None else found.partitions.get(partition)

    def configs_of(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        """Return the values set on a resource itself; read-only."""
        return self._configs.get((resource_type, resource_name), NO_CONFIGS)

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """Return the values set on a topic itself; read-only."""
        return self.configs_of(TOPIC_RESOURCE, topic)

    def configs(self) -> Iterator[tuple[tuple[int, str], Mapping[str, str]]]:
        """Yield ((resource type, resource name), its values), by resource; resources without any
        are left out.
        """
        return (
            (resource, self._configs[resource])
            for resource in sorted(self._configs)
            if self._configs[resource]
        )

    def name_topic(self, name: str, topic_id: bytes) -> None:
        """Set the id of an existing topic.

        Topics created in ZooKeeper mode may have none until a newer controller assigns one.
        """
        topic = self._topics.pop(self._topic_ids[name])
        topic.topic_id = topic_id
        self._topics[topic_id] = topic
        self._topic_ids[name] = topic_id
        self._changes.topics[topic_id] = None

    @property
    def is_in_transaction(self) -> bool:
        """Whether a metadata transaction is open."""
        return self._transaction is not None

    @property
    def has_changes(self) -> bool:
        """Whether there were changes since `take_changes`: mostly not, as an idle controller writes
        NoOpRecords.
        """
        return bool(self._changes)

    def take_changes(self) -> ImageChanges:
        """Return and reset the changes since the last call."""
        changes, self._changes = self._changes, ImageChanges()
        return changes

    def skip(self, offset: int) -> None:
        """Advance the offset past a control record."""
        self._reach(offset)

    def load(self, record: Message) -> None:
        """Apply a record of a snapshot, which has no offset; afterwards `skip` to the snapshot's
        last contained offset.
        """
        self._apply(record)

    def replay(self, record: Message, offset: int) -> None:
        """Apply the committed record at an offset."""
        match record:
            case BeginTransactionRecord():
                assert self._transaction is None, "transactions do not nest"
                self._transaction = []
            case EndTransactionRecord():
                assert self._transaction is not None, "the end of a transaction without its begin"
                held, self._transaction = self._transaction, None
                for held_record in held:
                    self._apply(held_record)
            case AbortTransactionRecord():
                assert self._transaction is not None, "the abort of a transaction without its begin"
                self._transaction = None
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._apply(record)
        self._reach(offset)

    def _reach(self, offset: int) -> None:
        assert offset > self.highest_offset, (
            f"offset {offset} is replayed after {self.highest_offset}"
        )
        self.highest_offset = offset

    def _apply(self, record: MetadataRecord) -> None:
        if self.before_applying is not None:
            self.before_applying(record)
        match record:
            case RegisterBrokerRecord():
                self._brokers[record.broker_id] = registration_of(record)
                self._changes.brokers[record.broker_id] = None
            case UnregisterBrokerRecord():
                self._brokers.pop(record.broker_id, None)
                self._changes.brokers[record.broker_id] = None
            case BrokerRegistrationChangeRecord():
                self._change_broker(record)
            case FenceBrokerRecord() | UnfenceBrokerRecord():
                self._change_broker(as_registration_change(record))
            case TopicRecord():
                self._topics[record.topic_id] = TopicImage(record.name, record.topic_id)
                self._topic_ids[record.name] = record.topic_id
                self._changes.topics[record.topic_id] = None
            case PartitionRecord():
                self._topics[record.topic_id].partitions[record.partition_id] = partition_of(record)
                self._changes.partitions[record.topic_id, record.partition_id] = None
            case PartitionChangeRecord():
                partitions = self._topics[record.topic_id].partitions
                partitions[record.partition_id] = partitions[record.partition_id].changed_by(record)
                self._changes.partitions[record.topic_id, record.partition_id] = None
            case RemoveTopicRecord():
                self._remove_topic(record.topic_id)
            case ConfigRecord():
                resource = (record.resource_type, record.resource_name)
                self._configs[resource] = changed_configs(self.configs_of(*resource), record)
                self._changes.configs[resource] = None
            case FeatureLevelRecord():
                self._apply_feature(record)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case NoOpRecord():
                pass
            case ClearElrRecord():
                self._clear_eligible_leaders(record.topic_name)
            case BeginTransactionRecord() | EndTransactionRecord() | AbortTransactionRecord():
                raise AssertionError("transactions are handled in replay")
            case _:
                self.registries.replay(record)
                self._changes.registries = True

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        self._brokers[record.broker_id] = self._brokers[record.broker_id].changed_by(record)
        self._changes.brokers[record.broker_id] = None

    def _clear_eligible_leaders(self, topic_name: str) -> None:
        """Clear the eligible leader replicas of one topic or, without a name, of all."""
        named = self.topic(topic_name)
        for topic in self.topics() if not topic_name else [named] if named is not None else []:
            for number, partition in topic.partitions.items():
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    topic.partitions[number] = partition.changed_by(NO_ELIGIBLE_LEADERS)
                    self._changes.partitions[topic.topic_id, number] = None

    def _remove_topic(self, topic_id: bytes) -> None:
        """Remove a topic with its partitions and configurations.

        Topic and partitions count as changed.
        """
        removed = self._topics.pop(topic_id)
        del self._topic_ids[removed.name]
        self._changes.topics[topic_id] = None
        self._changes.partitions.update(
            ((topic_id, partition), None) for partition in removed.partitions
        )
        self._configs.pop((TOPIC_RESOURCE, removed.name), None)

    def _apply_feature(self, record: FeatureLevelRecord) -> None:
        self._changes.features = True
        if record.feature_level:
            self._features[record.name] = record.feature_level
        else:
            self._features.pop(record.name, None)


class ImageWithoutZooKeeper(MetadataImage):
    """The image of 4.0 and later, whose snapshots do not have the migration state."""

    remembers_zookeeper = False
