"""ControllerRegistration (70): a controller registers its endpoints and supported features with the
active controller.

It lets admin clients find the controllers, and prevents finalizing a feature that some controller
lacks.
Source: KIP-919; ControllerRegistrationRequest.json, ControllerRegistrationResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, message, string, structure, uint16, uuid

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,  # before metadata.version 3.7
    ErrorCode.NOT_CONTROLLER,
)


@structure
class Listener:
    """An endpoint of the controller, and its security protocol (0 plain text, 1 TLS, 2 SASL, 3
    both).
    """

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@structure
class Feature:
    """A feature and the levels that the controller supports, both inclusive."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message(key=70, versions="0", flexible="0+")
class ControllerRegistrationRequest:
    """Sent after every start: each process has a new random incarnation id. zk_migration_ready has
    no meaning since 4.0.
    """

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


@message(key=70, versions="0", flexible="0+")
class ControllerRegistrationResponse:
    """Null instead of a message without an error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
