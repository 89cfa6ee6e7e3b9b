"""BrokerHeartbeat (63): a broker reports its liveness, its metadata offset and the state it wants;
the response contains the state it is granted.

Most heartbeats change nothing and write nothing; one that does is answered when the change is
committed.
Source: KIP-631, org.apache.kafka.controller.BrokerHeartbeatManager.
"""

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import SessionController
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


def handle(controller: SessionController, call: Call) -> Answer | Deferred:
    """Refuse immediately, or answer when the change of the heartbeat is committed."""
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return BrokerHeartbeatResponse(error_code=error)


HANDLER: Handler[SessionController] = Handler(
    key=ApiKey.BROKER_HEARTBEAT, handle=handle, refuse=_refuse
)
