"""The DescribeCluster response of brokers and controllers: each kind describes nodes of its own
kind only.

Source: KIP-700, KIP-919, kafka.server.AuthHelper.computeDescribeClusterResponse.
"""

from collections.abc import Sequence
from typing import Final

from kraftsim.server.call import Call
from protocol.errors import ErrorCode
from protocol.messages.k60_describe_cluster import (
    BROKERS,
    CONTROLLERS,
    NO_CONTROLLER,
    OPERATIONS_NOT_ASKED_FOR,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

ENDPOINT_TYPES: Final = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}
ALL_OPERATIONS: Final = 8096
"""All operations on a cluster, as bits of AclOperation: create, alter, describe, cluster action,
describe and alter configs, idempotent write. Without an authorizer every client has all of them.
"""


def refuse_endpoint(call: Call, own: int) -> DescribeClusterResponse | None:
    """Return the error response to a client that expects another endpoint type, or None."""
    request = call.body
    assert isinstance(request, DescribeClusterRequest), "dispatch decodes by API key"
    if request.endpoint_type == own:
        return None
    if request.endpoint_type not in ENDPOINT_TYPES:
        error, why = (
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"Unsupported endpoint type {request.endpoint_type}",
        )
    else:
        asked = ENDPOINT_TYPES[request.endpoint_type]
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        why = (
            f"The request was sent to an endpoint of type {ENDPOINT_TYPES[own]}, but we wanted "
            f"an endpoint of type {asked}"
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.INVALID_REQUEST if call.api_version == 0 else error, error_message=why
    )


def describe_cluster(
    call: Call,
    own: int,
    *,
    cluster_id: str,
    nodes: Sequence[DescribeClusterBroker],
    controller_id: int,
) -> DescribeClusterResponse:
    """Return the nodes; a controller that is not among them is returned as -1."""
    request = call.body
    assert isinstance(request, DescribeClusterRequest), "dispatch decodes by API key"
    return DescribeClusterResponse(
        endpoint_type=own if call.api_version > 0 else BROKERS,
        cluster_id=cluster_id,
        controller_id=controller_id
        if any(node.broker_id == controller_id for node in nodes)
        else NO_CONTROLLER,
        brokers=list(nodes),
        cluster_authorized_operations=ALL_OPERATIONS
        if request.include_cluster_authorized_operations
        else OPERATIONS_NOT_ASKED_FOR,
    )
