"""Which topics and partitions there are, who leads them, and what becomes of them when a broker comes or goes.

Source: KIP-500, KIP-631, org.apache.kafka.controller.ReplicationControlManager.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.metadata.broker_registration import BrokerRegistration
from kraftsim.core.metadata.cluster_control import ClusterControl
from kraftsim.core.metadata.config_control import ConfigControl
from kraftsim.core.metadata.create_topics import Placement, TopicDefaults, decide_placement, refuse_name
from kraftsim.core.metadata.feature_control import FeatureControl
from kraftsim.core.metadata.partition_registration import PartitionRegistration, partition_of
from kraftsim.core.timeline import Journal, TimelineDict
from kraftsim.events.metadata import TopicCreated
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import BROKER_DEFAULT, CreatableTopic, CreateTopicsRequest
from protocol.metadata.m02_topic import TopicRecord
from protocol.metadata.m03_partition import PartitionRecord
from protocol.metadata.m05_partition_change import PartitionChangeRecord
from protocol.schema import Message
from protocol.uuids import MIGRATING_DIRECTORY_ID, UNASSIGNED_DIRECTORY_ID, uuid_text

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""ReplicationControlManager.MAX_PARTITIONS_PER_BATCH: so that a request cannot make a controller run out of memory."""

PartitionKey = tuple[bytes, int]
"""Topic id and partition number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDraw:
    """What chance decides about a topic: a topic id (`is_proper_topic_id`), and the broker with which the placement begins (any number)."""

    topic_id: bytes
    first_broker_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as it was made, or would be (validate only)."""

    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]
    """What the topic overrides, as (name, value)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTopic:
    """A topic that was not made."""

    name: str
    refusal: Refusal


class ReplicationControl:
    """Topics by name and id, partitions by (topic id, partition)."""

    def __init__(self, journal: Journal, features: FeatureControl, cluster: ClusterControl, configs: ConfigControl, defaults: TopicDefaults) -> None:
        self._features = features
        self._cluster = cluster
        self._configs = configs
        self._defaults = defaults
        self._topic_ids: TimelineDict[str, bytes] = TimelineDict(journal)
        self._partitions: TimelineDict[PartitionKey, PartitionRegistration] = TimelineDict(journal)

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of a topic, or None."""
        return self._topic_ids.get(name)

    def partitions(self) -> Iterator[tuple[PartitionKey, PartitionRegistration]]:
        """Yield every partition, by topic id and number."""
        return ((key, self._partitions[key]) for key in sorted(self._partitions))

    def leads_partitions(self, broker_id: int) -> bool:
        """Tell whether a broker leads any partition."""
        return any(partition.leader == broker_id for partition in self._partitions.values())

    def decide_create_topics(self, request: CreateTopicsRequest, draws: Sequence[TopicDraw]) -> Decision[list[NewTopic | RefusedTopic]] | Refusal:
        """Propose the topics of a request, each by itself; one draw per topic asked for, one result per topic, in the order of the request.

        The whole request is refused with POLICY_VIOLATION when it asks for too many partitions. With validate_only nothing is proposed.
        """
        assert len(draws) == len(request.topics), "one draw per topic"
        if sum(self._partition_count_asked(topic) for topic in request.topics) > PARTITIONS_PER_REQUEST_MAX:
            return Refusal(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        names = [topic.name for topic in request.topics]
        results: list[NewTopic | RefusedTopic] = []
        records: list[Message] = []
        facts: list[TopicCreated] = []
        for topic, draw in zip(request.topics, draws, strict=True):
            outcome = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.") if names.count(topic.name) > 1 else self._decide_topic(topic, draw)
            if isinstance(outcome, Refusal):
                results.append(RefusedTopic(name=topic.name, refusal=outcome))
                continue
            new_topic, topic_records = outcome
            results.append(new_topic)
            records += topic_records
            facts.append(TopicCreated(topic=topic.name, topic_id=uuid_text(new_topic.topic_id), partition_count=new_topic.partition_count))
        return Decision([], results) if request.validate_only else Decision(records, results, tuple(facts))

    def fence_records(self, broker_id: int) -> list[PartitionChangeRecord]:
        """Return the changes with which a broker loses every leadership and its place in every ISR it is not the last member of."""
        bumps_epoch = self._features.metadata_level.bumps_leader_epoch_on_isr_shrink
        changes = (
            (key, partition.without(broker_id, self._cluster.is_active, bumps_epoch_on_shrink=bumps_epoch))
            for key, partition in self.partitions()
            if broker_id in partition.isr
        )
        return [_of_partition(key, change) for key, change in changes if change is not None]

    def unfence_records(self, broker_id: int) -> list[PartitionChangeRecord]:
        """Return the changes with which leaderless partitions get a leader once a broker may lead."""
        changes = ((key, partition.with_electable(broker_id, self._cluster.is_active)) for key, partition in self.partitions())
        return [_of_partition(key, change) for key, change in changes if change is not None]

    def replay_topic(self, record: TopicRecord) -> None:
        """Take a topic from the log."""
        assert record.name not in self._topic_ids, f"topic {record.name} is there already"
        self._topic_ids[record.name] = record.topic_id

    def replay_partition(self, record: PartitionRecord) -> None:
        """Take a partition from the log."""
        self._partitions[record.topic_id, record.partition_id] = partition_of(record)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """Take a change of a partition from the log."""
        key = (record.topic_id, record.partition_id)
        assert key in self._partitions, f"partition {uuid_text(record.topic_id)}-{record.partition_id} changes and is not there"
        self._partitions[key] = self._partitions[key].changed_by(record)

    def _decide_topic(self, topic: CreatableTopic, draw: TopicDraw) -> tuple[NewTopic, list[Message]] | Refusal:
        refusal = refuse_name(topic.name, self._topic_ids)
        if refusal is not None:
            return refusal
        config_records = self._configs.decide_topic_configs(topic.name, topic.configs)
        if isinstance(config_records, Refusal):
            return config_records
        brokers = {broker.broker_id: broker for broker in self._cluster.brokers()}
        placement = decide_placement(topic, brokers, self._defaults, draw.first_broker_index)
        if isinstance(placement, Refusal):
            return placement
        assert is_proper_topic_id(draw.topic_id), "draw again"
        new_topic = NewTopic(
            name=topic.name,
            topic_id=draw.topic_id,
            partition_count=len(placement),
            replication_factor=len(placement[0]),
            configs=tuple((record.name, record.value) for record in config_records if record.value is not None),
        )
        topic_record = TopicRecord(name=topic.name, topic_id=draw.topic_id)
        return new_topic, [topic_record, *config_records, *self._partition_records(draw.topic_id, placement)]

    def _partition_records(self, topic_id: bytes, placement: Placement) -> Iterator[PartitionRecord]:
        has_directories = self._features.metadata_level.has_directories
        for partition, replicas in enumerate(placement):
            isr = [replica for replica in replicas if self._cluster.is_active(replica)]
            yield PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=isr,
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[_directory_of(self._cluster.broker(replica)) for replica in replicas] if has_directories else [],
            )

    def _partition_count_asked(self, topic: CreatableTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return self._defaults.num_partitions if topic.num_partitions == BROKER_DEFAULT else max(topic.num_partitions, 0)


def is_proper_topic_id(drawn: bytes) -> bool:
    """Tell whether drawn bytes may name a topic: not a reserved id, and not one whose text begins with a hyphen.   Source: Uuid.randomUuid."""
    return int.from_bytes(drawn) > 1 and not uuid_text(drawn).startswith("-")


def _directory_of(broker: BrokerRegistration | None) -> bytes:
    """Return where a broker will keep a new replica: its only directory, or one that it chooses itself."""
    assert broker is not None, "replicas are placed on registered brokers"
    if not broker.directories:
        return MIGRATING_DIRECTORY_ID
    return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED_DIRECTORY_ID


def _of_partition(key: PartitionKey, change: PartitionChangeRecord) -> PartitionChangeRecord:
    change.topic_id, change.partition_id = key
    return change
