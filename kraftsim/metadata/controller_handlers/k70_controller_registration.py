"""ControllerRegistration (70): a controller registers its endpoints and supported features;
answered once that is committed.

Source: KIP-919, kafka.server.ControllerApis.handleControllerRegistration.
"""

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.rules_registrations import decide_register_controller
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k70_controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Refuse immediately, or answer when the registration is committed."""
    request = call.body
    assert isinstance(request, ControllerRegistrationRequest), "dispatch decodes by API key"
    decision = decide_register_controller(
        controller.metadata_writer.state.features.metadata_level, request
    )
    if isinstance(decision, Refusal):
        return ControllerRegistrationResponse(
            error_code=decision.error, error_message=decision.message
        )
    return controller.metadata_writer.commit(
        decision, lambda offsets: ControllerRegistrationResponse()
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return ControllerRegistrationResponse(error_code=error)


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.CONTROLLER_REGISTRATION, handle=handle, refuse=_refuse
)
