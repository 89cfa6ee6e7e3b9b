"""A broker's metadata image: the state of the committed metadata log, the changes since they were
last taken, and its form as a snapshot.

Records of a metadata transaction become visible at its end.
Source: org.apache.kafka.image.{MetadataImage, MetadataDelta, loader.MetadataBatchLoader}, KIP-630.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Final, TypeVar

from kraftsim.metadata.rules_configs import NO_CONFIGS, changed_configs
from kraftsim.metadata.rules_registrations import (
    NO_ELIGIBLE_LEADERS,
    BrokerRegistration,
    PartitionRegistration,
    as_registration_change,
    partition_of,
    partition_record,
    register_broker_record,
    registration_of,
)
from kraftsim.metadata.rules_registries import MetadataRecord, Registries
from kraftsim.metadata.rules_versions import FEATURE, MINIMUM_LEVEL, MetadataLevel
from kraftsim.raft.events import FinalMetadata, FinalMetadataLog
from protocol.malformed import MalformedMessage
from protocol.metadata.controller import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from protocol.metadata.registrations import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from protocol.metadata.registry import build_record, parse_record
from protocol.metadata.settings import (
    NONE,
    POST_MIGRATION,
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    ZkMigrationStateRecord,
)
from protocol.metadata.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.records.batches import RecordBatch, split_batches
from protocol.records.control_records import SnapshotHeaderRecord, parse_control_record
from protocol.schema import Message
from protocol.storage.file_names import parse_metadata_snapshot_name

NO_OFFSET: Final = -1


# --------------------------------------------------------------------------------------------------
# The image


@dataclass(slots=True)
class TopicImage:
    """A topic; its partitions are numbered from 0, and only `put` changes them."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionRegistration] = field(default_factory=dict)
    change_count: int = field(default=0, compare=False)
    """How often a partition was added or changed."""

    def put(self, number: int, partition: PartitionRegistration) -> None:
        """Add or change a partition."""
        self.partitions[number] = partition
        self.change_count += 1


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
                self._topics[record.topic_id].put(record.partition_id, partition_of(record))
                self._changes.partitions[record.topic_id, record.partition_id] = None
            case PartitionChangeRecord():
                topic = self._topics[record.topic_id]
                number = record.partition_id
                topic.put(number, topic.partitions[number].changed_by(record))
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
                    topic.put(number, partition.changed_by(NO_ELIGIBLE_LEADERS))
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


# --------------------------------------------------------------------------------------------------
# The difference between two images: what a broker has to apply when it loads a snapshot
#
# Records name their changes; a snapshot has the resulting state only, so deletions show by absence.
# Source: MetadataDelta (finishSnapshot of each delta).

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


# --------------------------------------------------------------------------------------------------
# The image as snapshot records: the contents between header and footer
#
# Replaying them gives the same image without its history. Of producer id blocks only the end of the
# last one is kept, with broker id -1.
# Source: MetadataImage.write.

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


# --------------------------------------------------------------------------------------------------
# The controllers' disks at the end of a run, as input of invariants: metadata logs and snapshots
#
# Independent of the nodes' memory and code: records are applied to the unmodified image, whatever
# bugs the nodes had.

METADATA_PATH: Final = re.compile(r"(?P<node>[^/]+)/(?:.*/)?__cluster_metadata-0/(?P<name>[^/]+)")
LOG_NAME: Final = re.compile(r"\d{20}\.log")
BEGINNING: Final = 0
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
NEVER: Final = 1 << 63


@dataclass(slots=True)
class _Disk:
    """The metadata log and the snapshots of one node."""

    segments: list[tuple[str, bytes]] = field(default_factory=list)
    snapshots: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """End offset -> epoch and bytes."""

    def batches(self) -> list[RecordBatch]:
        """Return the batches of the log up to the first torn or corrupt one."""
        found: list[RecordBatch] = []
        for _, data in sorted(self.segments):
            for batch in _intact(data):
                if found and batch.base_offset != found[-1].next_offset:
                    return found
                found.append(batch)
        return found


