"""Authorizer checks of requests that name topics: unauthorized topics are removed, and answered
with TOPIC_AUTHORIZATION_FAILED.

Source: kafka.server.{KafkaApis, AuthHelper.partitionSeqByAuthorized}; checked against Apache Kafka
3.9.1.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Final, TypeVar, cast

from kraftsim.metadata.broker_handlers.cluster import looked_up, why_refused
from kraftsim.server.call import Answer, Deferred
from kraftsim.server.security.rights import AskedRights, Guard, GuardedBroker, split
from protocol.acls import AclOperation, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.messages.k01_fetch import FetchRequest
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from protocol.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from protocol.messages.k61_describe_producers import (
    DescribeProducersPartitionResult,
    DescribeProducersTopic,
    DescribeProducersTopicResult,
)
from protocol.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from protocol.schema import Message
from protocol.uuids import ZERO_UUID

T = TypeVar("T")
R = TypeVar("R")
FAILED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
NO_OFFSET: Final = -1
CONSUMER: Final = -1
TRANSACTIONAL_BIT: Final = 0x10
MAGIC, ATTRIBUTES_LOW_BYTE, FIRST_TRANSACTIONAL_MAGIC = 16, 22, 2
"""The positions of both in a batch, and the first magic with transactions."""
SIZE_POSITION, EPOCH_POSITION, HEADER_BYTES_TO_MAGIC, RECORD_BYTES_MIN = 8, 12, 17, 14
"""The position of the batch size field (which excludes the bytes up to its end); the bytes needed
to inspect a batch; the minimum size.
"""
FIRST_VERSION_WITH_MESSAGES = 8


def topic_guard(
    operation: AclOperation,
    field: str,
    answers: str,
    name_of: Callable[[GuardedBroker, T], str | None],
    refused: Callable[[T], R],
) -> Guard[GuardedBroker]:
    """Return a guard of the topics in `field` of a request, which adds the error rows of `refused`
    to `answers` of the response.
    """

    def look(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
        topics: list[T] = getattr(asked.call.body, field)
        allowed, forbidden = split(
            topics, lambda topic: _may(asked, operation, name_of(asked.node, topic))
        )
        if not forbidden:
            return asked.pass_on()
        rest = copy.copy(asked.call.body)
        setattr(rest, field, allowed)
        return asked.pass_on_rest(
            rest,
            lambda answer: cast(list[R], getattr(answer, answers)).extend(
                refused(topic) for topic in forbidden
            ),
        )

    return look


def _may(asked: AskedRights[GuardedBroker], operation: AclOperation, name: str | None) -> bool:
    return name is None or asked.may(operation, AclResourceType.TOPIC, name)


def by_name_or_id(node: GuardedBroker, topic: TopicProduceData) -> str | None:
    """Return the topic name of a Produce entry."""
    return topic.name or _name_of_id(node, topic.topic_id)


def _name_of_id(node: GuardedBroker, topic_id: bytes) -> str | None:
    known = node.image.topic_by_id(topic_id)
    return None if known is None else known.name


def _refused_produce(topic: TopicProduceData) -> TopicProduceResponse:
    rows = [
        PartitionProduceResponse(index=each.index, error_code=FAILED, base_offset=NO_OFFSET)
        for each in topic.partition_data
    ]
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)


def _refused_offsets(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    rows = [
        ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=FAILED)
        for each in topic.partitions
    ]
    return ListOffsetsTopicResponse(name=topic.name, partitions=rows)


def _refused_deletion(topic: DeleteRecordsTopic) -> DeleteRecordsTopicResult:
    rows = [
        DeleteRecordsPartitionResult(
            partition_index=each.partition_index, low_watermark=NO_OFFSET, error_code=FAILED
        )
        for each in topic.partitions
    ]
    return DeleteRecordsTopicResult(name=topic.name, partitions=rows)


def _refused_epochs(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
    return OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=[
            EpochEndOffset(partition=each.partition, error_code=FAILED) for each in topic.partitions
        ],
    )


def _refused_producers(topic: DescribeProducersTopic) -> DescribeProducersTopicResult:
    why = "Topic authorization failed."
    rows = [
        DescribeProducersPartitionResult(partition_index=each, error_code=FAILED, error_message=why)
        for each in topic.partition_indexes
    ]
    return DescribeProducersTopicResult(name=topic.name, partitions=rows)


_PRODUCE: Guard[GuardedBroker] = topic_guard(
    AclOperation.WRITE, "topic_data", "responses", by_name_or_id, _refused_produce
)
LIST_OFFSETS: Guard[GuardedBroker] = topic_guard(
    AclOperation.DESCRIBE, "topics", "topics", lambda node, topic: topic.name, _refused_offsets
)
DELETE_RECORDS: Guard[GuardedBroker] = topic_guard(
    AclOperation.DELETE, "topics", "topics", lambda node, topic: topic.name, _refused_deletion
)
_EPOCHS: Guard[GuardedBroker] = topic_guard(
    AclOperation.DESCRIBE, "topics", "topics", lambda node, topic: topic.topic, _refused_epochs
)
DESCRIBE_PRODUCERS: Guard[GuardedBroker] = topic_guard(
    AclOperation.READ, "topics", "topics", lambda node, topic: topic.name, _refused_producers
)


def authorize_produce(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """A transactional batch needs WRITE on its transactional id, every topic WRITE.

    Malformed records are refused before authorization: CORRUPT_MESSAGE for every partition of the
    request.
    Source: KafkaApis.handleProduceRequest, RequestUtils.hasTransactionalRecords,
    ByteBufferLogInputStream.
    """
    request = asked.call.body
    assert isinstance(request, ProduceRequest), "dispatch decodes by API key"
    why = next(filter(None, map(batch_fault, _records(request))), None)
    if why is not None:
        return _corrupt(asked, why)
    if any(map(holds_transactional, _records(request))):
        name = request.transactional_id
        if name is None or not asked.may(
            AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, name
        ):
            return asked.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return _PRODUCE(asked)


def _corrupt(asked: AskedRights[GuardedBroker], why: str) -> Answer:
    answer = asked.refuse(ErrorCode.CORRUPT_MESSAGE)
    if (
        isinstance(answer, ProduceResponse)
        and asked.call.api_version >= FIRST_VERSION_WITH_MESSAGES
    ):
        for topic in answer.responses:
            for row in topic.partition_responses:
                row.error_message = why
    return answer


def authorize_fetch(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """A follower needs CLUSTER_ACTION, a consumer READ on every partition of its session at each
    Fetch.

    Source: kafka.server.KafkaApis.handleFetchRequest (fetchContext.foreachPartition); checked
    against Apache Kafka 3.9.1 and 4.4.0.
    """
    request = asked.call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    if max(request.replica_id, request.replica_state.replica_id) > CONSUMER:
        return (
            asked.pass_on()
            if asked.may_on_cluster(AclOperation.CLUSTER_ACTION)
            else asked.pass_on_allowed(_no_topic)
        )
    readable = asked.verdicts(AclOperation.READ, AclResourceType.TOPIC)
    return asked.pass_on() if readable is None else asked.pass_on_allowed(readable.__getitem__)


def _no_topic(name: str) -> bool:
    return False


def authorize_epochs(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Brokers are authorized for all topics."""
    return asked.pass_on() if asked.may_on_cluster(AclOperation.CLUSTER_ACTION) else _EPOCHS(asked)


