"""BeginQuorumEpoch (53): a new leader announces its epoch.

Source: KIP-595, org.apache.kafka.raft.KafkaRaftClient.handleBeginQuorumEpochRequest.
"""

from kraftsim.raft.quorum_requests import QuorumMember, ask_quorum
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochResponse


def handle(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """Answer once the transition to follower is durable."""
    return ask_quorum(controller, call)


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return BeginQuorumEpochResponse(error_code=error)


HANDLER: Handler[QuorumMember] = Handler(
    key=ApiKey.BEGIN_QUORUM_EPOCH, handle=handle, refuse=_refuse
)
