"""DescribeTopicPartitions (75): topics by name, one page of partitions per request.

No array of a partition is ever null.

Source: KIP-966, kafka.server.handlers.DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.
"""

from typing import Protocol

from kraftsim.metadata.broker_handlers.k03_metadata import ALL_TOPIC_OPERATIONS
from kraftsim.metadata.rules_image import TopicImage
from kraftsim.metadata.rules_registrations import PartitionRegistration
from kraftsim.metadata.rules_topic_names import is_internal, why_name_is_invalid
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import AddressBroker, ConfiguredBroker, ImageBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k75_describe_topic_partitions import (
    NO_LEADER,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


class TopicsBroker(ImageBroker, ConfiguredBroker, AddressBroker, Protocol):
    """A broker that describes topics page by page."""


def handle(broker: TopicsBroker, call: Call) -> Answer:
    """Return one page and the cursor of the next.

    INVALID_REQUEST for every topic if the cursor is outside of them.
    """
    request = call.body
    assert isinstance(request, DescribeTopicPartitionsRequest), "dispatch decodes by API key"
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        return refuse(call, ErrorCode.INVALID_REQUEST)
    asks_all = not request.topics
    if (
        cursor is not None
        and not asks_all
        and all(topic.name != cursor.topic_name for topic in request.topics)
    ):
        return refuse(call, ErrorCode.INVALID_REQUEST)
    asked = (
        {topic.name for topic in broker.image.topics()}
        if asks_all
        else {topic.name for topic in request.topics}
    )
    names = sorted(name for name in asked if cursor is None or name >= cursor.topic_name)
    left = max(
        min(broker.config.max_request_partition_size_limit, request.response_partition_limit), 1
    )
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if not left:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        topic = broker.image.topic(name)
        if topic is None:
            if not asks_all:
                response.topics.append(_unknown(name))
            continue
        numbers = [number for number in sorted(topic.partitions) if number >= first]
        response.topics.append(_topic(broker, call.listener, topic, numbers[:left]))
        if len(numbers) > left:
            response.next_cursor = Cursor(topic_name=name, partition_index=numbers[left])
            break
        left -= len(numbers)
    return response


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if why_name_is_invalid(name) is None
        else ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


def _topic(
    broker: TopicsBroker, listener: str, topic: TopicImage, numbers: list[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            _partition(broker, listener, number, topic.partitions[number]) for number in numbers
        ],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


def _partition(
    broker: TopicsBroker, listener: str, number: int, registered: PartitionRegistration
) -> DescribeTopicPartitionsResponsePartition:
    error = ErrorCode.NONE
    if broker.address_of(registered.leader, listener) is None:
        error = (
            ErrorCode.LISTENER_NOT_FOUND
            if broker.is_alive(registered.leader)
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
    return DescribeTopicPartitionsResponsePartition(
        error_code=error,
        partition_index=number,
        leader_id=NO_LEADER if error else registered.leader,
        leader_epoch=registered.leader_epoch,
        replica_nodes=list(registered.replicas),
        isr_nodes=list(registered.isr),
        eligible_leader_replicas=list(registered.eligible_leader_replicas),
        last_known_elr=list(registered.last_known_elr),
        offline_replicas=[
            replica for replica in registered.replicas if not broker.is_alive(replica)
        ],
    )


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every topic."""
    request = call.body
    assert isinstance(request, DescribeTopicPartitionsRequest), "dispatch decodes by API key"
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error, name=topic.name)
            for topic in request.topics
        ]
    )


HANDLER = Handler(key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, handle=handle, refuse=refuse)
