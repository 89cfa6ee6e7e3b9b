"""ControlledShutdown (7) on a broker whose metadata is in ZooKeeper: a broker that is about to stop asks the controller to move away what it leads.

Who is not the controller says so.   Source: kafka.server.KafkaApis, kafka.controller.KafkaController.doControlledShutdown.
"""

from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k07_controlled_shutdown import ControlledShutdownResponse


def handle(broker: Broker, call: Call) -> Answer | Deferred:
    """Answer as the controller, or refuse."""
    assert broker.zookeeper is not None, "others do not offer it"
    controller = broker.zookeeper.controller
    return refuse(call, ErrorCode.NOT_CONTROLLER) if controller is None else controller.handle(call.api_key, call)


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Build the answer of an error that concerns the whole request."""
    return ControlledShutdownResponse(error_code=error)


HANDLER = Handler(key=ApiKey.CONTROLLED_SHUTDOWN, handle=handle, refuse=refuse)
