"""The migration driver: the steps of a controller that migrates a cluster from ZooKeeper, and keeps
ZooKeeper in sync until the end of the migration.

A step function: an event goes in, effects come out, and the result of an effect comes in as the
next event before any other. Every controller has a driver; the leader's is active. A failed effect
is retried at the next poll.
Source: KIP-866, org.apache.kafka.metadata.migration.{KRaftMigrationDriver, MigrationDriverState} of
3.9.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeAlias, assert_never

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.metadata.rules_features import FeatureControl
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_versions import METADATA_VERSIONS
from kraftsim.migration.events import MigrationDriverMoved, MigrationWaits
from protocol.errors import ErrorCode
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest
from protocol.metadata.settings import MIGRATION, NONE, POST_MIGRATION, PRE_MIGRATION
from protocol.zookeeper.kafka_znodes import MigrationZnode

# --------------------------------------------------------------------------------------------------
# States, and the valid transitions between them
#
# Source: KRaftMigrationDriver.isValidStateChange.


class DriverState(Enum):
    """The state of one controller's driver."""

    UNINITIALIZED = "UNINITIALIZED"
    INACTIVE = "INACTIVE"
    """Another controller is leader, or there is nothing to migrate."""
    WAIT_FOR_CONTROLLER_QUORUM = "WAIT_FOR_CONTROLLER_QUORUM"
    WAIT_FOR_BROKERS = "WAIT_FOR_BROKERS"
    BECOME_CONTROLLER = "BECOME_CONTROLLER"
    """Claims /controller."""
    ZK_MIGRATION = "ZK_MIGRATION"
    """Copies ZooKeeper's metadata to the metadata log."""
    SYNC_KRAFT_TO_ZK = "SYNC_KRAFT_TO_ZK"
    """Brings ZooKeeper in line with the log."""
    KRAFT_CONTROLLER_TO_BROKER_COMM = "KRAFT_CONTROLLER_TO_BROKER_COMM"
    """Sends all metadata to the brokers in ZooKeeper mode."""
    DUAL_WRITE = "DUAL_WRITE"

    @property
    def mirrors(self) -> bool:
        """Whether changes of the log are written to ZooKeeper and sent to brokers."""
        return self in (DriverState.KRAFT_CONTROLLER_TO_BROKER_COMM, DriverState.DUAL_WRITE)


S = DriverState
NEXT: Final[Mapping[DriverState, frozenset[DriverState]]] = {
    S.UNINITIALIZED: frozenset({S.INACTIVE}),
    S.INACTIVE: frozenset({S.WAIT_FOR_CONTROLLER_QUORUM}),
    S.WAIT_FOR_CONTROLLER_QUORUM: frozenset({S.INACTIVE, S.WAIT_FOR_BROKERS, S.BECOME_CONTROLLER}),
    S.WAIT_FOR_BROKERS: frozenset({S.INACTIVE, S.BECOME_CONTROLLER}),
    S.BECOME_CONTROLLER: frozenset({S.INACTIVE, S.ZK_MIGRATION, S.SYNC_KRAFT_TO_ZK}),
    S.ZK_MIGRATION: frozenset({S.INACTIVE, S.SYNC_KRAFT_TO_ZK}),
    S.SYNC_KRAFT_TO_ZK: frozenset({S.INACTIVE, S.KRAFT_CONTROLLER_TO_BROKER_COMM}),
    S.KRAFT_CONTROLLER_TO_BROKER_COMM: frozenset({S.INACTIVE, S.DUAL_WRITE}),
    S.DUAL_WRITE: frozenset({S.INACTIVE}),
}


# --------------------------------------------------------------------------------------------------
# Events, effects, and the driver