def _records(request: ProduceRequest) -> Iterator[bytes | memoryview]:
    return (
        each.records
        for topic in request.topic_data
        for each in topic.partition_data
        if each.records is not None
    )


def batch_fault(records: bytes | memoryview) -> str | None:
    """Return the error of the first batch's header, in Kafka's words; None if it is valid, or if
    the data is too short to tell.
    """
    if len(records) < HEADER_BYTES_TO_MAGIC:
        return None
    size_bytes = int.from_bytes(records[SIZE_POSITION:EPOCH_POSITION], signed=True)
    if size_bytes < RECORD_BYTES_MIN:
        return (
            f"Record size {size_bytes} is less than the minimum record overhead "
            f"({RECORD_BYTES_MIN})"
        )
    magic = int.from_bytes(records[MAGIC : MAGIC + 1], signed=True)
    return (
        None
        if 0 <= magic <= FIRST_TRANSACTIONAL_MAGIC
        else f"Invalid magic found in record: {magic}"
    )


def holds_transactional(records: bytes | memoryview) -> bool:
    """Return whether the first batch is complete and transactional: a request has only one
    batch.
    """
    if len(records) <= ATTRIBUTES_LOW_BYTE or len(records) < EPOCH_POSITION + int.from_bytes(
        records[SIZE_POSITION:EPOCH_POSITION], signed=True
    ):
        return False
    return records[MAGIC] >= FIRST_TRANSACTIONAL_MAGIC and bool(
        records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
    )


# --------------------------------------------------------------------------------------------------
# Authorizer checks of Metadata and DescribeTopicPartitions: topics without DESCRIBE are not
# returned
#
# Source: kafka.server.KafkaApis.handleTopicMetadataRequest, DescribeTopicPartitionsRequestHandler.

