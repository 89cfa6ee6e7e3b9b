"""Guards of requests that name topics: what a client may not touch is left out, and answered with TOPIC_AUTHORIZATION_FAILED.

Source: kafka.server.{KafkaApis, AuthHelper.partitionSeqByAuthorized}; asked of Apache Kafka 3.9.1.
"""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar, cast

from kraftsim.node.call import Answer, Deferred
from kraftsim.node.security.rights import Asked, Guard
from protocol.acls import AclOperation, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import PartitionProduceResponse, ProduceRequest, TopicProduceData, TopicProduceResponse
from protocol.messages.k01_fetch import FetchableTopicResponse, FetchRequest, FetchTopic, PartitionData
from protocol.messages.k02_list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopic, ListOffsetsTopicResponse
from protocol.messages.k21_delete_records import DeleteRecordsPartitionResult, DeleteRecordsTopic, DeleteRecordsTopicResult
from protocol.messages.k23_offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderTopic, OffsetForLeaderTopicResult
from protocol.messages.k61_describe_producers import DescribeProducersPartitionResult, DescribeProducersTopic, DescribeProducersTopicResult
from protocol.schema import Message

if TYPE_CHECKING:
    from kraftsim.node.broker.broker import Broker

T = TypeVar("T")
R = TypeVar("R")
FAILED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
NO_OFFSET: Final = -1
CONSUMER: Final = -1
TRANSACTIONAL_BIT: Final = 0x10
MAGIC, ATTRIBUTES_LOW_BYTE, FIRST_TRANSACTIONAL_MAGIC = 16, 22, 2
"""Where both are in a batch, and since when there are transactions."""


def topic_guard(
    operation: AclOperation, field: str, answers: str, name_of: "Callable[[Broker, T], str | None]", refused: Callable[[T], R]
) -> "Guard[Broker]":
    """Return a guard of the topics in `field` of a request, which adds what `refused` makes of them to `answers` of the response."""

    def look(asked: "Asked[Broker]") -> Answer | Deferred:
        topics: list[T] = getattr(asked.call.body, field)
        forbidden = [topic for topic in topics if not _may(asked, operation, name_of(asked.node, topic))]
        if not forbidden:
            return asked.pass_on()
        rest = copy.copy(asked.call.body)
        setattr(rest, field, [topic for topic in topics if not any(topic is other for other in forbidden)])
        return asked.pass_on_rest(rest, lambda answer: cast(list[R], getattr(answer, answers)).extend(refused(topic) for topic in forbidden))

    return look


def _may(asked: "Asked[Broker]", operation: AclOperation, name: str | None) -> bool:
    return name is None or asked.may(operation, AclResourceType.TOPIC, name)


def by_name_or_id(node: "Broker", topic: TopicProduceData) -> str | None:
    """Return the name of a topic of Produce."""
    return topic.name or _name_of_id(node, topic.topic_id)


def by_topic_or_id(node: "Broker", topic: FetchTopic) -> str | None:
    """Return the name of a topic of Fetch."""
    return topic.topic or _name_of_id(node, topic.topic_id)


def _name_of_id(node: "Broker", topic_id: bytes) -> str | None:
    known = node.image.topic_by_id(topic_id)
    return None if known is None else known.name


def _refused_produce(topic: TopicProduceData) -> TopicProduceResponse:
    rows = [PartitionProduceResponse(index=each.index, error_code=FAILED, base_offset=NO_OFFSET) for each in topic.partition_data]
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)


def _refused_fetch(topic: FetchTopic) -> FetchableTopicResponse:
    rows = [
        PartitionData(partition_index=each.partition, error_code=FAILED, high_watermark=NO_OFFSET, aborted_transactions=None, records=b"")
        for each in topic.partitions
    ]
    return FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows)


def _refused_offsets(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    rows = [ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=FAILED) for each in topic.partitions]
    return ListOffsetsTopicResponse(name=topic.name, partitions=rows)


def _refused_deletion(topic: DeleteRecordsTopic) -> DeleteRecordsTopicResult:
    rows = [
        DeleteRecordsPartitionResult(partition_index=each.partition_index, low_watermark=NO_OFFSET, error_code=FAILED) for each in topic.partitions
    ]
    return DeleteRecordsTopicResult(name=topic.name, partitions=rows)


def _refused_epochs(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
    return OffsetForLeaderTopicResult(
        topic=topic.topic, partitions=[EpochEndOffset(partition=each.partition, error_code=FAILED) for each in topic.partitions]
    )


def _refused_producers(topic: DescribeProducersTopic) -> DescribeProducersTopicResult:
    why = "Topic authorization failed."
    rows = [DescribeProducersPartitionResult(partition_index=each, error_code=FAILED, error_message=why) for each in topic.partition_indexes]
    return DescribeProducersTopicResult(name=topic.name, partitions=rows)


_PRODUCE: "Guard[Broker]" = topic_guard(AclOperation.WRITE, "topic_data", "responses", by_name_or_id, _refused_produce)
_FETCH: "Guard[Broker]" = topic_guard(AclOperation.READ, "topics", "responses", by_topic_or_id, _refused_fetch)
_NO_FETCH: "Guard[Broker]" = topic_guard(AclOperation.CLUSTER_ACTION, "topics", "responses", by_topic_or_id, _refused_fetch)
LIST_OFFSETS: "Guard[Broker]" = topic_guard(AclOperation.DESCRIBE, "topics", "topics", lambda node, topic: topic.name, _refused_offsets)
DELETE_RECORDS: "Guard[Broker]" = topic_guard(AclOperation.DELETE, "topics", "topics", lambda node, topic: topic.name, _refused_deletion)
_EPOCHS: "Guard[Broker]" = topic_guard(AclOperation.DESCRIBE, "topics", "topics", lambda node, topic: topic.topic, _refused_epochs)
DESCRIBE_PRODUCERS: "Guard[Broker]" = topic_guard(AclOperation.READ, "topics", "topics", lambda node, topic: topic.name, _refused_producers)


def look_at_produce(asked: "Asked[Broker]") -> Answer | Deferred:
    """A transactional batch needs the right to its transactional id, every topic the right to write."""
    request = asked.call.body
    assert isinstance(request, ProduceRequest), "dispatch decodes by API key"
    if request.transactional_id is not None or _has_transactional(request):
        name = request.transactional_id
        if name is None or not asked.may(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, name):
            return asked.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return _PRODUCE(asked)


def look_at_fetch(asked: "Asked[Broker]") -> Answer | Deferred:
    """A follower needs the right of brokers, a consumer the right to read."""
    request = asked.call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    if request.replica_id == CONSUMER and request.replica_state.replica_id == CONSUMER:
        return _FETCH(asked)
    return asked.pass_on() if asked.may_on_cluster(AclOperation.CLUSTER_ACTION) else _NO_FETCH(asked)


def look_at_epochs(asked: "Asked[Broker]") -> Answer | Deferred:
    """Brokers may ask of all topics."""
    return asked.pass_on() if asked.may_on_cluster(AclOperation.CLUSTER_ACTION) else _EPOCHS(asked)


def _has_transactional(request: Message) -> bool:
    batches = [each.records for topic in request.topic_data for each in topic.partition_data]
    return any(batch is not None and _is_transactional(batch) for batch in batches)


def _is_transactional(batch: bytes | memoryview) -> bool:
    """Tell it from the first batch alone: a request has only one."""
    return len(batch) > ATTRIBUTES_LOW_BYTE and batch[MAGIC] >= FIRST_TRANSACTIONAL_MAGIC and bool(batch[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT)
