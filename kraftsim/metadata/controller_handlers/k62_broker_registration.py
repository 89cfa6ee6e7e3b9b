"""BrokerRegistration (62): a broker registers with the cluster and receives its broker epoch, once
the registration is committed.

The epoch is the offset of the record. A live broker with the same id (heartbeat within its session)
keeps its registration.
Source: KIP-631, org.apache.kafka.controller.ClusterControlManager.registerBroker.
"""

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import SessionController
from kraftsim.metadata.events import BrokerRegistrationRefused
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)


def handle(controller: SessionController, call: Call) -> Answer | Deferred:
    """Refuse immediately, or answer when the registration is committed."""
    request = call.body
    assert isinstance(request, BrokerRegistrationRequest), "dispatch decodes by API key"
    writer = controller.metadata_writer
    decision = writer.state.decide_register(
        request, writer.next_offset, controller.now_ms(), call.api_version
    )
    if isinstance(decision, Refusal):
        controller.world.emit(
            BrokerRegistrationRefused(
                broker_id=request.broker_id, error_code=decision.error, reason=decision.why
            )
        )
        return BrokerRegistrationResponse(error_code=decision.error)
    return writer.commit(
        decision, lambda offsets: BrokerRegistrationResponse(broker_epoch=decision.result)
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return BrokerRegistrationResponse(error_code=error)


HANDLER: Handler[SessionController] = Handler(
    key=ApiKey.BROKER_REGISTRATION, handle=handle, refuse=_refuse
)
