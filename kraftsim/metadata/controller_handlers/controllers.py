"""Requests by which controllers register with the active controller, and by which an operator
removes a registration.
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
from protocol.messages.k94_unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


def handle_controller_registration(controller: DecidingController, call: Call) -> Answer | Deferred:
    """ControllerRegistration (70): a controller registers its endpoints and supported features;
    answered once that is committed.

    Refuse immediately, or answer when the registration is committed.

    Source: KIP-919, kafka.server.ControllerApis.handleControllerRegistration.
    """
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


def _refuse_controller_registration(call: Call, error: ErrorCode) -> Answer:
    return ControllerRegistrationResponse(error_code=error)


CONTROLLER_REGISTRATION: Handler[DecidingController] = Handler(
    key=ApiKey.CONTROLLER_REGISTRATION,
    handle=handle_controller_registration,
    refuse=_refuse_controller_registration,
)


def handle_unregister_controller(controller: DecidingController, call: Call) -> Answer | Deferred:
    """UnregisterController (94): removes the registration of a controller that is permanently gone;
    answered once that is committed.

    Refuse immediately, or answer when it is committed. A running controller registers again.

    Source: org.apache.kafka.controller.{QuorumController,
    ClusterControlManager}.unregisterController (4.4), kafka.server.ControllerApis.
    """
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


def _refuse_unregister_controller(call: Call, error: ErrorCode) -> Answer:
    return UnregisterControllerResponse(error_code=error)


UNREGISTER_CONTROLLER: Handler[DecidingController] = Handler(
    key=ApiKey.UNREGISTER_CONTROLLER,
    handle=handle_unregister_controller,
    refuse=_refuse_unregister_controller,
)


HANDLERS = (
    CONTROLLER_REGISTRATION,
    UNREGISTER_CONTROLLER,
)
