"""A broker registration of the metadata log; the same type on controllers and in the brokers'
images.

Source: org.apache.kafka.metadata.BrokerRegistration.
"""

from dataclasses import dataclass, replace

from kraftsim.core.metadata.metadata_level import MetadataLevel
from protocol.metadata.m00_register_broker import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)
from protocol.metadata.m07_fence_broker import FenceBrokerRecord
from protocol.metadata.m08_unfence_broker import UnfenceBrokerRecord
from protocol.metadata.m17_broker_registration_change import (
    FENCE,
    IN_CONTROLLED_SHUTDOWN,
    UNFENCE,
    BrokerRegistrationChangeRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredListener:
    """A listener of a broker. security_protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3
    SASL_SSL.
    """

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedFeature:
    """The range of levels of a feature that a broker supports, inclusive."""

    name: str
    first_level: int
    last_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """`broker_epoch` is the offset of the registration record; a request with another epoch is from
    another incarnation of the broker.
    """

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    listeners: tuple[RegisteredListener, ...]
    features: tuple[SupportedFeature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    is_migrating_zk_broker: bool = False
    cordoned_directories: tuple[bytes, ...] | None = None
    """Cordoned directories, which get no new partitions (KIP-1066); None: not reported."""

    @property
    def is_active(self) -> bool:
        """Whether it is active: neither fenced nor in controlled shutdown."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def takes_partitions(self) -> bool:
        """Whether any of its directories may get new partitions."""
        cordoned = self.cordoned_directories or ()
        return not (cordoned and self.directories) or any(
            directory not in cordoned for directory in self.directories
        )

    def listener(self, name: str) -> RegisteredListener | None:
        """Return the listener with a name, or None."""
        return next((listener for listener in self.listeners if listener.name == name), None)

    def changed_by(self, record: BrokerRegistrationChangeRecord) -> "BrokerRegistration":
        """Return the registration after a change.

        A controlled shutdown is not reset while the registration lasts.

        Source: BrokerRegistration.cloneWith; compared with Apache Kafka 3.9.1.
        """
        assert record.broker_epoch == self.broker_epoch, (
            f"a change for epoch {record.broker_epoch} of broker {self.broker_id}"
        )
        return replace(
            self,
            fenced=record.fenced == FENCE or (self.fenced and record.fenced != UNFENCE),
            in_controlled_shutdown=self.in_controlled_shutdown
            or record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN,
            directories=tuple(record.log_dirs) or self.directories,
            cordoned_directories=self.cordoned_directories
            if record.cordoned_log_dirs is None
            else tuple(record.cordoned_log_dirs),
        )


def registration_of(record: RegisterBrokerRecord) -> BrokerRegistration:
    """Return the registration of a RegisterBrokerRecord."""
    return BrokerRegistration(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        listeners=tuple(
            RegisteredListener(
                name=end_point.name,
                host=end_point.host,
                port=end_point.port,
                security_protocol=end_point.security_protocol,
            )
            for end_point in record.end_points
        ),
        features=tuple(
            SupportedFeature(
                name=feature.name,
                first_level=feature.min_supported_version,
                last_level=feature.max_supported_version,
            )
            for feature in record.features
        ),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=tuple(record.log_dirs),
        is_migrating_zk_broker=record.is_migrating_zk_broker,
        cordoned_directories=None
        if record.cordoned_log_dirs is None
        else tuple(record.cordoned_log_dirs),
    )


def register_broker_record(
    broker: BrokerRegistration, level: MetadataLevel
) -> RegisterBrokerRecord:
    """Return the full registration as a record, in the version of a metadata.version."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker and level.has_migration_state,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=[
            BrokerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in broker.listeners
        ],
        features=[
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.first_level,
                max_supported_version=feature.last_level,
            )
            for feature in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories) if level.has_directories else [],
        cordoned_log_dirs=list(broker.cordoned_directories)
        if level.has_cordons and broker.cordoned_directories is not None
        else None,
    )


def as_registration_change(
    record: FenceBrokerRecord | UnfenceBrokerRecord,
) -> BrokerRegistrationChangeRecord:
    """Convert an older record (before 3.3-IV2) to a BrokerRegistrationChangeRecord."""
    fenced = FENCE if isinstance(record, FenceBrokerRecord) else UNFENCE
    return BrokerRegistrationChangeRecord(
        broker_id=record.id, broker_epoch=record.epoch, fenced=fenced
    )
