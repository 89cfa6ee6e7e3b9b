"""AlterPartition (56) on a broker whose metadata is in ZooKeeper: a leader asks the controller for other replicas in sync.

Who is not the controller says so.   Source: kafka.server.KafkaApis, kafka.controller.KafkaController.processAlterPartition.
"""

from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k56_alter_partition import AlterPartitionResponse


def handle(broker: Broker, call: Call) -> Answer | Deferred:
    """Answer as the controller, or refuse."""
    assert broker.zookeeper is not None, "others do not offer it"
    controller = broker.zookeeper.controller
    return refuse(call, ErrorCode.NOT_CONTROLLER) if controller is None else controller.handle(call.api_key, call)


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Build the answer of an error that concerns the whole request."""
    return AlterPartitionResponse(error_code=error)


HANDLER = Handler(key=ApiKey.ALTER_PARTITION, handle=handle, refuse=refuse)
