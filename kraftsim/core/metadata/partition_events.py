"""The events of committed topic and partition changes: leader and ISR of every epoch.

Source: KIP-631; the events are kraftsim's.
"""

from collections.abc import Iterable, Sequence

from kraftsim.core.metadata.partition_registration import PartitionRegistration
from kraftsim.core.metadata.topic_table import PartitionKey, TopicTable
from kraftsim.events.event import Event
from kraftsim.events.metadata import PartitionChanged, PartitionCreated, TopicDeleted
from protocol.metadata.m02_topic import TopicRecord
from protocol.metadata.m03_partition import PartitionRecord
from protocol.metadata.m05_partition_change import PartitionChangeRecord
from protocol.metadata.m09_remove_topic import RemoveTopicRecord
from protocol.schema import Message
from protocol.uuids import uuid_text


def partition_events(records: Sequence[Message], topics: TopicTable) -> tuple[Event, ...]:
    """Return the events of the records, in order; `topics` is the state before them."""
    made: dict[bytes, str] = {}
    changed: dict[PartitionKey, PartitionRegistration] = {}
    facts: list[Event] = []
    for record in records:
        match record:
            case TopicRecord():
                made[record.topic_id] = record.name
            case PartitionRecord():
                facts.append(
                    _created(record, made.get(record.topic_id) or _name(record.topic_id, topics))
                )
            case PartitionChangeRecord():
                key = (record.topic_id, record.partition_id)
                before = changed.get(key) or topics.partition(key)
                assert before is not None, "the changed partition exists"
                changed[key] = before.changed_by(record)
                facts.append(partition_changed_event(key, _name(key[0], topics), changed[key]))
            case RemoveTopicRecord():
                topic = topics.topic(record.topic_id)
                assert topic is not None, "the removed topic exists"
                facts.append(
                    TopicDeleted(
                        topic=topic.name,
                        topic_id=uuid_text(topic.topic_id),
                        partition_count=len(topic.partitions),
                    )
                )
    return tuple(facts)


def _name(topic_id: bytes, topics: TopicTable) -> str:
    topic = topics.topic(topic_id)
    assert topic is not None, "a partition belongs to a topic"
    return topic.name


def _created(record: PartitionRecord, topic: str) -> PartitionCreated:
    return PartitionCreated(
        topic=topic,
        topic_id=uuid_text(record.topic_id),
        partition=record.partition_id,
        leader=record.leader,
        isr=_listed(record.isr),
        replicas=_listed(record.replicas),
    )


def partition_changed_event(
    key: PartitionKey, topic: str, partition: PartitionRegistration
) -> PartitionChanged:
    """Return the event of a partition's current state."""
    return PartitionChanged(
        topic=topic,
        topic_id=uuid_text(key[0]),
        partition=key[1],
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        leader_recovery_state=partition.leader_recovery_state,
        isr=_listed(partition.isr),
        replicas=_listed(partition.replicas),
        adding_replicas=_listed(partition.adding_replicas),
        removing_replicas=_listed(partition.removing_replicas),
    )


def _listed(broker_ids: Iterable[int]) -> str:
    return ",".join(map(str, broker_ids))