POLL_MS: Final = 100
POLL_MAX_MS: Final = 60_000
POLL_JITTER: Final = 0.02
DOUBLINGS_MAX: Final = 10
NOT_CLAIMED: Final = -1
UNKNOWN_ID: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A controller's leadership state in ZooKeeper: /migration with its version, and the
    /controller_epoch that it wrote, with its version.
    """

    znode: MigrationZnode = field(default_factory=MigrationZnode)
    migration_version: int = NOT_CLAIMED
    controller_epoch: int = NOT_CLAIMED
    controller_epoch_version: int = NOT_CLAIMED

    @property
    def is_copy_complete(self) -> bool:
        """Whether the first copy is complete: /migration has the log offset that ZooKeeper is in
        sync with.
        """
        return self.znode.kraft_metadata_offset > 0

    @property
    def is_begun(self) -> bool:
        """Whether a KRaft controller has ever claimed the cluster since /migration was created."""
        return self.znode.kraft_controller_id != UNKNOWN_ID

    @property
    def in_step_until(self) -> tuple[int, int]:
        """(offset, epoch) of the last record written to ZooKeeper."""
        return self.znode.kraft_metadata_offset, self.znode.kraft_metadata_epoch

    def led_by(self, controller_id: int, controller_epoch: int) -> "Claim":
        """Return the state of a new leader: /controller is not claimed yet."""
        znode = replace(
            self.znode, kraft_controller_id=controller_id, kraft_controller_epoch=controller_epoch
        )
        return replace(
            self, znode=znode, controller_epoch=NOT_CLAIMED, controller_epoch_version=NOT_CLAIMED
        )

    def in_step(self, offset: int, epoch: int) -> "Claim":
        """Return the state with ZooKeeper in sync up to an offset."""
        return replace(
            self,
            znode=replace(self.znode, kraft_metadata_offset=offset, kraft_metadata_epoch=epoch),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The committed log has reached an offset.

    `why_not_ready`: why the controllers are not ready, or None.
    """

    offset: int
    epoch: int
    migration_state: int
    migrating_brokers: frozenset[int]
    has_brokers: bool
    why_not_ready: str | None
    brokers_changed: bool
    is_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Polled:
    """The poll interval has passed, or something happened that may let the driver continue."""


