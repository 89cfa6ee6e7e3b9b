"""Requests by which brokers join the cluster and stay in it, and by which an operator removes one.

A registration gives a broker its epoch, heartbeats keep its session and unfence it. Only the active
controller decides, and answers when its records are committed.
"""

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import DecidingController, SessionController
from kraftsim.metadata.events import BrokerRegistrationRefused
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


def handle_broker_registration(controller: SessionController, call: Call) -> Answer | Deferred:
    """BrokerRegistration (62): a broker registers with the cluster and receives its broker epoch,
    once the registration is committed.

    The epoch is the offset of the record. A live broker with the same id (heartbeat within its
    session) keeps its registration.

    Refuse immediately, or answer when the registration is committed.

    Source: KIP-631, org.apache.kafka.controller.ClusterControlManager.registerBroker.
    """
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


def _refuse_broker_registration(call: Call, error: ErrorCode) -> Answer:
    return BrokerRegistrationResponse(error_code=error)


BROKER_REGISTRATION: Handler[SessionController] = Handler(
    key=ApiKey.BROKER_REGISTRATION,
    handle=handle_broker_registration,
    refuse=_refuse_broker_registration,
)


def handle_broker_heartbeat(controller: SessionController, call: Call) -> Answer | Deferred:
    """BrokerHeartbeat (63): a broker reports its liveness, its metadata offset and the state it
    wants; the response contains the state it is granted.

    Most heartbeats change nothing and write nothing; one that does is answered when the change is
    committed.

    Refuse immediately, or answer when the change of the heartbeat is committed.

    Source: KIP-631, org.apache.kafka.controller.BrokerHeartbeatManager.
    """
    request = call.body
    assert isinstance(request, BrokerHeartbeatRequest), "dispatch decodes by API key"
    decision = controller.metadata_writer.state.decide_heartbeat(
        request, controller.metadata_writer.next_offset, controller.now_ms()
    )
    if isinstance(decision, Refusal):
        return BrokerHeartbeatResponse(error_code=decision.error)
    reply = decision.result
    return controller.metadata_writer.commit(
        decision,
        lambda offsets: BrokerHeartbeatResponse(
            is_caught_up=reply.is_caught_up,
            is_fenced=reply.is_fenced,
            should_shut_down=reply.should_shut_down,
        ),
        is_atomic=False,
    )


def _refuse_broker_heartbeat(call: Call, error: ErrorCode) -> Answer:
    return BrokerHeartbeatResponse(error_code=error)


BROKER_HEARTBEAT: Handler[SessionController] = Handler(
    key=ApiKey.BROKER_HEARTBEAT, handle=handle_broker_heartbeat, refuse=_refuse_broker_heartbeat
)


def handle_unregister_broker(controller: DecidingController, call: Call) -> Answer | Deferred:
    """UnregisterBroker (64): removes a broker registration; answered once that is committed.

    Refuse immediately, without an error message (before 4.0), or answer when it is committed.

    Source: KIP-631, kafka.server.ControllerApis.
    """
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


def _refuse_unregister_broker(call: Call, error: ErrorCode) -> Answer:
    return UnregisterBrokerResponse(error_code=error)


UNREGISTER_BROKER: Handler[DecidingController] = Handler(
    key=ApiKey.UNREGISTER_BROKER, handle=handle_unregister_broker, refuse=_refuse_unregister_broker
)


HANDLERS = (
    BROKER_REGISTRATION,
    BROKER_HEARTBEAT,
    UNREGISTER_BROKER,
)
