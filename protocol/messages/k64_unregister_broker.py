"""UnregisterBroker (64): take a broker that is gone for good off the cluster's books.

Its id leaves all in-sync replicas. A broker that is alive can be unregistered too; it stays out until it registers again.
Source: KIP-631; UnregisterBrokerRequest.json, UnregisterBrokerResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import int16, int32, message, string

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
)


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    """KRaft only: in ZooKeeper mode a broker was gone with its session."""

    broker_id: int = int32()


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """Whether the broker is off the books; the message is null if it is."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
