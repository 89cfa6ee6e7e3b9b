"""RegisterControllerRecord (27): a controller is known to the cluster, with what it supports (3.7).

Source: KIP-919, RegisterControllerRecord.json.
"""

from protocol.schema import array, boolean, int16, int32, message, string, structure, uint16, uuid


@structure
class ControllerEndpoint:
    """Where the controller can be reached."""

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
    """The incarnation id is drawn at every start."""

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)