EMPTY_IS_ALL_UNTIL = 0
"""In this version of Metadata an empty topic list means all topics."""


def authorize_metadata(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Omit unauthorized topics from a request for all topics, refuse those that were named; a
    missing topic needs CREATE.
    """
    request, node = asked.call.body, asked.node
    assert isinstance(request, MetadataRequest), "dispatch decodes by API key"
    if request.topics is None or (
        not request.topics and asked.call.api_version <= EMPTY_IS_ALL_UNTIL
    ):
        visible = [
            MetadataRequestTopic(name=topic.name)
            for topic in node.image.topics()
            if _may_describe(asked, topic.name)
        ]
        if len(visible) == sum(1 for _ in node.image.topics()):
            return asked.pass_on()
        rest = copy.copy(request)
        rest.topics = visible
        rest.allow_auto_topic_creation = False
        return (
            asked.pass_on_rest(rest, lambda answer: None)
            if visible or request.topics is None
            else _brokers_only(asked, rest)
        )
    if asked.call.over_whole(why_refused) is not None:
        return asked.pass_on()  # the handler refuses it without topic data
    allowed, hidden = split(
        looked_up(request.topics), lambda topic: _may_ask(asked, request, topic)
    )
    if not hidden:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.topics = allowed
    return (
        asked.pass_on_rest(rest, lambda answer: _add_hidden(answer, hidden))
        if rest.topics
        else _brokers_only(asked, rest, hidden)
    )


def authorize_topic_partitions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """The same for the paginated DescribeTopicPartitions."""
    request, node = asked.call.body, asked.node
    assert isinstance(request, DescribeTopicPartitionsRequest), "dispatch decodes by API key"
    if not request.topics:
        if all(_may_describe(asked, topic.name) for topic in node.image.topics()):
            return asked.pass_on()
        return asked.pass_on_rest(request, lambda answer: _remove_unauthorized(asked, answer))
    allowed, hidden = split(request.topics, lambda topic: _may_describe(asked, topic.name))
    if not hidden:
        return asked.pass_on()
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rows = [
        DescribeTopicPartitionsResponseTopic(error_code=failed, name=topic.name) for topic in hidden
    ]
    rest = copy.copy(request)
    rest.topics = allowed
    if not rest.topics:
        return DescribeTopicPartitionsResponse(topics=rows)
    return asked.pass_on_rest(rest, lambda answer: answer.topics.extend(rows))


def _may_describe(asked: AskedRights[GuardedBroker], name: str) -> bool:
    return asked.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, name)


def _may_ask(
    asked: AskedRights[GuardedBroker], request: MetadataRequest, topic: MetadataRequestTopic
) -> bool:
    """Return whether a named topic may be described, or created."""
    image = asked.node.image
    name = topic.name
    if name is None or topic.topic_id != ZERO_UUID:
        known = image.topic_by_id(topic.topic_id)
        return known is None or _may_describe(asked, known.name)
    if not _may_describe(asked, name):
        return False
    would_be_made = (
        request.allow_auto_topic_creation
        and asked.node.config.auto_create_topics_enable
        and image.topic(name) is None
    )
    create = AclOperation.CREATE
    return (
        not would_be_made
        or asked.may_on_cluster(create)
        or asked.may(create, AclResourceType.TOPIC, name)
    )


def _brokers_only(
    asked: AskedRights[GuardedBroker],
    rest: MetadataRequest,
    hidden: list[MetadataRequestTopic] | None = None,
) -> Answer | Deferred:
    """Request brokers only: in version 0 an empty list means all topics, so a name that cannot
    exist stands in for it.
    """
    if asked.call.api_version > EMPTY_IS_ALL_UNTIL:
        return asked.pass_on_rest(rest, lambda answer: _add_hidden(answer, hidden or []))
    rest.topics = [MetadataRequestTopic(name="")]

    def only_hidden(answer: Message) -> None:
        answer.topics = []
        _add_hidden(answer, hidden or [])

    return asked.pass_on_rest(rest, only_hidden)


def _add_hidden(answer: Message, hidden: list[MetadataRequestTopic]) -> None:
    assert isinstance(answer, MetadataResponse), "Metadata was asked"
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in hidden:
        name = topic.name if topic.topic_id == ZERO_UUID else None
        answer.topics.append(
            MetadataResponseTopic(error_code=failed, name=name, topic_id=topic.topic_id)
        )


def _remove_unauthorized(asked: AskedRights[GuardedBroker], answer: Message) -> None:
    answer.topics = [
        topic for topic in answer.topics if topic.name is None or _may_describe(asked, topic.name)
    ]
