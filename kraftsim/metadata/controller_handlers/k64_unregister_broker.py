"""UnregisterBroker (64): removes a broker registration; answered once that is committed.

Source: KIP-631, kafka.server.ControllerApis.
"""

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Refuse immediately, without an error message (before 4.0), or answer when it is committed."""
    request = call.body
    assert isinstance(request, UnregisterBrokerRequest), "dispatch decodes by API key"
    decision = controller.metadata_writer.state.decide_unregister(request.broker_id)
    if isinstance(decision, Refusal):
        explains = controller.metadata_writer.state.node.explains_unregistration
        return UnregisterBrokerResponse(
            error_code=decision.error, error_message=decision.message if explains else ""
        )
    return controller.metadata_writer.commit(
        decision, lambda offsets: UnregisterBrokerResponse(), is_atomic=False
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return UnregisterBrokerResponse(error_code=error)


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.UNREGISTER_BROKER, handle=handle, refuse=_refuse
)
