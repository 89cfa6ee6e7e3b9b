"""Brokers on the controller: registration, sessions, and the state that each heartbeat leads to.

A broker registers and gets an epoch, replays the metadata log up to its registration, is unfenced,
and is fenced again when its session expires.
Source: KIP-631, org.apache.kafka.controller.{BrokerHeartbeatManager, ClusterControlManager}.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from msgspec import Struct

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.timeline import Journal, TimelineDict
from kraftsim.metadata.events import BrokerRegistered
from kraftsim.metadata.rules_features import FeatureControl
from kraftsim.metadata.rules_registrations import BrokerRegistration, registration_of
from kraftsim.metadata.rules_versions import FEATURE, MINIMUM_LEVEL, MetadataLevel
from kraftsim.migration.rules_driver import MigrationStatus
from protocol.errors import ErrorCode
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest
from protocol.metadata.registrations import (
    FENCE,
    IN_CONTROLLED_SHUTDOWN,
    UNFENCE,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from protocol.metadata.settings import NONE
from protocol.uuids import uuid_text

# --------------------------------------------------------------------------------------------------
# The state transitions of a heartbeat: the table of KIP-631
#
# Source: BrokerHeartbeatManager.calculateNextBrokerState.


class BrokerControlState(Enum):
    """The state of a broker on the controller."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


class HeartbeatReply(Struct, frozen=True, kw_only=True):
    """The heartbeat response.

    A broker that must wait with its shutdown sends further heartbeats.
    """

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class HeartbeatTransition(Struct, frozen=True, kw_only=True):
    """The input of a state transition: fields of the heartbeat, and state of the controller.

    is_caught_up: the broker has replayed its own registration. others_are_caught_up: all active
    brokers have replayed the changes of its shutdown; this and leads_partitions matter only for a
    broker in, or requesting, a controlled shutdown.
    """

    wants_fence: bool
    wants_shut_down: bool
    is_caught_up: bool
    leads_partitions: bool
    others_are_caught_up: bool


def control_state(broker: BrokerRegistration, *, is_leaving: bool) -> BrokerControlState:
    """Return the state of a broker.

    `is_leaving`: its controlled shutdown began under this controller and this registration.

    The registration's in_controlled_shutdown is not used: a broker requests its shutdown from every
    new controller.
    """
    if broker.fenced:
        return BrokerControlState.FENCED
    return BrokerControlState.CONTROLLED_SHUTDOWN if is_leaving else BrokerControlState.UNFENCED


def next_state(current: BrokerControlState, wish: HeartbeatTransition) -> BrokerControlState:
    """Return the state after a heartbeat. SHUTDOWN_NOW is a response, never a stored state."""
    match current, wish.wants_fence, wish.wants_shut_down:
        case BrokerControlState.FENCED, _, True:
            return BrokerControlState.SHUTDOWN_NOW
        case BrokerControlState.FENCED, False, False if wish.is_caught_up:
            return BrokerControlState.UNFENCED
        case BrokerControlState.FENCED, _, _:
            return BrokerControlState.FENCED
        case BrokerControlState.UNFENCED, True, True:
            return BrokerControlState.SHUTDOWN_NOW
        case BrokerControlState.UNFENCED, True, False:
            return BrokerControlState.FENCED
        case BrokerControlState.UNFENCED, False, True:
            return (
                BrokerControlState.CONTROLLED_SHUTDOWN
                if wish.leads_partitions
                else BrokerControlState.SHUTDOWN_NOW
            )
        case BrokerControlState.UNFENCED, _, _:
            return BrokerControlState.UNFENCED
        case _ if wish.leads_partitions or not wish.others_are_caught_up:
            return BrokerControlState.CONTROLLED_SHUTDOWN
        case _:
            return BrokerControlState.SHUTDOWN_NOW


# --------------------------------------------------------------------------------------------------
# Sessions: the time of each broker's last heartbeat
#
# Not replicated: a new active controller starts all sessions afresh.

NO_OFFSET: Final = -1
CHECKS_PER_SESSION: Final = 8


