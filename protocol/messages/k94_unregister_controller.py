"""UnregisterController (94): remove the registration of a controller that was permanently removed.

Controller registrations limit which feature levels may be finalized, so a stale one would block
upgrades.
Source: ClusterControlManager and QuorumController of 4.4; UnregisterControllerRequest.json,
UnregisterControllerResponse.json.
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
    """No error once the controller is unregistered."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
