"""DescribeProducers (61): the active producers of a replica, and the start offsets of their open
transactions.

Followers serve it, too, with the state that they would have as leader.
Source: KIP-664, kafka.cluster.Partition.activeProducerState.
"""

from typing import Protocol

from kraftsim.metadata.rules_topic_names import why_name_is_invalid
from kraftsim.partitions.partitions import HostingBroker
from kraftsim.producer_state.rules_entries import ProducerStateEntry
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import ImageBroker
from kraftsim.server.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k61_describe_producers import (
    NO_OPEN_TRANSACTION,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    DescribeProducersTopicResult,
    ProducerState,
)

UNKNOWN_TOPIC = "This server does not host this topic-partition."


class ProducersBroker(HostingBroker, ImageBroker, Protocol):
    """A broker that describes the producers of a partition."""


def handle(broker: ProducersBroker, call: Call) -> Answer:
    """Respond at once."""
    request = call.body
    assert isinstance(request, DescribeProducersRequest), "dispatch decodes by API key"
    topics = [
        DescribeProducersTopicResult(
            name=topic.name,
            partitions=[
                _partition(broker, topic.name, number) for number in topic.partition_indexes
            ],
        )
        for topic in request.topics
    ]
    return DescribeProducersResponse(topics=topics)


def _partition(
    broker: ProducersBroker, topic: str, number: int
) -> DescribeProducersPartitionResult:
    hosted = broker.partitions.find(topic, number)
    if hosted is not None:
        rows = [_producer(entry) for entry in hosted.replica.producer_state.entries.values()]
        return DescribeProducersPartitionResult(partition_index=number, active_producers=rows)
    why = why_name_is_invalid(topic)
    if why is not None:
        return _refused(number, ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    if broker.image.topic(topic) is None:
        return _refused(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC)
    return _refused(number, broker.not_hosted_error(topic, number).error)


def _producer(entry: ProducerStateEntry) -> ProducerState:
    begun_at = entry.first_transaction_offset
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=NO_OPEN_TRANSACTION if begun_at is None else begun_at,
    )


def _refused(
    number: int, error: ErrorCode, why: str | None = None
) -> DescribeProducersPartitionResult:
    return DescribeProducersPartitionResult(
        partition_index=number, error_code=error, error_message=why
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, DescribeProducersRequest), "dispatch decodes by API key"
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResult(
                name=topic.name,
                partitions=[_refused(number, error) for number in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _weight(broker: ProducersBroker, topic: DescribeProducersTopic, number: int) -> int:
    hosted = broker.partitions.find(topic.name, number)
    return 1 if hosted is None else 1 + len(hosted.replica.producer_state.entries)


SLICES = Slices(
    entries="topics",
    rows="topics",
    inner="partition_indexes",
    inner_rows="partitions",
    inner_weight=_weight,
)
HANDLER = Handler(key=ApiKey.DESCRIBE_PRODUCERS, handle=handle, refuse=_refuse, slices=SLICES)