def final_metadata_events(
    files: Mapping[str, bytes], *, with_timestamps: bool = True
) -> Iterator[FinalMetadata | FinalMetadataLog]:
    """Yield the end of each log, and the image at its end and at each snapshot's end: from the log,
    and from each snapshot plus the log after it.

    `files` maps 'NODE/__cluster_metadata-0/FILE' to bytes; other paths are ignored. Snapshots of
    4.0 and later do not have the state of a migration that is over: from the first such snapshot on
    no image includes it. Without `with_timestamps`, an image does not include the time of its last
    record: the header of a snapshot of Apache Kafka may have the time of the batch after it.
    """
    disks = _disks(files)
    parse = cache(parse_record)  # the logs of all nodes have the same records
    places = {
        end_offset for disk in disks.values() for end_offset in disk.snapshots
    }  # for membership only, never iterated
    forgets_from = min(
        (
            end_offset
            for disk in disks.values()
            for end_offset, (_, snapshot) in disk.snapshots.items()
            if not _has_migration_state(snapshot)
        ),
        default=NEVER,
    )
    for node, disk in disks.items():
        batches = disk.batches()
        if disk.segments:
            first_offset = (
                batches[0].base_offset
                if batches
                else int(min(disk.segments)[0].removesuffix(".log"))
            )
            end_offset = max(
                batches[-1].next_offset if batches else first_offset, *disk.snapshots, BEGINNING
            )
            yield FinalMetadataLog(
                controller=node, first_offset=first_offset, end_offset=end_offset
            )
        for from_offset in (BEGINNING, *sorted(disk.snapshots)):
            snapshot = disk.snapshots.get(from_offset)
            if snapshot is not None or (batches and batches[0].base_offset == BEGINNING):
                yield from _said(
                    node,
                    from_offset,
                    snapshot,
                    batches,
                    places,
                    forgets_from=forgets_from,
                    with_timestamps=with_timestamps,
                    parse=parse,
                )


def last_metadata_log(files: Mapping[str, bytes]) -> Iterator[tuple[int, Message]]:
    """Yield (offset, record) of the longest log among those of the controllers, without control
    records; records of a snapshot before its first batch come first, at NO_OFFSET.

    `files` as for `final_metadata_events`. Raises MalformedMessage for a record that is none.
    """
    logs = [(disk, disk.batches()) for disk in _disks(files).values()]
    disk, batches = max(
        logs, key=lambda log: log[1][-1].next_offset if log[1] else NO_OFFSET, default=(None, [])
    )
    if disk is None or not batches:
        return
    first_offset = batches[0].base_offset
    if first_offset > BEGINNING:
        starts = [offset for offset in disk.snapshots if offset >= first_offset]
        if not starts:
            return
        first_offset = min(starts)
        for batch in _intact(disk.snapshots[first_offset][1]):
            for _, record in _entries(batch):
                if record is not None:
                    yield NO_OFFSET, parse_record(record)
    for batch in batches:
        for offset, record in _entries(batch):
            if record is not None and offset >= first_offset:
                yield offset, parse_record(record)


def _disks(files: Mapping[str, bytes]) -> dict[str, _Disk]:
    disks: dict[str, _Disk] = {}
    for path in sorted(files):
        found = METADATA_PATH.fullmatch(path)
        if found is None:
            continue
        disk = disks.setdefault(found["node"], _Disk())
        snapshot = parse_metadata_snapshot_name(found["name"])
        if LOG_NAME.fullmatch(found["name"]):
            disk.segments.append((found["name"], files[path]))
        elif snapshot is not None and snapshot.end_offset > BEGINNING:
            disk.snapshots[snapshot.end_offset] = (snapshot.leader_epoch, files[path])
    return disks


