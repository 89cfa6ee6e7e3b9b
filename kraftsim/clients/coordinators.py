"""Finds coordinators.

Source: org.apache.kafka.clients.consumer.internals.CoordinatorRequestManager, KIP-699 (several keys
a request).
"""

from kraftsim.clients.cluster_connections import ClusterConnections, error_of
from kraftsim.clients.rules_transaction_steps import CoordinatorKind
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_WITH_TYPE = 1
FIRST_WITH_KEYS = 4


async def find_coordinator(
    connections: ClusterConnections, kind: CoordinatorKind, key: str
) -> int | ErrorCode:
    """Return the id of the coordinator of a key, or the error. Raises OSError.

    The coordinator's address is added to the known brokers.
    """
    connection = await connections.to_any()
    version = connection.version_for(ApiKey.FIND_COORDINATOR)
    request = FindCoordinatorRequest()
    if version >= FIRST_WITH_TYPE:
        request.key_type = kind.value
    if version >= FIRST_WITH_KEYS:
        request.coordinator_keys = [key]
    else:
        request.key = key
    answer = await connection.request(request, api_version=version)
    assert isinstance(answer, FindCoordinatorResponse), "the response of FindCoordinator"
    found: FindCoordinatorResponse | Coordinator = (
        answer.coordinators[0] if version >= FIRST_WITH_KEYS else answer
    )
    error = error_of(found.error_code)
    if error is not ErrorCode.NONE:
        return error
    connections.learn(found.node_id, (found.host, found.port))
    return found.node_id
