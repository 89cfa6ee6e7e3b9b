"""LeaderAndIsr (4) on a ZooKeeper-mode broker: sent by the controller, processed in order.

Source: kafka.server.KafkaApis.handleLeaderAndIsrRequest.
"""

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

FIRST_VERSION_BY_TOPIC_ID: Final = 5


def handle(broker: ZookeeperBroker, call: Call) -> Deferred:
    """Respond once the broker has applied it."""
    assert broker.zookeeper is not None, "only ZooKeeper-mode brokers serve this API"
    return broker.zookeeper.requests.take(call, refuse)


def refuse(call: Call, error: ErrorCode) -> Answer:
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


HANDLER = Handler(key=ApiKey.LEADER_AND_ISR, handle=handle, refuse=refuse)
