"""DescribeCluster (60) on a controller: the registered controllers, with their addresses on the
listener of the request.

Every controller answers, from committed metadata.   Source: KIP-919,
kafka.server.ControllerApis.handleDescribeCluster.
"""

from typing import Protocol

from kraftsim.core.decision import Decision
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.describe_cluster import describe_cluster, refuse_endpoint
from kraftsim.raft.quorum_requests import QuorumMember
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k60_describe_cluster import (
    CONTROLLERS,
    NO_CONTROLLER,
    DescribeClusterBroker,
    DescribeClusterResponse,
)

TOO_OLD = "Direct-to-controller communication is not supported with the current MetadataVersion."


class DescribingController(DecidingController, QuorumMember, Protocol):
    """A controller that knows the leader of the quorum."""


def handle(controller: DescribingController, call: Call) -> Answer | Deferred:
    """Answer once everything in the response is committed."""
    state = controller.metadata_writer.state
    if not state.features.metadata_level.has_controller_registrations:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=TOO_OLD
        )
    refused = refuse_endpoint(call, CONTROLLERS)
    if refused is not None:
        return refused
    leader_id = controller.raft.quorum.leader_id
    answer = describe_cluster(
        call,
        CONTROLLERS,
        cluster_id=controller.config.cluster_id,
        nodes=[
            DescribeClusterBroker(
                broker_id=registered.controller_id, host=end_point.host, port=end_point.port
            )
            for registered in sorted(
                state.registries.controllers.records(), key=lambda record: record.controller_id
            )
            for end_point in registered.end_points
            if end_point.name == call.listener
        ],
        controller_id=NO_CONTROLLER if leader_id is None else leader_id,
    )
    return (
        controller.metadata_writer.commit(Decision([], None), lambda offsets: answer)
        if controller.is_active
        else answer
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return DescribeClusterResponse(error_code=error)


HANDLER: Handler[DescribingController] = Handler(
    key=ApiKey.DESCRIBE_CLUSTER, handle=handle, refuse=_refuse
)
