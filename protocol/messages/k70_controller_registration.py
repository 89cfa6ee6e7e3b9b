"""ControllerRegistration (70): a controller tells the active one where it listens and which features it supports.

Admin clients can so find the controllers, and a feature is not finalized that some controller lacks.
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
    """Where the controller can be reached, and under which protocol (0 plain text, 1 TLS, 2 SASL, 3 both)."""

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
    """Sent again after every start: the incarnation id is drawn anew by each process. zk_migration_ready means nothing since 4.0."""

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


@message(key=70, versions="0", flexible="0+")
class ControllerRegistrationResponse:
    """Null instead of a message where all is well."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
