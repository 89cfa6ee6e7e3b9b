"""RegisterControllerRecord (27): a controller is registered with its supported features (3.7).

Source: KIP-919, RegisterControllerRecord.json.
"""

from protocol.schema import array, boolean, int16, int32, message, string, structure, uint16, uuid


@structure
class ControllerEndpoint:
    """An endpoint of the controller."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@structure
class ControllerFeature:
    """A feature and the levels that the controller supports, both inclusive."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message(key=27, kind="metadata", versions="0", flexible="0+")
class RegisterControllerRecord:
    """The incarnation id is random at every start."""

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)
