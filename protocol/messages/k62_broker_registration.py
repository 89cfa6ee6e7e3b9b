"""BrokerRegistration (62): a broker registers with the active controller and gets its broker epoch.

The epoch is the offset of the registration record, and identifies the broker's incarnation in every
later request.
Source: KIP-631, KIP-866 (v1: migration), KIP-858 (v2: log directories), KIP-966 (v3: previous
epoch), KAFKA-17011 (v4: features whose lowest level is 0); BrokerRegistrationRequest.json,
BrokerRegistrationResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
    uint16,
    uuid,
)

NO_BROKER_EPOCH = -1

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_REGISTRATION,
)


@structure
class Listener:
    """An endpoint of the broker, and its security protocol (0 plain text, 1 TLS, 2 SASL, 3
    both).
    """

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@structure
class Feature:
    """A feature and the levels that the broker supports, both inclusive."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationRequest:
    """The incarnation id is random at every start; it distinguishes a retry from a second broker
    with the same id.
    """

    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+")
    is_migrating_zk_broker: bool = boolean(since=1)
    log_dirs: list[bytes] = array(uuid, since=2, ignorable=True)
    previous_broker_epoch: int = int64(since=3, default=NO_BROKER_EPOCH, ignorable=True)


@message(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    """The broker epoch; the broker stays fenced until it has caught up with the metadata log."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=NO_BROKER_EPOCH)