def _said(
    node: str,
    from_offset: int,
    snapshot: tuple[int, bytes] | None,
    batches: Sequence[RecordBatch],
    places: Collection[int],
    *,
    forgets_from: int,
    with_timestamps: bool,
    parse: Callable[[bytes], Message],
) -> Iterator[FinalMetadata]:
    image, epoch, next_offset, timestamp = MetadataImage(), NO_EPOCH, from_offset, NO_TIMESTAMP

    def event() -> FinalMetadata:
        is_over = image.registries.migration_state.zk_migration_state in (NONE, POST_MIGRATION)
        digest = _digest(image, timestamp, forgets=next_offset >= forgets_from and is_over)
        return FinalMetadata(
            controller=node,
            from_offset=from_offset,
            end_offset=next_offset,
            epoch=epoch,
            digest=digest,
        )

    if snapshot is not None:
        epoch = snapshot[0]
        timestamp = _header_timestamp(snapshot[1]) if with_timestamps else NO_TIMESTAMP
        for batch in _intact(snapshot[1]):
            for _, record in _entries(batch):
                if record is not None:
                    image.load(parse(record))
        image.skip(from_offset - 1)
        yield event()
    reported_offset = next_offset
    for batch in batches:
        if batch.base_offset > next_offset:
            return  # the log starts after the snapshot
        for offset, record in _entries(batch):
            if offset < next_offset:
                continue
            if record is None:
                image.skip(offset)
            else:
                image.replay(parse(record), offset)
            next_offset, epoch, timestamp = (
                offset + 1,
                batch.partition_leader_epoch,
                batch.max_timestamp if with_timestamps else NO_TIMESTAMP,
            )
            if next_offset in places and not image.is_in_transaction:
                reported_offset = next_offset
                yield event()
    if reported_offset != next_offset and not image.is_in_transaction:
        yield event()


def _digest(image: MetadataImage, timestamp: int, *, forgets: bool = False) -> str:
    """Digest the contents of a snapshot, without the migration state if it `forgets` that;
    `timestamp` is that of the last contained record, which is in its header.
    """
    level = image.metadata_level
    digest = hashlib.sha256(str(timestamp).encode())
    for record in snapshot_records(image):
        if forgets and isinstance(record, ZkMigrationStateRecord):
            continue
        digest.update(build_record(_in_order(record), level.record_version(record)))
    return digest.hexdigest()[:16]


def _in_order(record: MetadataRecord) -> MetadataRecord:
    """Return a registration with features and endpoints by name: Apache Kafka keeps them in maps,
    and writes them in another order into a snapshot than into the log.
    """
    match record:
        case RegisterBrokerRecord():
            broker = copy(record)
            broker.features = sorted(record.features, key=attrgetter("name"))
            broker.end_points = sorted(record.end_points, key=attrgetter("name"))
            return broker
        case RegisterControllerRecord():
            controller = copy(record)
            controller.features = sorted(record.features, key=attrgetter("name"))
            controller.end_points = sorted(record.end_points, key=attrgetter("name"))
            return controller
        case _:
            return record


def _has_migration_state(snapshot: bytes) -> bool:
    """Return whether a snapshot has the state of the migration, or its level has none."""
    image = MetadataImage()
    for batch in _intact(snapshot):
        for _, data in _entries(batch):
            record = None if data is None else parse_record(data)
            if isinstance(record, ZkMigrationStateRecord):
                return True
            if isinstance(record, FeatureLevelRecord):
                image.load(record)
    return not image.metadata_level.has_migration_state


def _header_timestamp(snapshot: bytes) -> int:
    for batch in _intact(snapshot):
        for record in batch.records():
            header = parse_control_record(record.key, record.value)
            return (
                header.last_contained_log_timestamp
                if isinstance(header, SnapshotHeaderRecord)
                else NO_TIMESTAMP
            )
    return NO_TIMESTAMP


def _entries(batch: RecordBatch) -> Iterator[tuple[int, bytes | None]]:
    """Yield the offsets of a batch with their records; None stands for control records and the
    like.
    """
    if batch.is_control:
        yield from ((offset, None) for offset in range(batch.base_offset, batch.next_offset))
        return
    for record in batch.records():
        assert record.value is not None, "a metadata record has a value"
        yield record.offset, bytes(record.value)


def _intact(data: bytes) -> Iterator[RecordBatch]:
    try:
        for batch in split_batches(data):
            if not batch.crc_is_valid():
                return
            yield batch
    except MalformedMessage:
        return
