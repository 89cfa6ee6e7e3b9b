"""DescribeCluster (60): the cluster's id and its brokers, or its controllers if a controller is asked.

What Metadata (3) tells, without the topics; admin clients use it, and since v1 may talk to controllers directly.
Source: KIP-700, KIP-919 (v1: controllers), KIP-1073 (v2: fenced brokers); DescribeClusterRequest.json, DescribeClusterResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int8, int16, int32, message, string, structure

BROKERS = 1
CONTROLLERS = 2
NO_CONTROLLER = -1
OPERATIONS_NOT_ASKED_FOR = -(2**31)

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # controllers tell only those who may alter the cluster
    ErrorCode.UNSUPPORTED_VERSION,  # a controller before metadata.version 3.7
    ErrorCode.INVALID_REQUEST,  # v0, for the two below
    ErrorCode.MISMATCHED_ENDPOINT_TYPE,
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
)


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """v1 says which kind of node the asker believes to talk to; v2 can ask for brokers that are fenced too."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=BROKERS)
    include_fenced_brokers: bool = boolean(since=2)


@structure
class DescribeClusterBroker:
    """A node on the listener that was asked, broker or controller; v2 tells whether it is fenced."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean(since=2)


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """controller_id is the active controller where a controller answers, a broker drawn by lot where a KRaft broker does: it passes requests on.

    Operations are bits by number of the AclOperation, 0 where the asker may not even see them.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8(since=1, default=BROKERS)
    cluster_id: str = string()
    controller_id: int = int32(default=NO_CONTROLLER)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=OPERATIONS_NOT_ASKED_FOR)
