"""EndQuorumEpoch (54): a leader resigns, and names its preferred successors.

Source: KIP-595, org.apache.kafka.raft.KafkaRaftClient.handleEndQuorumEpochRequest.
"""

from kraftsim.raft.quorum_requests import QuorumMember, ask_quorum
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochResponse


def handle(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """Answer; an election starts soon."""
    return ask_quorum(controller, call)


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return EndQuorumEpochResponse(error_code=error)


HANDLER: Handler[QuorumMember] = Handler(key=ApiKey.END_QUORUM_EPOCH, handle=handle, refuse=_refuse)
