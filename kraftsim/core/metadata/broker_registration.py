"""A broker as the metadata log knows it; the same value on controllers and in every broker's image.

Source: org.apache.kafka.metadata.BrokerRegistration.
"""

from dataclasses import dataclass, replace

from protocol.metadata.m00_register_broker import RegisterBrokerRecord
from protocol.metadata.m17_broker_registration_change import FENCE, IN_CONTROLLED_SHUTDOWN, NO_FENCING_CHANGE, UNFENCE, BrokerRegistrationChangeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredListener:
    """Where a broker can be reached. security_protocol: 0 plain text, 1 TLS, 2 SASL, 3 both."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedFeature:
    """The levels of a feature that a broker supports, both inside."""

    name: str
    first_level: int
    last_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """`broker_epoch` is the offset at which this incarnation registered; requests that carry another one come from another life of the broker."""

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    listeners: tuple[RegisteredListener, ...]
    features: tuple[SupportedFeature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions."""
        return not self.fenced and not self.in_controlled_shutdown

    def listener(self, name: str) -> RegisteredListener | None:
        """Return the listener of a name, or None."""
        return next((listener for listener in self.listeners if listener.name == name), None)

    def changed_by(self, record: BrokerRegistrationChangeRecord) -> "BrokerRegistration":
        """Return the registration after a change. A broker that is fenced is out of its controlled shutdown, too."""
        assert record.broker_epoch == self.broker_epoch, f"a change for epoch {record.broker_epoch} of broker {self.broker_id}"
        shuts_down = record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN
        return replace(
            self,
            fenced=record.fenced == FENCE or (self.fenced and record.fenced != UNFENCE),
            in_controlled_shutdown=shuts_down or (self.in_controlled_shutdown and record.fenced == NO_FENCING_CHANGE),
            directories=tuple(record.log_dirs) or self.directories,
        )


def registration_of(record: RegisterBrokerRecord) -> BrokerRegistration:
    """Return what a RegisterBrokerRecord says."""
    return BrokerRegistration(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        listeners=tuple(
            RegisteredListener(name=end_point.name, host=end_point.host, port=end_point.port, security_protocol=end_point.security_protocol)
            for end_point in record.end_points
        ),
        features=tuple(
            SupportedFeature(name=feature.name, first_level=feature.min_supported_version, last_level=feature.max_supported_version)
            for feature in record.features
        ),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=tuple(record.log_dirs),
    )
