"""UnregisterController (94): removes the registration of a controller that is permanently gone;
answered once that is committed.

Source: org.apache.kafka.controller.{QuorumController, ClusterControlManager}.unregisterController
(4.4), kafka.server.ControllerApis.
"""

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k94_unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Refuse immediately, or answer when it is committed. A running controller registers again."""
    request = call.body
    assert isinstance(request, UnregisterControllerRequest), "dispatch decodes by API key"
    decision = controller.metadata_writer.state.decide_unregister_controller(request.controller_id)
    if isinstance(decision, Refusal):
        return UnregisterControllerResponse(
            error_code=decision.error, error_message=decision.message
        )
    return controller.metadata_writer.commit(
        decision, lambda offsets: UnregisterControllerResponse()
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return UnregisterControllerResponse(error_code=error)


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.UNREGISTER_CONTROLLER, handle=handle, refuse=_refuse
)
