"""Requests between brokers and the controller in ZooKeeper mode.

The controller sends LeaderAndIsr, StopReplica and UpdateMetadata, which a broker processes in the
order of their arrival (`kraftsim.zookeeper.control_requests`). A broker that stops sends
ControlledShutdown to the controller, which is a broker, too; so do leaders with AlterPartition, and
brokers that need producer ids with AllocateProducerIds.
"""

from collections.abc import Callable
from typing import Final

from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.zookeeper.broker_mode import ZookeeperBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.messages.k05_stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from protocol.messages.k06_update_metadata import UpdateMetadataResponse
from protocol.messages.k07_controlled_shutdown import ControlledShutdownResponse
from protocol.messages.k56_alter_partition import AlterPartitionResponse
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse

FIRST_VERSION_BY_TOPIC_ID: Final = 5
Refuse = Callable[[Call, ErrorCode], Answer]


def handle_leader_and_isr(broker: ZookeeperBroker, call: Call) -> Deferred:
    """LeaderAndIsr (4) on a ZooKeeper-mode broker: sent by the controller, processed in order.

    Respond once the broker has applied it.

    Source: kafka.server.KafkaApis.handleLeaderAndIsrRequest.
    """
    assert broker.zookeeper is not None, "only ZooKeeper-mode brokers serve this API"
    return broker.zookeeper.requests.take(call, refuse_leader_and_isr)


def refuse_leader_and_isr(call: Call, error: ErrorCode) -> Answer:
    """Return a response for a request-level error: each partition has it, too
    (LeaderAndIsrRequest.getErrorResponse).
    """
    request = call.body
    assert isinstance(request, LeaderAndIsrRequest), "dispatch decodes by API key"
    answer = LeaderAndIsrResponse(error_code=error)
    if call.api_version >= FIRST_VERSION_BY_TOPIC_ID:
        for topic in request.topic_states:
            rows = [
                LeaderAndIsrPartitionError(partition_index=each.partition_index, error_code=error)
                for each in topic.partition_states
            ]
            answer.topics.append(
                LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=rows)
            )
        return answer
    named = [(each.topic_name, each) for each in request.ungrouped_partition_states]
    named += [
        (topic.topic_name, each)
        for topic in request.topic_states
        for each in topic.partition_states
    ]
    answer.partition_errors = [
        LeaderAndIsrPartitionError(
            topic_name=name, partition_index=each.partition_index, error_code=error
        )
        for name, each in named
    ]
    return answer


LEADER_AND_ISR = Handler(
    key=ApiKey.LEADER_AND_ISR, handle=handle_leader_and_isr, refuse=refuse_leader_and_isr
)


def handle_stop_replica(broker: ZookeeperBroker, call: Call) -> Deferred:
    """StopReplica (5) on a ZooKeeper-mode broker: sent by the controller, processed in order.

    Respond once the broker has applied it.

    Source: kafka.server.KafkaApis.handleStopReplicaRequest.
    """
    assert broker.zookeeper is not None, "only ZooKeeper-mode brokers serve this API"
    return broker.zookeeper.requests.take(call, refuse_stop_replica)