def check_period_ms(session_timeout_ms: int, *, is_periodic: bool) -> int:
    """Return the interval of the checks for expired sessions: since 4.0 an eighth of the session
    time-out; before, a check is due when a session expires.

    Source: QuorumController.maybeFenceStaleBrokerPeriodNs.
    """
    return max(session_timeout_ms // CHECKS_PER_SESSION, 1) if is_periodic else 1


def check_at_ms(due_ms: int, began_ms: int, period_ms: int) -> int:
    """Return the first check at or after a time; the controller is active since `began_ms`."""
    return due_ms + (began_ms - due_ms) % period_ms


class BrokerSession:
    """The state from the heartbeats of one broker."""

    __slots__ = ("controlled_shutdown_offset", "last_contact_ms", "metadata_offset")

    def __init__(self, last_contact_ms: int) -> None:
        self.last_contact_ms = last_contact_ms
        self.metadata_offset = NO_OFFSET
        """The highest metadata offset that the broker has applied."""
        self.controlled_shutdown_offset = NO_OFFSET
        """The offset of the last record written when its controlled shutdown began."""


class BrokerSessions:
    """Sessions by broker id. A session is valid up to and including its last millisecond."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, BrokerSession] = {}

    def renew_all(self, broker_ids: Iterable[int], now_ms: int) -> None:
        """Reset all sessions, and start a full session for these brokers."""
        self._sessions = {broker_id: BrokerSession(now_ms) for broker_id in broker_ids}

    def touch(self, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        """Record a heartbeat."""
        session = self._sessions.get(broker_id)
        if session is None:
            session = self._sessions[broker_id] = BrokerSession(now_ms)
        session.last_contact_ms = now_ms
        session.metadata_offset = metadata_offset

    def forget(self, broker_id: int) -> None:
        """Remove the session of an unregistered broker."""
        self._sessions.pop(broker_id, None)

    def begin_registration(self, broker_id: int) -> None:
        """Reset the metadata offset of a broker that (re-)registers."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.metadata_offset = session.controlled_shutdown_offset = NO_OFFSET

    def begin_change(self, broker_id: int, *, is_fenced: bool) -> None:
        """Reset the metadata offset of a broker whose state changes, so that only its next
        heartbeat counts.

        Fencing ends its controlled shutdown.
        Source: BrokerHeartbeatManager.register; compared with Apache Kafka 3.9.1.
        """
        session = self._sessions.get(broker_id)
        if session is not None:
            session.metadata_offset = NO_OFFSET
            if is_fenced:
                session.controlled_shutdown_offset = NO_OFFSET

    def begin_controlled_shutdown(self, broker_id: int, last_offset: int) -> None:
        """Set the offset that the other brokers must have reached before this broker may shut
        down.
        """
        self._sessions[broker_id].controlled_shutdown_offset = last_offset

    def is_leaving(self, broker_id: int) -> bool:
        """Return whether a broker is in a controlled shutdown that began under this controller."""
        return self.controlled_shutdown_offset(broker_id) != NO_OFFSET

    def controlled_shutdown_offset(self, broker_id: int) -> int:
        """Return the offset set by `begin_controlled_shutdown`; -1 if none."""
        session = self._sessions.get(broker_id)
        return NO_OFFSET if session is None else session.controlled_shutdown_offset

    def is_valid(self, broker_id: int, now_ms: int) -> bool:
        """Return whether the last heartbeat of a broker is within the session timeout."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms <= session.last_contact_ms + self.session_timeout_ms

    def lowest_metadata_offset(self, broker_ids: Iterable[int]) -> int | None:
        """Return the lowest metadata offset of these brokers; None if there are none."""
        sessions = (self._sessions.get(broker_id) for broker_id in broker_ids)
        return min(
            (NO_OFFSET if session is None else session.metadata_offset for session in sessions),
            default=None,
        )

    def longest_silent(self, broker_ids: Iterable[int]) -> tuple[int, int] | None:
        """Return (broker id, last contact) of the broker with the oldest heartbeat; None if there
        are none.
        """
        contacts = ((self._last_contact_ms(broker_id), broker_id) for broker_id in broker_ids)
        oldest = min(contacts, default=None)
        return None if oldest is None else (oldest[1], oldest[0])

    def _last_contact_ms(self, broker_id: int) -> int:
        session = self._sessions.get(broker_id)
        return -self.session_timeout_ms - 1 if session is None else session.last_contact_ms


# --------------------------------------------------------------------------------------------------
# Registration and fencing

RESERVED_DIRECTORY_IDS: Final = 100
"""The first hundred uuids are reserved.   Source: org.apache.kafka.common.DirectoryId."""


class ClusterControl:
    """The registered brokers. Registrations are replicated; `sessions` are not."""

    def __init__(
        self,
        journal: Journal,
        features: FeatureControl,
        *,
        cluster_id: str,
        session_timeout_ms: int,
        has_sessions_of_epochs: bool,
    ) -> None:
        self._features = features
        self.standing = MigrationStatus(features, lambda: NONE)
        """The state of a migration from ZooKeeper."""
        self._has_sessions_of_epochs = has_sessions_of_epochs
        """Whether a session belongs to one incarnation, and is valid also while the broker is
        fenced (since 4.0).
        """
        self._cluster_id = cluster_id
        self._brokers: TimelineDict[int, BrokerRegistration] = TimelineDict(journal)
        self._register_offsets: TimelineDict[int, int] = TimelineDict(journal)
        self.sessions = BrokerSessions(session_timeout_ms)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """Return a registration, or None."""
        return self._brokers.get(broker_id)

    def brokers(self) -> Iterator[BrokerRegistration]:
        """Yield every registration, by broker id."""
        return (self._brokers[broker_id] for broker_id in sorted(self._brokers))

    def usable_brokers(self) -> Iterator[BrokerRegistration]:
        """Yield the brokers that may get new partitions, by broker id: fenced ones too, but none in
        controlled shutdown.
        """
        return (
            broker
            for broker in self.brokers()
            if broker.takes_partitions and not self.sessions.is_leaving(broker.broker_id)
        )

    def is_active(self, broker_id: int) -> bool:
        """Return whether a broker is active, so that it may lead partitions."""
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.is_active

    def is_current(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether an epoch is that of the broker's current registration, fenced or not."""
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.broker_epoch == broker_epoch

    def register_offset(self, broker_id: int) -> int | None:
        """Return the offset of a broker's latest registration record: it must have replayed it to
        be unfenced.
        """
        return self._register_offsets.get(broker_id)

    def decide_register(
        self, request: BrokerRegistrationRequest, broker_epoch: int, now_ms: int
    ) -> Decision[int] | Refusal:
        """Register a broker; the result is its epoch.

        `broker_epoch` is the offset that the record will get.

        The same incarnation may register again: it keeps its epoch and state, and only its own
        properties change. Fails with INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION,
        BROKER_ID_NOT_REGISTERED (a migrating ZooKeeper broker where none is expected, or a KRaft
        broker before the migration is complete), INVALID_REGISTRATION or UNSUPPORTED_VERSION.
        """
        refusal = (
            self._refuse_identity(request, now_ms)
            or self._refuse_directories(request)
            or self._refuse_features(request)
        )
        if refusal is not None:
            return refusal
        known = self._brokers.get(request.broker_id)
        amended = (
            known if known is not None and known.incarnation_id == request.incarnation_id else None
        )
        epoch = broker_epoch if amended is None else amended.broker_epoch
        record = RegisterBrokerRecord(
            broker_id=request.broker_id,
            is_migrating_zk_broker=request.is_migrating_zk_broker,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in request.listeners
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=first, max_supported_version=last)
                for name, (first, last) in _features(request).items()
            ],
            rack=request.rack,
            fenced=True if amended is None else amended.fenced,
            in_controlled_shutdown=False if amended is None else amended.in_controlled_shutdown,
            log_dirs=list(request.log_dirs)
            if self._features.metadata_level.has_directories
            else [],
        )
        incarnation_id = uuid_text(request.incarnation_id)
        fact = BrokerRegistered(
            broker_id=request.broker_id,
            broker_epoch=epoch,
            incarnation_id=incarnation_id,
            fenced=record.fenced,
        )
        return Decision([record], epoch, (fact,))

    def stale_broker(self, now_ms: int) -> BrokerRegistration | None:
        """Return the unfenced broker with the oldest heartbeat, if its session has expired."""
        silent = self.sessions.longest_silent(self._unfenced_ids())
        return (
            None
            if silent is None or self.sessions.is_valid(silent[0], now_ms)
            else self._brokers[silent[0]]
        )

    def next_stale_at_ms(self) -> int | None:
        """Return when the next session expires without further heartbeats; None if no broker is
        unfenced.
        """
        silent = self.sessions.longest_silent(self._unfenced_ids())
        return None if silent is None else silent[1] + self.sessions.session_timeout_ms + 1

    def others_are_caught_up(self, broker_id: int) -> bool:
        """Return whether every active broker has replayed the changes of this broker's controlled
        shutdown.
        """
        active = (
            broker
            for broker in self.brokers()
            if not broker.fenced and not self.sessions.is_leaving(broker.broker_id)
        )
        lowest = self.sessions.lowest_metadata_offset(broker.broker_id for broker in active)
        return lowest is None or self.sessions.controlled_shutdown_offset(broker_id) <= lowest

    def replay_register(self, record: RegisterBrokerRecord, offset: int) -> None:
        """Replay a registration."""
        before = self._brokers.get(record.broker_id)
        if (
            self._has_sessions_of_epochs
            and before is not None
            and before.broker_epoch != record.broker_epoch
        ):
            self.sessions.forget(
                record.broker_id
            )  # the session of the new epoch starts with its first heartbeat
        self._brokers[record.broker_id] = registration_of(record)
        self._register_offsets[record.broker_id] = offset
        self.sessions.begin_registration(record.broker_id)

    def replay_unregister(self, record: UnregisterBrokerRecord) -> None:
        """Replay an unregistration."""
        if record.broker_id in self._brokers:
            del self._brokers[record.broker_id]
            del self._register_offsets[record.broker_id]
            self.sessions.forget(record.broker_id)

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Replay the fencing, unfencing or controlled shutdown of a broker."""
        assert record.broker_id in self._brokers, f"broker {record.broker_id} is not registered"
        changed = self._brokers[record.broker_id] = self._brokers[record.broker_id].changed_by(
            record
        )
        self.sessions.begin_change(record.broker_id, is_fenced=changed.fenced)

    def _unfenced_ids(self) -> list[int]:
        return [broker.broker_id for broker in self.brokers() if not broker.fenced]

    def _refuse_identity(self, request: BrokerRegistrationRequest, now_ms: int) -> Refusal | None:
        if request.cluster_id != self._cluster_id:
            return Refusal(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}",
            )
        known = self._brokers.get(request.broker_id)
        is_another = known is not None and known.incarnation_id != request.incarnation_id
        is_another = is_another and (
            self._has_sessions_of_epochs or (known is not None and not known.fenced)
        )
        if is_another and self.sessions.is_valid(request.broker_id, now_ms):
            why = f"another incarnation of broker {request.broker_id} has a valid session"
            return Refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION, why)
        return self.standing.refuse(request)

    def _refuse_directories(self, request: BrokerRegistrationRequest) -> Refusal | None:
        if not self._features.metadata_level.has_directories:
            return None
        directories = request.log_dirs
        if not directories:
            return Refusal(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
        if any(int.from_bytes(directory) < RESERVED_DIRECTORY_IDS for directory in directories):
            return Refusal(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
        if len(dict.fromkeys(directories)) != len(directories):
            return Refusal(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
        for broker in self.brokers():
            shared = next(
                (directory for directory in directories if directory in broker.directories), None
            )
            if shared is not None and broker.broker_id != request.broker_id:
                return Refusal(
                    ErrorCode.INVALID_REGISTRATION,
                    f"Broker {broker.broker_id} is already registered with directory "
                    f"{uuid_text(shared)}",
                )
        return None

    def _refuse_features(self, request: BrokerRegistrationRequest) -> Refusal | None:
        supported = _features(request)
        for name, level in self._features.finalized.items():
            first, last = supported.get(name, (0, 0))
            if not first <= level <= last:
                return Refusal(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"{name} is at level {level}, the broker supports {first} to {last}",
                )
        return None


def _features(request: BrokerRegistrationRequest) -> dict[str, tuple[int, int]]:
    """Return feature -> (min, max level); a broker without metadata.version supports the first
    KRaft level.
    """
    features = {
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    return (
        features if FEATURE in features else {**features, FEATURE: (MINIMUM_LEVEL, MINIMUM_LEVEL)}
    )


def fence_record(
    broker: BrokerRegistration, level: MetadataLevel
) -> BrokerRegistrationChangeRecord | FenceBrokerRecord:
    """Return the record that fences a broker."""
    if not level.has_registration_changes:
        return FenceBrokerRecord(id=broker.broker_id, epoch=broker.broker_epoch)
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=FENCE
    )


def unfence_record(
    broker: BrokerRegistration, level: MetadataLevel
) -> BrokerRegistrationChangeRecord | UnfenceBrokerRecord:
    """Return the record that unfences a broker."""
    if not level.has_registration_changes:
        return UnfenceBrokerRecord(id=broker.broker_id, epoch=broker.broker_epoch)
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=UNFENCE
    )


def controlled_shutdown_record(broker: BrokerRegistration) -> BrokerRegistrationChangeRecord:
    """Return the record that starts the controlled shutdown of a broker."""
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN,
    )
