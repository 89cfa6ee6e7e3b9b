"""UpdateMetadata (6) on a ZooKeeper-mode broker: sent by the controller, processed in order.

Source: kafka.server.KafkaApis.handleUpdateMetadataRequest.
"""

from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.zookeeper.broker_mode import ZookeeperBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k06_update_metadata import UpdateMetadataResponse


def handle(broker: ZookeeperBroker, call: Call) -> Deferred:
    """Respond once the broker has applied it."""
    assert broker.zookeeper is not None, "only ZooKeeper-mode brokers serve this API"
    return broker.zookeeper.requests.take(call, refuse)


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response for a request-level error."""
    return UpdateMetadataResponse(error_code=error)


HANDLER = Handler(key=ApiKey.UPDATE_METADATA, handle=handle, refuse=refuse)