def refuse_stop_replica(call: Call, error: ErrorCode) -> Answer:
    """Return a response for a request-level error: each partition has it, too
    (StopReplicaRequest.getErrorResponse).
    """
    request = call.body
    assert isinstance(request, StopReplicaRequest), "dispatch decodes by API key"
    named = [(each.topic_name, each.partition_index) for each in request.ungrouped_partitions]
    named += [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    named += [
        (topic.topic_name, each.partition_index)
        for topic in request.topic_states
        for each in topic.partition_states
    ]
    rows = [
        StopReplicaPartitionError(topic_name=name, partition_index=index, error_code=error)
        for name, index in named
    ]
    return StopReplicaResponse(error_code=error, partition_errors=rows)


STOP_REPLICA = Handler(
    key=ApiKey.STOP_REPLICA, handle=handle_stop_replica, refuse=refuse_stop_replica
)


def handle_update_metadata(broker: ZookeeperBroker, call: Call) -> Deferred:
    """UpdateMetadata (6) on a ZooKeeper-mode broker: sent by the controller, processed in order.

    Respond once the broker has applied it.

    Source: kafka.server.KafkaApis.handleUpdateMetadataRequest.
    """
    assert broker.zookeeper is not None, "only ZooKeeper-mode brokers serve this API"
    return broker.zookeeper.requests.take(call, refuse_update_metadata)


def refuse_update_metadata(call: Call, error: ErrorCode) -> Answer:
    """Return a response for a request-level error."""
    return UpdateMetadataResponse(error_code=error)


UPDATE_METADATA = Handler(
    key=ApiKey.UPDATE_METADATA, handle=handle_update_metadata, refuse=refuse_update_metadata
)


def _handle_as_controller(broker: ZookeeperBroker, call: Call, refuse: Refuse) -> Answer | Deferred:
    assert broker.zookeeper is not None, "only ZooKeeper-mode brokers serve this API"
    controller = broker.zookeeper.controller
    return (
        refuse(call, ErrorCode.NOT_CONTROLLER)
        if controller is None
        else controller.handle(call.api_key, call)
    )


def handle_controlled_shutdown(broker: ZookeeperBroker, call: Call) -> Answer | Deferred:
    """ControlledShutdown (7) on a ZooKeeper-mode broker: a stopping broker asks the controller to
    move its leaderships.

    Respond as the controller, or return an error.

    Source: kafka.server.KafkaApis, kafka.controller.KafkaController.doControlledShutdown.
    """
    return _handle_as_controller(broker, call, refuse_controlled_shutdown)


def refuse_controlled_shutdown(call: Call, error: ErrorCode) -> Answer:
    """Return a response for a request-level error."""
    return ControlledShutdownResponse(error_code=error)


CONTROLLED_SHUTDOWN = Handler(
    key=ApiKey.CONTROLLED_SHUTDOWN,
    handle=handle_controlled_shutdown,
    refuse=refuse_controlled_shutdown,
)


def handle_alter_partition(broker: ZookeeperBroker, call: Call) -> Answer | Deferred:
    """AlterPartition (56) on a ZooKeeper-mode broker: a leader asks the controller to change the
    ISR.

    Respond as the controller, or return an error.

    Source: kafka.server.KafkaApis, kafka.controller.KafkaController.processAlterPartition.
    """
    return _handle_as_controller(broker, call, refuse_alter_partition)


def refuse_alter_partition(call: Call, error: ErrorCode) -> Answer:
    """Return a response for a request-level error."""
    return AlterPartitionResponse(error_code=error)


ALTER_PARTITION = Handler(
    key=ApiKey.ALTER_PARTITION, handle=handle_alter_partition, refuse=refuse_alter_partition
)


def handle_allocate_producer_ids(broker: ZookeeperBroker, call: Call) -> Answer | Deferred:
    """AllocateProducerIds (67) on a ZooKeeper-mode broker: a broker requests a block of producer
    ids from the controller.

    Respond as the controller, or return an error.

    Source: kafka.server.KafkaApis, kafka.controller.KafkaController.processAllocateProducerIds.
    """
    return _handle_as_controller(broker, call, refuse_allocate_producer_ids)


def refuse_allocate_producer_ids(call: Call, error: ErrorCode) -> Answer:
    """Return a response for a request-level error."""
    return AllocateProducerIdsResponse(error_code=error)


ALLOCATE_PRODUCER_IDS = Handler(
    key=ApiKey.ALLOCATE_PRODUCER_IDS,
    handle=handle_allocate_producer_ids,
    refuse=refuse_allocate_producer_ids,
)


HANDLERS = (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    CONTROLLED_SHUTDOWN,
    ALTER_PARTITION,
    ALLOCATE_PRODUCER_IDS,
)
