"""Requests by which clients find brokers, topics, and the leader of each partition."""

from collections.abc import Sequence
from typing import Protocol

from kraftsim.metadata.describe_cluster import describe_cluster, refuse_endpoint
from kraftsim.metadata.metadata_source import SourceBroker
from kraftsim.metadata.rules_image import TopicImage
from kraftsim.metadata.rules_partitions import is_online
from kraftsim.metadata.rules_registrations import PartitionRegistration
from kraftsim.metadata.rules_topic_names import is_internal, why_name_is_invalid
from kraftsim.metadata.topic_creation import CreatingBroker
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import AddressBroker, ConfiguredBroker, ImageBroker
from kraftsim.server.slices import Slices
from kraftsim.zookeeper.rules_control_requests import reported_topic_id
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import (
    NO_LEADER_ID,
    OPERATIONS_NOT_ASKED_FOR,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.k60_describe_cluster import (
    BROKERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from protocol.messages.k75_describe_topic_partitions import (
    NO_LEADER,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from protocol.uuids import ZERO_UUID

# --------------------------------------------------------------------------------------------------
# Metadata: the brokers, the topics, and the leader of each partition; may auto-create a missing
# topic
#
# Source: kafka.server.metadata.KRaftMetadataCache,
# kafka.server.KafkaApis.handleTopicMetadataRequest, AutoTopicCreationManager.

FIRST_VERSION_WITH_NULL_FOR_ALL = 1
FIRST_VERSION_WITH_LISTENER_ERROR = 6
ALL_TOPIC_OPERATIONS = 0b1101_1111_1000
"""Read, write, create, delete, alter, describe, describe and alter configs: every operation is
authorized without an authorizer.
"""
ALL_CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""Create, alter, describe, cluster action, describe and alter configs, idempotent write."""


# --------------------------------------------------------------------------------------------------
# Topics in a Metadata request, by name or id: which rows count, and which requests are refused
#
# The handler and the authorizer check share these rules: the check must not answer for rows that
# Kafka refuses or ignores.
# Source: org.apache.kafka.common.requests.MetadataRequest,
# kafka.server.KafkaApis.handleTopicMetadataRequest, KAFKA-10774; checked against 3.9.1 and 4.4.0.

FIRST_VERSION_WITH_IDS = 10
FIRST_VERSION_BY_ID = 12
"""Versions 10 and 11 have a field for topic ids, but requests that use it are refused."""


def why_refused(request: MetadataRequest, version: int) -> ErrorCode | None:
    """Return the error of a request that is refused as a whole, whatever the principal."""
    if version < FIRST_VERSION_WITH_IDS or not request.topics:
        return None
    if version < FIRST_VERSION_BY_ID:
        is_by_id = any(
            topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics
        )
        return ErrorCode.INVALID_REQUEST if is_by_id else None
    is_without_either = any(
        topic.name is None and topic.topic_id == ZERO_UUID for topic in looked_up(request.topics)
    )
    return (
        ErrorCode.UNKNOWN_SERVER_ERROR if is_without_either else None
    )  # a NullPointerException in Kafka


def looked_up(topics: Sequence[MetadataRequestTopic]) -> Sequence[MetadataRequestTopic]:
    """Return the rows that count: if one has an id, those without are ignored."""
    by_id = [topic for topic in topics if topic.topic_id != ZERO_UUID]
    return by_id or topics


def once_each(topics: Sequence[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Return the rows that count, without duplicates."""
    return list({(topic.name, topic.topic_id): topic for topic in looked_up(topics)}.values())


# --------------------------------------------------------------------------------------------------
# The response


class MetadataBroker(
    ImageBroker, ConfiguredBroker, AddressBroker, CreatingBroker, SourceBroker, Protocol
):
    """A broker that reports the cluster and its topics."""


def handle_metadata(broker: MetadataBroker, call: Call) -> Answer:
    """Respond with the applied metadata, which may lag behind the metadata log."""
    request = call.body
    assert isinstance(request, MetadataRequest), "dispatch decodes by API key"
    refused = call.over_whole(why_refused)
    if refused is not None:
        return refuse_metadata(call, refused)
    view = MetadataView(broker, call, request)
    alive = [
        found
        for registered in broker.image.alive_brokers()
        if (found := view.broker(registered.broker_id)) is not None
    ]
    response = MetadataResponse(
        brokers=alive,
        cluster_id=broker.config.cluster_id,
        controller_id=broker.source.reported_controller([each.node_id for each in alive]),
        topics=view.topics(),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    broker.creation.create(view.missing)
    return response


class MetadataView:
    """The cluster as seen by one client: addresses are those of the listener that it is connected
    to.
    """

    def __init__(self, broker: MetadataBroker, call: Call, request: MetadataRequest) -> None:
        self._broker = broker
        self._image = broker.image
        self._listener = call.listener
        self._version = call.api_version
        self._request = request
        self.missing: list[str] = []
        """Topics to auto-create."""

    def broker(self, broker_id: int) -> MetadataResponseBroker | None:
        """Return a broker if it has this listener; otherwise None."""
        found = self._broker.address_of(broker_id, self._listener)
        return (
            None
            if found is None
            else MetadataResponseBroker(
                node_id=broker_id, host=found.host, port=found.port, rack=found.rack
            )
        )

    def topics(self) -> list[MetadataResponseTopic]:
        """Return the requested topics, in the order of the request; all topics by name."""
        asked = self._request.topics
        if asked is None or (not asked and self._version < FIRST_VERSION_WITH_NULL_FOR_ALL):
            return [self._topic(topic) for topic in self._image.topics()]
        return [self._asked(topic) for topic in once_each(asked)]

    def _asked(self, asked: MetadataRequestTopic) -> MetadataResponseTopic:
        if asked.topic_id != ZERO_UUID:
            return self._asked_by_id(asked)
        name = asked.name or ""
        topic = self._image.topic(name)
        return self._topic(topic) if topic is not None else self._unknown(name)

    def _asked_by_id(self, asked: MetadataRequestTopic) -> MetadataResponseTopic:
        topic = self._image.topic_by_id(asked.topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id
            )
        return self._topic(topic)

    def _unknown(self, name: str) -> MetadataResponseTopic:
        """Return a row for a topic that does not exist (yet): the client retries until it does."""
        if why_name_is_invalid(name) is not None:
            return MetadataResponseTopic(
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
                name=name,
                is_internal=is_internal(name),
            )
        if (
            self._request.allow_auto_topic_creation
            and self._broker.config.auto_create_topics_enable
            and not is_internal(name)
        ):
            self.missing.append(name)
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            name=name,
            is_internal=is_internal(name),
        )

    def _topic(self, topic: TopicImage) -> MetadataResponseTopic:
        asks_operations = self._request.include_topic_authorized_operations
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=reported_topic_id(topic.topic_id),
            is_internal=is_internal(topic.name),
            partitions=[
                self._partition(number, registered)
                for number, registered in sorted(topic.partitions.items())
            ],
            topic_authorized_operations=ALL_TOPIC_OPERATIONS
            if asks_operations
            else OPERATIONS_NOT_ASKED_FOR,
        )

    def _partition(
        self, number: int, registered: PartitionRegistration
    ) -> MetadataResponsePartition:
        error = self._error_of_leader(registered.leader)
        return MetadataResponsePartition(
            error_code=error,
            partition_index=number,
            leader_id=registered.leader if error is ErrorCode.NONE else NO_LEADER_ID,
            leader_epoch=registered.leader_epoch,
            replica_nodes=list(registered.replicas),
            isr_nodes=list(registered.isr),
            offline_replicas=[
                replica
                for replica in registered.replicas
                if not self._is_online(registered, replica)
            ],
        )

    def _is_online(self, registered: PartitionRegistration, replica: int) -> bool:
        """Return whether a replica's broker is alive and its log directory has not failed."""
        broker = self._broker.image.broker(replica)
        return (
            broker is not None
            and not broker.fenced
            and is_online(registered.directory_of(replica), broker)
        )

    def _error_of_leader(self, leader: int) -> ErrorCode:
        if self._broker.address_of(leader, self._listener) is not None:
            return ErrorCode.NONE
        lacks_listener = self._broker.is_alive(leader)
        if lacks_listener and self._version >= FIRST_VERSION_WITH_LISTENER_ERROR:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE


def refuse_metadata(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every topic."""
    request = call.body
    assert isinstance(request, MetadataRequest), "dispatch decodes by API key"
    rows = [
        MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or []
    ]
    return MetadataResponse(topics=rows)


SLICES = Slices(entries="topics", rows="topics", counting=once_each)
METADATA = Handler(
    key=ApiKey.METADATA, handle=handle_metadata, refuse=refuse_metadata, slices=SLICES
)


# --------------------------------------------------------------------------------------------------
# DescribeCluster (60) on a broker: the alive brokers; the reported controller is a random one of
# them, which forwards requests
#
# Source: KIP-700, kafka.server.KafkaApis.handleDescribeCluster.

FENCED_SINCE = 2
"""The first version that can include fenced brokers."""


class ClusterBroker(ImageBroker, ConfiguredBroker, SourceBroker, Protocol):
    """A broker that describes the cluster."""


def handle_describe_cluster(broker: ClusterBroker, call: Call) -> Answer:
    """Respond at once, from the broker's metadata."""
    assert isinstance(call.body, DescribeClusterRequest), "dispatch decodes by API key"
    refused = refuse_endpoint(call, BROKERS)
    if refused is not None:
        return refused
    alive = [
        registered.broker_id
        for registered in broker.image.alive_brokers()
        if registered.listener(call.listener) is not None
    ]
    nodes = []
    for registered in broker.image.brokers():
        listener = registered.listener(call.listener)
        if listener is not None and (not registered.fenced or call.body.include_fenced_brokers):
            is_fenced = registered.fenced and call.api_version >= FENCED_SINCE
            nodes.append(
                DescribeClusterBroker(
                    broker_id=registered.broker_id,
                    host=listener.host,
                    port=listener.port,
                    rack=registered.rack,
                    is_fenced=is_fenced,
                )
            )
    controller_id = broker.source.reported_controller(alive)
    return describe_cluster(
        call, BROKERS, cluster_id=broker.config.cluster_id, nodes=nodes, controller_id=controller_id
    )


def _refuse_describe_cluster(call: Call, error: ErrorCode) -> Answer:
    return DescribeClusterResponse(error_code=error)


DESCRIBE_CLUSTER = Handler(
    key=ApiKey.DESCRIBE_CLUSTER, handle=handle_describe_cluster, refuse=_refuse_describe_cluster
)


# --------------------------------------------------------------------------------------------------
# DescribeTopicPartitions (75): topics by name, one page of partitions per request
#
# No array of a partition is ever null.
#
# Source: KIP-966, kafka.server.handlers.DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.


class TopicsBroker(ImageBroker, ConfiguredBroker, AddressBroker, Protocol):
    """A broker that describes topics page by page."""


def handle_describe_topic_partitions(broker: TopicsBroker, call: Call) -> Answer:
    """Return one page and the cursor of the next.

    INVALID_REQUEST for every topic if the cursor is outside of them.
    """
    request = call.body
    assert isinstance(request, DescribeTopicPartitionsRequest), "dispatch decodes by API key"
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        return refuse_describe_topic_partitions(call, ErrorCode.INVALID_REQUEST)
    asks_all = not request.topics
    if (
        cursor is not None
        and not asks_all
        and all(topic.name != cursor.topic_name for topic in request.topics)
    ):
        return refuse_describe_topic_partitions(call, ErrorCode.INVALID_REQUEST)
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


def refuse_describe_topic_partitions(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every topic."""
    request = call.body
    assert isinstance(request, DescribeTopicPartitionsRequest), "dispatch decodes by API key"
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error, name=topic.name)
            for topic in request.topics
        ]
    )


DESCRIBE_TOPIC_PARTITIONS = Handler(
    key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    handle=handle_describe_topic_partitions,
    refuse=refuse_describe_topic_partitions,
)


HANDLERS = (
    METADATA,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
)
