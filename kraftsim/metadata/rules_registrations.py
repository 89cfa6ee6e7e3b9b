"""What the metadata log registers: brokers, controllers and partitions, as one type each for
controllers and for the brokers' images.

Source: org.apache.kafka.metadata.{BrokerRegistration, PartitionRegistration},
org.apache.kafka.controller.ClusterControlManager.
"""

from dataclasses import dataclass, replace
from typing import Final

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.events import ControllerRegistered
from kraftsim.metadata.rules_versions import MetadataLevel
from protocol.errors import ErrorCode
from protocol.messages.k70_controller_registration import ControllerRegistrationRequest
from protocol.metadata.registrations import (
    FENCE,
    IN_CONTROLLED_SHUTDOWN,
    UNFENCE,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
)
from protocol.metadata.topics import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    PartitionChangeRecord,
    PartitionRecord,
)
from protocol.uuids import MIGRATING_DIRECTORY_ID, uuid_text

# --------------------------------------------------------------------------------------------------
# Brokers


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
        for listener in self.listeners:
            if listener.name == name:
                return listener
        return None

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


# --------------------------------------------------------------------------------------------------
# Controllers: registration and unregistration (KIP-919)

TOO_OLD: Final = Refusal(
    ErrorCode.UNSUPPORTED_VERSION,
    "The current MetadataVersion is too old to support controller registrations.",
)


def decide_register_controller(
    level: MetadataLevel, request: ControllerRegistrationRequest
) -> Decision[None] | Refusal:
    """Register a controller, without validation of its fields. Fails with UNSUPPORTED_VERSION."""
    if not level.has_controller_registrations:
        return TOO_OLD
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
    fact = ControllerRegistered(
        controller_id=request.controller_id, incarnation_id=uuid_text(request.incarnation_id)
    )
    return Decision([record], None, (fact,))


# --------------------------------------------------------------------------------------------------
# Partitions

NO_ELIGIBLE_LEADERS: Final = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
"""The effect of a ClearElrRecord on a partition with an ELR: a change like any other, so that the
partition epoch is bumped.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """replicas are in order of preference; directories correspond to them (all zero if not
    recorded: below level 17).

    eligible_leader_replicas left the ISR and may still lead; last_known_elr is the last leader of a
    leaderless partition. Both are empty up to 4.0 (KIP-966).
    """

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def has_leader(self) -> bool:
        """Whether it has a leader."""
        return self.leader != NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the preferred replica is the leader."""
        return self.leader == (self.replicas[0] if self.replicas else NO_LEADER)

    @property
    def is_reassigning(self) -> bool:
        """Whether it is being reassigned."""
        return bool(self.removing_replicas or self.adding_replicas)

    def directory_of(self, replica: int) -> bytes:
        """Return the directory of one of the replicas."""
        return self.directories[self.replicas.index(replica)]

    def changed_by(self, record: PartitionChangeRecord) -> "PartitionRegistration":
        """Return the partition after a change.

        A record with a leader, even the same one, bumps the leader epoch; any record bumps the
        partition epoch.
        """
        names_leader = record.leader != NO_LEADER_CHANGE
        recovers = record.leader_recovery_state != NO_RECOVERY_STATE_CHANGE
        replicas = _changed(self.replicas, record.replicas)
        return PartitionRegistration(
            replicas=replicas,
            directories=_known_directories(
                self.directories if record.directories is None else tuple(record.directories),
                len(replicas),
            ),
            isr=_changed(self.isr, record.isr),
            removing_replicas=_changed(self.removing_replicas, record.removing_replicas),
            adding_replicas=_changed(self.adding_replicas, record.adding_replicas),
            leader=record.leader if names_leader else self.leader,
            leader_recovery_state=record.leader_recovery_state
            if recovers
            else self.leader_recovery_state,
            leader_epoch=self.leader_epoch + names_leader,
            partition_epoch=self.partition_epoch + 1,
            eligible_leader_replicas=_changed(
                self.eligible_leader_replicas, record.eligible_leader_replicas
            ),
            last_known_elr=_changed(self.last_known_elr, record.last_known_elr),
        )


def partition_of(record: PartitionRecord) -> PartitionRegistration:
    """Return the partition of a PartitionRecord."""
    return PartitionRegistration(
        replicas=tuple(record.replicas),
        directories=_known_directories(tuple(record.directories), len(record.replicas)),
        isr=tuple(record.isr),
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        leader=record.leader,
        leader_recovery_state=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
    )


def partition_record(
    topic_id: bytes, partition_id: int, partition: PartitionRegistration, level: MetadataLevel
) -> PartitionRecord:
    """Return the full partition as a record, in the version of a metadata.version."""
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if level.has_directories else [],
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None
        if level.has_eligible_leaders
        else None,
        last_known_elr=list(partition.last_known_elr) or None
        if level.has_eligible_leaders
        else None,
    )


def _changed(present: tuple[int, ...], following: list[int] | None) -> tuple[int, ...]:
    return present if following is None else tuple(following)


def _known_directories(directories: tuple[bytes, ...], replica_count: int) -> tuple[bytes, ...]:
    """Return one directory per replica: zeros if they are not recorded."""
    is_known = any(directory != MIGRATING_DIRECTORY_ID for directory in directories)
    return directories if is_known else (MIGRATING_DIRECTORY_ID,) * replica_count
