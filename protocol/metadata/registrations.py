"""Records of brokers and controllers: their registrations, and whether a broker may lead.

Source: KIP-631, KIP-841, KIP-919; the JSON definitions named at each record.
"""

from protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
    uint16,
    uuid,
)

# --------------------------------------------------------------------------------------------------
# RegisterBrokerRecord (0): a broker is registered with a new broker epoch.
#
# The epoch is the offset of this very record. v1 was added in 3.3 (controlled shutdown), v2 in 3.4
# (migration), v3 in 3.7 (directories), v4 in 4.3.
# Source: KIP-631, KIP-866, KIP-858, KIP-1066; RegisterBrokerRecord.json.


@structure
class BrokerEndpoint:
    """An endpoint of the broker."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@structure
class BrokerFeature:
    """A feature and the levels that the broker supports, both inclusive."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message(key=0, kind="metadata", versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    """A broker is fenced when it registers."""

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean(since=2)
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean(since=1)
    log_dirs: list[bytes] = array(uuid, tag=0, tagged="3+")
    cordoned_log_dirs: list[bytes] | None = array(
        uuid, tag=1, tagged="4+", nullable="4+", default=None
    )


# --------------------------------------------------------------------------------------------------
# UnregisterBrokerRecord (1): a broker was unregistered by an operator.
#
# Source: KIP-631, UnregisterBrokerRecord.json.


@message(key=1, kind="metadata", versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """With the broker epoch that ends, too."""

    broker_id: int = int32()
    broker_epoch: int = int64()


# --------------------------------------------------------------------------------------------------
# FenceBrokerRecord (7): a broker is fenced and may not lead; since 3.3 replaced by record 17.
#
# Source: KIP-631, FenceBrokerRecord.json.


@message(key=7, kind="metadata", versions="0", flexible="0+")
class FenceBrokerRecord:
    """The broker and its broker epoch."""

    id: int = int32()
    epoch: int = int64()


# --------------------------------------------------------------------------------------------------
# UnfenceBrokerRecord (8): a broker is unfenced and may lead; since 3.3 replaced by record 17.
#
# Source: KIP-631, UnfenceBrokerRecord.json.


@message(key=8, kind="metadata", versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """The broker and its broker epoch."""

    id: int = int32()
    epoch: int = int64()


# --------------------------------------------------------------------------------------------------
# BrokerRegistrationChangeRecord (17): a broker is fenced or unfenced, starts a controlled
# shutdown, or loses a directory (3.3).
#
# v1 adds the controlled shutdown, v2 directories (3.7), v3 cordoned directories (4.3).
# Source: KIP-841, KIP-858, KIP-1066; BrokerRegistrationChangeRecord.json.

UNFENCE = -1
NO_FENCING_CHANGE = 0
FENCE = 1
NO_SHUTDOWN_CHANGE = 0
IN_CONTROLLED_SHUTDOWN = 1


@message(key=17, kind="metadata", versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """Only changes; an empty list of directories means unchanged."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0, tagged="0+", default=NO_FENCING_CHANGE)
    in_controlled_shutdown: int = int8(tag=1, tagged="1+", default=NO_SHUTDOWN_CHANGE)
    log_dirs: list[bytes] = array(uuid, tag=2, tagged="2+")
    cordoned_log_dirs: list[bytes] | None = array(
        uuid, tag=3, tagged="3+", nullable="3+", default=None
    )


# --------------------------------------------------------------------------------------------------
# RegisterControllerRecord (27): a controller is registered with its supported features (3.7).
#
# Source: KIP-919, RegisterControllerRecord.json.


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


# --------------------------------------------------------------------------------------------------
# UnregisterControllerRecord (29): a controller was unregistered (4.4).
#
# Source: UnregisterControllerRecord.json.


@message(key=29, kind="metadata", versions="0", flexible="0+")
class UnregisterControllerRecord:
    """By its node id."""

    controller_id: int = int32()
