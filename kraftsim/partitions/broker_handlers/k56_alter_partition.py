"""AlterPartition (56) on a ZooKeeper-mode broker: a leader asks the controller to change the ISR.

A broker that is not the controller returns an error.
Source: kafka.server.KafkaApis, kafka.controller.KafkaController.processAlterPartition.
"""

from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.zookeeper.broker_mode import ZookeeperBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k56_alter_partition import AlterPartitionResponse


def handle(broker: ZookeeperBroker, call: Call) -> Answer | Deferred:
    """Respond as the controller, or return an error."""
    assert broker.zookeeper is not None, "only ZooKeeper-mode brokers serve this API"
    controller = broker.zookeeper.controller
    return (
        refuse(call, ErrorCode.NOT_CONTROLLER)
        if controller is None
        else controller.handle(call.api_key, call)
    )


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response for a request-level error."""
    return AlterPartitionResponse(error_code=error)


HANDLER = Handler(key=ApiKey.ALTER_PARTITION, handle=handle, refuse=refuse)
