"""UnregisterController (94): let the cluster forget a controller that is gone for good.

Registrations of controllers decide which features may be raised, so one that never comes back would stand in the way.
Source: ClusterControlManager and QuorumController of 4.4; UnregisterControllerRequest.json, UnregisterControllerResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import int16, int32, message, string

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_REQUEST,  # the active controller cannot unregister itself
    ErrorCode.UNSUPPORTED_VERSION,  # the metadata.version has no such record
    ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
)


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerRequest:
    """By its node id."""

    controller_id: int = int32()


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerResponse:
    """No error once the controller is forgotten."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
