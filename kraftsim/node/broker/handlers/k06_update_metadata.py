"""UpdateMetadata (6) on a broker whose metadata is in ZooKeeper: what a controller tells it, in the order in which it comes.

Source: kafka.server.KafkaApis.handleUpdateMetadataRequest.
"""

from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k06_update_metadata import UpdateMetadataResponse


def handle(broker: Broker, call: Call) -> Deferred:
    """Answer once the broker acts by it."""
    assert broker.zookeeper is not None, "others do not offer it"
    return broker.zookeeper.requests.take(call, refuse)


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Build the answer of an error that concerns the whole request."""
    return UpdateMetadataResponse(error_code=error)


HANDLER = Handler(key=ApiKey.UPDATE_METADATA, handle=handle, refuse=refuse)
