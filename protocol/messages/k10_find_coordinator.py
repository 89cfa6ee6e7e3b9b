"""FindCoordinator (10): the coordinator of a group, transactional id or share-partition.

Any broker can answer: the key's hash determines a partition of an internal topic, whose leader is
the coordinator. If the topic does not exist yet, the broker creates it and returns
COORDINATOR_NOT_AVAILABLE.
Source: KIP-98 (v1: transactions), KIP-699 (v4: several keys), KIP-890 (v5), KIP-932 (v6: share
groups); FindCoordinatorRequest.json, FindCoordinatorResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int8, int16, int32, message, string, structure

GROUP = 0  # of key types
TRANSACTION = 1
SHARE = 2  # the key is group:topic id:partition
NO_NODE_ID = -1

ERRORS = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # a share coordinator is found by brokers only
    ErrorCode.INVALID_REQUEST,  # a type of key that the version does not have
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTION_ABORTABLE,  # declared for v5, sent by no release so far
)


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """v0 has a group id, v1 a key with its type, v4 several keys of one type."""

    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(string, since=4)


@structure
class Coordinator:
    """The result of one key: a node and its endpoint, or an error with node -1 and no host."""

    key: str = string(since=4)
    node_id: int = int32(since=4)
    host: str = string(since=4)
    port: int = int32(since=4)
    error_code: int = int16(since=4)
    error_message: str | None = string(since=4, nullable="4+", ignorable=True)


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """Up to v3 one result, since v4 one per key."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable="1-3", ignorable=True)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
