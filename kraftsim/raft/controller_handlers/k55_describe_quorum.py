"""DescribeQuorum (55): voters and observers of the quorum, and their log end offsets.

Source: KIP-595, KIP-836, KIP-853,
org.apache.kafka.raft.KafkaRaftClient.handleDescribeQuorumRequest.
"""

from kraftsim.raft.quorum_requests import QuorumMember
from kraftsim.raft.rules_messages import fitted_response
from kraftsim.raft.rules_serving import describe_quorum
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k55_describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse


def handle(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """Answer immediately; only the leader can."""
    request = call.body
    assert isinstance(request, DescribeQuorumRequest), "dispatch decodes by API key"
    raft = controller.raft
    return fitted_response(
        describe_quorum(raft.quorum, request, raft.now_ms(), raft.wall_ms()), call.api_version
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return DescribeQuorumResponse(error_code=error)


HANDLER: Handler[QuorumMember] = Handler(key=ApiKey.DESCRIBE_QUORUM, handle=handle, refuse=_refuse)
