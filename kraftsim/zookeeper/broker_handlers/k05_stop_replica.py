"""StopReplica (5) on a ZooKeeper-mode broker: sent by the controller, processed in order.

Source: kafka.server.KafkaApis.handleStopReplicaRequest.
"""

from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.zookeeper.broker_mode import ZookeeperBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k05_stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)


def handle(broker: ZookeeperBroker, call: Call) -> Deferred:
    """Respond once the broker has applied it."""
    assert broker.zookeeper is not None, "only ZooKeeper-mode brokers serve this API"
    return broker.zookeeper.requests.take(call, refuse)


def refuse(call: Call, error: ErrorCode) -> Answer:
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


HANDLER = Handler(key=ApiKey.STOP_REPLICA, handle=handle, refuse=refuse)
