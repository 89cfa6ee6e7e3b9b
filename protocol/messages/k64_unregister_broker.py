"""UnregisterBroker (64): remove the registration of a broker that was permanently removed.

Its id is removed from all ISRs. A live broker can be unregistered, too; it is unknown until it
registers again.
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
    """KRaft only: in ZooKeeper mode a broker's registration ended with its session."""

    broker_id: int = int32()


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """Whether the broker is unregistered; the message is null if it is."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