@dataclass(frozen=True, slots=True)
class RecoveredMigration:
    """/migration was read, or created."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The leader of an epoch, possibly this controller; None: unknown."""

    leader_id: int | None
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class BrokersSeen:
    """The brokers in ZooKeeper, and those with partition assignments there; the latter are None
    while the former are incomplete.
    """

    registered: frozenset[int]
    assigned: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """/controller is claimed."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Copied:
    """All metadata of ZooKeeper is in the log, and /migration is updated."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class InStep:
    """ZooKeeper is in sync with the log up to an offset."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class BrokersInformed:
    """The initial requests to the brokers are sent."""


@dataclass(frozen=True, slots=True)
class MigrationFailed:
    """ZooKeeper refused a write, or is not reachable; nothing was done, or the result is
    unknown.
    """

    why: str


DriverEvent: TypeAlias = (
    Polled
    | RecoveredMigration
    | LeaderChanged
    | Published
    | BrokersSeen
    | Claimed
    | Copied
    | InStep
    | BrokersInformed
    | MigrationFailed
)


@dataclass(frozen=True, slots=True)
class PollAfter:
    """Poll later; replaces the pending poll."""

    delay_ms: float


@dataclass(frozen=True, slots=True)
class Recover:
    """Read or create /migration: Recovered."""


@dataclass(frozen=True, slots=True)
class LookForBrokers:
    """Read the brokers in ZooKeeper: BrokersSeen.

    The assignments are read only if all brokers are among `migrating`.
    """

    migrating: frozenset[int]


@dataclass(frozen=True, slots=True)
class ClaimController:
    """Claim /controller, then update /migration: Claimed."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class CopyToLog:
    """Copy all metadata of ZooKeeper to the log, then write the offset to /migration: Copied."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class SyncZookeeper:
    """Bring ZooKeeper in line with the image, then update /migration: InStep."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class SendRpcsToBrokers:
    """Send all metadata to the brokers in ZooKeeper mode: BrokersInformed."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Mirror:
    """Write the changes (or, after a snapshot, all metadata) to ZooKeeper, update /migration, and
    send requests to the brokers: InStep.
    """

    claim: Claim
    is_snapshot: bool


@dataclass(frozen=True, slots=True)
class EmitMigrationEvent:
    """Emit an event."""

    event: Event


DriverEffect: TypeAlias = (
    PollAfter
    | Recover
    | LookForBrokers
    | ClaimController
    | CopyToLog
    | SyncZookeeper
    | SendRpcsToBrokers
    | Mirror
    | EmitMigrationEvent
)


class MigrationDriver:
    """The driver of one controller.

    `draw` returns numbers from 0 to 1, for the poll jitter; `state_before` is the log's state until
    all is copied.
    """

    def __init__(
        self, node_id: int, draw: Callable[[], float], *, state_before: int = PRE_MIGRATION
    ) -> None:
        self.state = DriverState.UNINITIALIZED
        self.claim = Claim()
        self._node_id = node_id
        self._draw = draw
        self._state_before = state_before
        self._news: Published | None = None
        self._leader: LeaderChanged | None = None
        self._polls = 0
        self._must_recover = False
        """Whether this controller became leader and has not read /migration since."""
        self._is_begun = False
        """Whether another controller had claimed the cluster before this one became leader."""
        self._is_behind = False
        """Whether a write to ZooKeeper failed after the log had advanced: everything has to be
        compared again.
        """

    @property
    def leads(self) -> bool:
        """Whether this controller is leader, as far as the driver knows."""
        return self._leader is not None and self._leader.leader_id == self._node_id

    def step(self, event: DriverEvent) -> list[DriverEffect]:
        """Return the effects of an event."""
        match event:
            case Polled():
                return self._on_poll()
            case RecoveredMigration(claim):
                return self._on_recovered(claim)
            case LeaderChanged():
                return self._on_leader(event)
            case Published():
                return self._on_published(event)
            case BrokersSeen(registered, assigned):
                return self._on_brokers(registered, assigned)
            case Claimed(claim):
                return self._on_claimed(claim)
            case Copied(claim):
                self.claim = claim
                return self._enter_from(DriverState.ZK_MIGRATION, DriverState.SYNC_KRAFT_TO_ZK)
            case InStep(claim):
                self.claim = claim
                self._is_behind = False
                return self._enter_from(
                    DriverState.SYNC_KRAFT_TO_ZK, DriverState.KRAFT_CONTROLLER_TO_BROKER_COMM
                )
            case BrokersInformed():
                return self._enter_from(
                    DriverState.KRAFT_CONTROLLER_TO_BROKER_COMM, DriverState.DUAL_WRITE
                )
            case MigrationFailed(why):
                self._is_behind = self._is_behind or self.state.mirrors
                return [EmitMigrationEvent(MigrationWaits(state=self.state.value, reason=why))]
            case _:
                assert_never(event)

    def _on_poll(self) -> list[DriverEffect]:
        before, done = self.state, self._act()
        return done if self.state is not before else [*done, self._following_poll()]

    # Actions of a state
    # ----------------------------------------------------------------------------------------------

    def _act(self) -> list[DriverEffect]:
        match self.state:
            case DriverState.UNINITIALIZED:
                return [Recover()]
            case DriverState.WAIT_FOR_CONTROLLER_QUORUM:
                return self._look_at_controllers()
            case DriverState.WAIT_FOR_BROKERS:
                return self._look_for_brokers()
            case DriverState.BECOME_CONTROLLER:
                return [ClaimController(self.claim)]
            case DriverState.ZK_MIGRATION:
                return [CopyToLog(self.claim)]
            case DriverState.SYNC_KRAFT_TO_ZK:
                return self.on_sync_due()
            case DriverState.KRAFT_CONTROLLER_TO_BROKER_COMM:
                return [SendRpcsToBrokers(self.claim)] if self._has_seen_all() else []
            case DriverState.DUAL_WRITE:
                return [Mirror(self.claim, is_snapshot=True)] if self._is_behind else []
            case DriverState.INACTIVE:
                return [Recover()] if self._must_recover else []
            case _:
                assert_never(self.state)

    def on_sync_due(self) -> list[DriverEffect]:
        """Return the effect that brings ZooKeeper in line with the log before changes are written.

        Waits until the image has all records that ZooKeeper has.
        """
        return [SyncZookeeper(self.claim)] if self._has_seen_all() else []

    def _look_at_controllers(self) -> list[DriverEffect]:
        news = self._news
        if news is None:
            return []
        match self._recorded_state(news):
            case state if state == PRE_MIGRATION:
                if news.why_not_ready is not None:
                    return [
                        EmitMigrationEvent(
                            MigrationWaits(state=self.state.value, reason=news.why_not_ready)
                        )
                    ]
                if (why_not := self.why_not_ours()) is not None:
                    return [
                        EmitMigrationEvent(MigrationWaits(state=self.state.value, reason=why_not)),
                        Recover(),
                    ]
                return self._enter(DriverState.WAIT_FOR_BROKERS)
            case state if state == MIGRATION:
                # The former leader may have stopped with its copy in the log, but not recorded in
                # /migration (Kafka never continues from there).
                continues = self.claim.is_copy_complete or self._is_begun
                return self._enter(
                    DriverState.BECOME_CONTROLLER if continues else DriverState.INACTIVE
                )
            case state:
                assert state in (NONE, POST_MIGRATION), f"invalid migration state {state}"
                return self._enter(DriverState.INACTIVE)

    def _recorded_state(self, news: Published) -> int:
        """Return the log's migration state.

        3.4 writes the same before and after the copy: there /migration tells them apart.
        """
        is_early = news.migration_state == self._state_before and not self.claim.is_copy_complete
        return PRE_MIGRATION if is_early else news.migration_state

    def why_not_ours(self) -> str | None:
        """Return why /migration cannot belong to this quorum, or None: its copy is complete, but
        the log has none.

        Apache Kafka continues, and brings ZooKeeper in line with the log: all topics are deleted.
        """
        if not self.claim.is_copy_complete:
            return None
        offset = self.claim.znode.kraft_metadata_offset
        if not self._has_seen_all():
            return (
                f"/migration has a completed copy up to offset {offset}, which this log has not "
                "reached"
            )
        return (
            f"/migration has a completed copy up to offset {offset}, but this log has none: it "
            "is from another quorum; delete /migration to start"
        )

    def _look_for_brokers(self) -> list[DriverEffect]:
        if self._news is None or not self._news.has_brokers:
            return [
                EmitMigrationEvent(
                    MigrationWaits(state=self.state.value, reason="no brokers are known to KRaft")
                )
            ]
        return [LookForBrokers(self._news.migrating_brokers)]

    # Events
    # ----------------------------------------------------------------------------------------------

    def _on_recovered(self, claim: Claim) -> list[DriverEffect]:
        """Start, or, as a new leader, continue with the state that was read."""
        self.claim = claim
        if self.state is DriverState.UNINITIALIZED:
            self._must_recover = self.leads
            return self._enter(DriverState.INACTIVE)
        rereads = self.leads and self.state is DriverState.WAIT_FOR_CONTROLLER_QUORUM
        if not self._must_recover and not rereads:
            return []
        assert self._leader is not None, "it is leader"
        self._must_recover = False
        self._is_begun = claim.is_begun
        self.claim = claim.led_by(self._node_id, self._leader.leader_epoch)
        return [] if rereads else self._enter(DriverState.WAIT_FOR_CONTROLLER_QUORUM)

    def _on_leader(self, changed: LeaderChanged) -> list[DriverEffect]:
        """A new leader reads /migration again; other controllers become inactive."""
        is_known = changed == self._leader
        self._leader = changed
        if self.state is DriverState.UNINITIALIZED or (is_known and self.leads):
            return []
        self._must_recover = self.leads
        self._is_behind = False
        resting = (
            self._enter(DriverState.INACTIVE) if self.state is not DriverState.INACTIVE else []
        )
        return [*resting, *self._act_soon()]

    def _on_published(self, news: Published) -> list[DriverEffect]:
        before, self._news = self._news, news
        if self.state is DriverState.INACTIVE or not self.leads:
            return []
        if not self.state.mirrors:
            moves = before is None or before.migration_state != news.migration_state
            return (
                self._act_soon()
                if news.brokers_changed or moves or self.state is DriverState.SYNC_KRAFT_TO_ZK
                else []
            )
        if not self._has_seen_all():
            return []
        return [Mirror(self.claim, is_snapshot=news.is_snapshot or self._is_behind)]

    def _on_brokers(
        self, registered: frozenset[int], assigned: frozenset[int] | None
    ) -> list[DriverEffect]:
        if self.state is not DriverState.WAIT_FOR_BROKERS or self._news is None:
            return []
        wanted = registered | (assigned or frozenset())
        missing = sorted(wanted - self._news.migrating_brokers)
        if not registered:
            return [
                EmitMigrationEvent(
                    MigrationWaits(
                        state=self.state.value, reason="no brokers are registered in ZooKeeper"
                    )
                )
            ]
        if missing or assigned is None:
            why = f"brokers {', '.join(map(str, missing))} have not registered with KRaft"
            return [EmitMigrationEvent(MigrationWaits(state=self.state.value, reason=why))]
        return self._enter(DriverState.BECOME_CONTROLLER)

    def _on_claimed(self, claim: Claim) -> list[DriverEffect]:
        if self.state is not DriverState.BECOME_CONTROLLER:
            return []
        self.claim = claim
        return self._enter(self.after_claim())

    def after_claim(self) -> DriverState:
        """Return the state after the claim: the copy, or if it is complete the full comparison
        (KAFKA-15010).
        """
        is_in_log = self._news is not None and self._news.migration_state == MIGRATION
        return (
            DriverState.SYNC_KRAFT_TO_ZK
            if self.claim.is_copy_complete or is_in_log
            else DriverState.ZK_MIGRATION
        )

    # Transitions
    # ----------------------------------------------------------------------------------------------

    def _has_seen_all(self) -> bool:
        """Whether the image has all records that ZooKeeper has.

        Inside a metadata transaction nothing is published.
        """
        return (
            self._news is not None
            and (self._news.offset, self._news.epoch) >= self.claim.in_step_until
        )

    def _enter_from(self, expected: DriverState, following: DriverState) -> list[DriverEffect]:
        return self._enter(following) if self.state is expected else []

    def _enter(self, following: DriverState) -> list[DriverEffect]:
        """Transition to another state, and run its action at once."""
        assert following in NEXT[self.state], (
            f"invalid driver transition from {self.state.value} to {following.value}"
        )
        moved = MigrationDriverMoved(from_state=self.state.value, to_state=following.value)
        self.state = following
        self._polls = 0
        return [EmitMigrationEvent(moved), *self._act_soon()]

    def _act_soon(self) -> list[DriverEffect]:
        return [PollAfter(0)]

    def _following_poll(self) -> PollAfter:
        delay_ms = min(POLL_MAX_MS, POLL_MS << min(self._polls, DOUBLINGS_MAX))
        self._polls += 1
        return PollAfter(delay_ms * (1 + POLL_JITTER * (2 * self._draw() - 1)))


# --------------------------------------------------------------------------------------------------
# Readiness of the controllers: all of them must have the migration enabled
#
# Up to 3.6 the leader asks them: each reports it in its ApiVersions response. Since 3.7 they report
# it in their registration.
# Source: org.apache.kafka.controller.QuorumFeatures of 3.4 to 3.9, KIP-919.


def why_not_asked_ready(
    image: MetadataImage, others: Iterable[int], said: Callable[[int], bool | None]
) -> str | None:
    """Return why a migration cannot start by the other controllers' ApiVersions responses, or None:
    up to 3.6.
    """
    level = image.metadata_level
    if not level.has_migration_state:
        return f"The metadata.version too low at {METADATA_VERSIONS[level.level].name}"
    answers = {controller_id: said(controller_id) for controller_id in sorted(others)}
    missing = [controller_id for controller_id, answer in answers.items() if answer is None]
    if missing:
        return f"Missing apiVersion from nodes: {missing}"
    unready = [controller_id for controller_id, answer in answers.items() if not answer]
    return (
        f"Nodes don't enable `zookeeper.metadata.migration.enable`: {unready}" if unready else None
    )


def why_not_ready(image: MetadataImage, quorum_ids: Iterable[int]) -> str | None:
    """Return why a migration cannot start, or None.

    Below 3.7-IV0 controllers do not register, and nothing is known of them.
    """
    level = image.metadata_level
    if not level.has_migration_state:
        return f"The metadata.version too low at {METADATA_VERSIONS[level.level].name}"
    if not level.has_controller_registrations:
        return None
    for controller_id in sorted(quorum_ids):
        known = image.registries.controllers.get(controller_id)
        if known is None:
            return f"No registration found for controller {controller_id}"
        if not known.zk_migration_ready:
            return f"Controller {controller_id} has not enabled zookeeper.metadata.migration.enable"
    return None


# --------------------------------------------------------------------------------------------------
# The migration as other rules of a controller see it: registrations, allowed changes, leader epoch
# bumps
#
# Source: KAFKA-14805, org.apache.kafka.controller.{FeatureControlManager, ClusterControlManager,
# PartitionChangeBuilder}.


class MigrationStatus:
    """`is_enabled` is zookeeper.metadata.migration.enable of this controller, `listener` the
    inter-broker listener, `state` that of the log.
    """

    def __init__(
        self,
        features: FeatureControl,
        state: Callable[[], int],
        *,
        is_enabled: bool = False,
        listener: str | None = None,
    ) -> None:
        self._features = features
        self._state = state
        self._is_enabled = is_enabled
        self._listener = listener

    @property
    def is_before(self) -> bool:
        """Whether nothing is copied yet: until then only brokers and controllers may register."""
        return self._state() == PRE_MIGRATION

    @property
    def takes_zookeeper_brokers(self) -> bool:
        """Whether brokers in ZooKeeper mode may register, so that every ISR shrink bumps the leader
        epoch.
        """
        return self._is_enabled and self._features.metadata_level.has_migration_state

    def refuse(self, request: BrokerRegistrationRequest) -> Refusal | None:
        """Return why a broker of its mode cannot register now, or None.

        BROKER_ID_NOT_REGISTERED or INVALID_REGISTRATION.
        """
        if request.is_migrating_zk_broker and not self.takes_zookeeper_brokers:
            return Refusal(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                "Controller does not support registering ZK brokers.",
            )
        if not request.is_migrating_zk_broker and self.is_before:
            why = (
                "Controller is in pre-migration mode and cannot register KRaft brokers until the "
                "metadata migration is complete."
            )
            return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, why)
        if (
            request.is_migrating_zk_broker
            and self._listener is not None
            and all(each.name != self._listener for each in request.listeners)
        ):
            why = (
                f"No listener named {self._listener} in the registration of a broker that migrates"
            )
            return Refusal(ErrorCode.INVALID_REGISTRATION, why)
        return None
