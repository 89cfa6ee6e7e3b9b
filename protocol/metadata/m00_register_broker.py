"""RegisterBrokerRecord (0): a broker is registered with a new broker epoch.

The epoch is the offset of this very record. v1 was added in 3.3 (controlled shutdown), v2 in 3.4
(migration), v3 in 3.7 (directories), v4 in 4.3.
Source: KIP-631, KIP-866, KIP-858, KIP-1066; RegisterBrokerRecord.json.
"""

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
