"""LeaderAndIsr (4) on a broker whose metadata is in ZooKeeper: what a controller tells it, in the order in which it comes.

Source: kafka.server.KafkaApis.handleLeaderAndIsrRequest.
"""

from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k04_leader_and_isr import LeaderAndIsrResponse


def handle(broker: Broker, call: Call) -> Deferred:
    """Answer once the broker acts by it."""
    assert broker.zookeeper is not None, "others do not offer it"
    return broker.zookeeper.requests.take(call)


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Build the answer of an error that concerns the whole request."""
    return LeaderAndIsrResponse(error_code=error)


HANDLER = Handler(key=ApiKey.LEADER_AND_ISR, handle=handle, refuse=refuse)
