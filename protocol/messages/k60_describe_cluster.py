"""DescribeCluster (60): the cluster id and the brokers, or on a controller the controllers.

The content of Metadata (3) without the topics; admin clients use it, and since v1 may connect to
controllers directly.
Source: KIP-700, KIP-919 (v1: controllers), KIP-1073 (v2: fenced brokers);
DescribeClusterRequest.json, DescribeClusterResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int8, int16, int32, message, string, structure

BROKERS = 1
CONTROLLERS = 2
NO_CONTROLLER = -1
OPERATIONS_NOT_ASKED_FOR = -(2**31)

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # controllers require ALTER on the cluster
    ErrorCode.UNSUPPORTED_VERSION,  # a controller before metadata.version 3.7
    ErrorCode.INVALID_REQUEST,  # v0, for the two below
    ErrorCode.MISMATCHED_ENDPOINT_TYPE,
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
)


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """v1 adds the intended node type; v2 can include fenced brokers."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=BROKERS)
    include_fenced_brokers: bool = boolean(since=2)


@structure
class DescribeClusterBroker:
    """A broker or controller on the listener of the request; v2 adds whether it is fenced."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean(since=2)


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """controller_id is the active controller on a controller, on a KRaft broker a random broker,
    which forwards requests.

    Operations are bits by number of the AclOperation, 0 if the client may not see them.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8(since=1, default=BROKERS)
    cluster_id: str = string()
    controller_id: int = int32(default=NO_CONTROLLER)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=OPERATIONS_NOT_ASKED_FOR)
