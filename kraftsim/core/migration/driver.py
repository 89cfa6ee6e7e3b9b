"""The driver of a migration: what one controller does next to take a cluster over from ZooKeeper, and to keep ZooKeeper in step until all is done.

A stepper: an event goes in, effects come out, and what became of an effect comes in as the next event before anything else does. Every controller has
a driver; that of the leader acts. What fails is tried again at the next poll.
Source: KIP-866, org.apache.kafka.metadata.migration.KRaftMigrationDriver of 3.9.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, assert_never

from kraftsim.core.migration.states import NEXT, DriverState
from kraftsim.events.event import Event
from kraftsim.events.migration import MigrationDriverMoved, MigrationWaits
from protocol.metadata.m21_zk_migration_state import MIGRATION, NONE, POST_MIGRATION, PRE_MIGRATION
from protocol.zookeeper.kafka_znodes import MigrationZnode

POLL_MS: Final = 100
POLL_MAX_MS: Final = 60_000
POLL_JITTER: Final = 0.02
DOUBLINGS_MAX: Final = 10
NOT_CLAIMED: Final = -1
NOBODY: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a controller knows of its place in ZooKeeper: /migration with its version, and /controller_epoch as it made it, with its version."""

    znode: MigrationZnode = field(default_factory=MigrationZnode)
    migration_version: int = NOT_CLAIMED
    controller_epoch: int = NOT_CLAIMED
    controller_epoch_version: int = NOT_CLAIMED

    @property
    def is_copied(self) -> bool:
        """Whether the first copy is done: ZooKeeper says up to which offset of the log it is in step."""
        return self.znode.kraft_metadata_offset > 0

    @property
    def is_begun(self) -> bool:
        """Whether a controller of KRaft has ever claimed the cluster since /migration was made."""
        return self.znode.kraft_controller_id != NOBODY

    @property
    def in_step_until(self) -> tuple[int, int]:
        """(offset, epoch) of the last record that ZooKeeper has seen."""
        return self.znode.kraft_metadata_offset, self.znode.kraft_metadata_epoch

    def led_by(self, controller_id: int, controller_epoch: int) -> "Claim":
        """Return what a new leader begins with: /controller is not taken yet."""
        znode = replace(self.znode, kraft_controller_id=controller_id, kraft_controller_epoch=controller_epoch)
        return replace(self, znode=znode, controller_epoch=NOT_CLAIMED, controller_epoch_version=NOT_CLAIMED)

    def in_step(self, offset: int, epoch: int) -> "Claim":
        """Return the claim when ZooKeeper is to be in step with the log up to an offset."""
        return replace(self, znode=replace(self.znode, kraft_metadata_offset=offset, kraft_metadata_epoch=epoch))


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What is committed has grown to an offset. `why_not_ready`: why the controllers cannot begin, or None."""

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
    """Time has passed, or something happened that may let the driver go on."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """/migration was read, or made."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Somebody leads in an epoch, perhaps this controller; None: nobody is known to."""

    leader_id: int | None
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class BrokersSeen:
    """Which brokers are in ZooKeeper, and which ones hold partitions by what it says; the latter are None as long as the former are not enough."""

    registered: frozenset[int]
    assigned: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """/controller is taken."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Copied:
    """The log has all that ZooKeeper had, and ZooKeeper says so."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class InStep:
    """ZooKeeper has all that the log says up to some offset."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Told:
    """What the brokers are to hear of at first is on its way."""


@dataclass(frozen=True, slots=True)
class Failed:
    """ZooKeeper refused, or could not be reached; nothing was done, or it is not known."""

    why: str


DriverEvent: TypeAlias = Polled | Recovered | LeaderChanged | Published | BrokersSeen | Claimed | Copied | InStep | Told | Failed


@dataclass(frozen=True, slots=True)
class PollAfter:
    """Come back with Polled; takes the place of the poll that was due."""

    delay_ms: float


@dataclass(frozen=True, slots=True)
class Recover:
    """Read or make /migration: Recovered."""


@dataclass(frozen=True, slots=True)
class LookForBrokers:
    """Read who is in ZooKeeper: BrokersSeen. Who holds partitions only if all of the former are among `migrating`."""

    migrating: frozenset[int]


@dataclass(frozen=True, slots=True)
class ClaimController:
    """Take /controller, then rewrite /migration: Claimed."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class CopyToLog:
    """Write all that ZooKeeper has into the log, then the offset into /migration: Copied."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Sync:
    """Make ZooKeeper say all that the image says, then move /migration: InStep."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class TellEverything:
    """Tell the brokers that are in ZooKeeper mode everything: Told."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Mirror:
    """Write to ZooKeeper what changed (or, after a snapshot, everything), move /migration, and tell brokers: InStep."""

    claim: Claim
    is_snapshot: bool


@dataclass(frozen=True, slots=True)
class Note:
    """Something happened that is worth an event."""

    event: Event


DriverEffect: TypeAlias = PollAfter | Recover | LookForBrokers | ClaimController | CopyToLog | Sync | TellEverything | Mirror | Note


class MigrationDriver:
    """One controller's driver. `draw` gives numbers from 0 to 1, for the jitter of polls; `state_before` is what its log says until all is copied."""

    def __init__(self, node_id: int, draw: Callable[[], float], *, state_before: int = PRE_MIGRATION) -> None:
        self.state = DriverState.UNINITIALIZED
        self.claim = Claim()
        self._node_id = node_id
        self._draw = draw
        self._state_before = state_before
        self._news: Published | None = None
        self._leader: LeaderChanged | None = None
        self._polls = 0
        self._must_recover = False
        """Whether this controller leads and has not read /migration since."""
        self._is_begun = False
        """Whether a controller had claimed the cluster before this one came to lead."""
        self._is_behind = False
        """Whether a write to ZooKeeper failed after the log had gone on: everything has to be compared again."""

    @property
    def leads(self) -> bool:
        """Whether this controller leads as far as the driver has heard."""
        return self._leader is not None and self._leader.leader_id == self._node_id

    def step(self, event: DriverEvent) -> list[DriverEffect]:
        """Return what to do about an event."""
        match event:
            case Polled():
                return self._on_poll()
            case Recovered(claim):
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
                return self._enter_from(DriverState.SYNC_KRAFT_TO_ZK, DriverState.KRAFT_CONTROLLER_TO_BROKER_COMM)
            case Told():
                return self._enter_from(DriverState.KRAFT_CONTROLLER_TO_BROKER_COMM, DriverState.DUAL_WRITE)
            case Failed(why):
                self._is_behind = self._is_behind or self.state.mirrors
                return [Note(MigrationWaits(state=self.state.value, reason=why))]
            case _:
                assert_never(event)

    def _on_poll(self) -> list[DriverEffect]:
        before, done = self.state, self._act()
        return done if self.state is not before else [*done, self._following_poll()]

    # What to do in a state --------------------------------------------------------------------------------------------------------------------

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
                return [TellEverything(self.claim)] if self._has_seen_all() else []
            case DriverState.DUAL_WRITE:
                return [Mirror(self.claim, is_snapshot=True)] if self._is_behind else []
            case DriverState.INACTIVE:
                return [Recover()] if self._must_recover else []
            case _:
                assert_never(self.state)

    def on_sync_due(self) -> list[DriverEffect]:
        """Return what makes ZooKeeper say what the log says before changes are passed on; not before the image has what ZooKeeper has seen."""
        return [Sync(self.claim)] if self._has_seen_all() else []

    def _look_at_controllers(self) -> list[DriverEffect]:
        news = self._news
        if news is None:
            return []
        match self._state_told(news):
            case state if state == PRE_MIGRATION:
                if news.why_not_ready is not None:
                    return [Note(MigrationWaits(state=self.state.value, reason=news.why_not_ready))]
                if (why_not := self.why_not_ours()) is not None:
                    return [Note(MigrationWaits(state=self.state.value, reason=why_not)), Recover()]
                return self._enter(DriverState.WAIT_FOR_BROKERS)
            case state if state == MIGRATION:
                # The one before may have ended with its copy in the log, and no note of it in ZooKeeper (Kafka never goes on from there).
                goes_on = self.claim.is_copied or self._is_begun
                return self._enter(DriverState.BECOME_CONTROLLER if goes_on else DriverState.INACTIVE)
            case state:
                assert state in (NONE, POST_MIGRATION), f"a migration has no state {state}"
                return self._enter(DriverState.INACTIVE)

    def _state_told(self, news: Published) -> int:
        """Return what the log says. That of 3.4 says the same before and after all is copied: there /migration tells which it is."""
        is_early = news.migration_state == self._state_before and not self.claim.is_copied
        return PRE_MIGRATION if is_early else news.migration_state

    def why_not_ours(self) -> str | None:
        """Return why /migration cannot be this quorum's, or None. It says that all is copied, and the log says that nothing is.

        Apache Kafka goes on from there, and makes ZooKeeper say what the log says: all topics are gone.
        """
        if not self.claim.is_copied:
            return None
        offset = self.claim.znode.kraft_metadata_offset
        if not self._has_seen_all():
            return f"/migration says that all is copied up to offset {offset}, which this log has not reached"
        return f"/migration says that all is copied up to offset {offset}, and this log that nothing is: another quorum left it; delete it to begin"

    def _look_for_brokers(self) -> list[DriverEffect]:
        if self._news is None or not self._news.has_brokers:
            return [Note(MigrationWaits(state=self.state.value, reason="no brokers are known to KRaft"))]
        return [LookForBrokers(self._news.migrating_brokers)]

    # What comes in ----------------------------------------------------------------------------------------------------------------------------

    def _on_recovered(self, claim: Claim) -> list[DriverEffect]:
        """Begin, or, as a new leader, go on with what was read anew."""
        self.claim = claim
        if self.state is DriverState.UNINITIALIZED:
            self._must_recover = self.leads
            return self._enter(DriverState.INACTIVE)
        is_looking_again = self.leads and self.state is DriverState.WAIT_FOR_CONTROLLER_QUORUM
        if not self._must_recover and not is_looking_again:
            return []
        assert self._leader is not None, "it leads"
        self._must_recover = False
        self._is_begun = claim.is_begun
        self.claim = claim.led_by(self._node_id, self._leader.leader_epoch)
        return [] if is_looking_again else self._enter(DriverState.WAIT_FOR_CONTROLLER_QUORUM)

    def _on_leader(self, changed: LeaderChanged) -> list[DriverEffect]:
        """Whoever leads anew reads /migration anew; whoever does not rests."""
        is_known = changed == self._leader
        self._leader = changed
        if self.state is DriverState.UNINITIALIZED or (is_known and self.leads):
            return []
        self._must_recover = self.leads
        self._is_behind = False
        resting = self._enter(DriverState.INACTIVE) if self.state is not DriverState.INACTIVE else []
        return [*resting, *self._act_soon()]

    def _on_published(self, news: Published) -> list[DriverEffect]:
        before, self._news = self._news, news
        if self.state is DriverState.INACTIVE or not self.leads:
            return []
        if not self.state.mirrors:
            moves = before is None or before.migration_state != news.migration_state
            return self._act_soon() if news.brokers_changed or moves or self.state is DriverState.SYNC_KRAFT_TO_ZK else []
        if not self._has_seen_all():
            return []
        return [Mirror(self.claim, is_snapshot=news.is_snapshot or self._is_behind)]

    def _on_brokers(self, registered: frozenset[int], assigned: frozenset[int] | None) -> list[DriverEffect]:
        if self.state is not DriverState.WAIT_FOR_BROKERS or self._news is None:
            return []
        wanted = registered | (assigned or frozenset())
        missing = sorted(wanted - self._news.migrating_brokers)
        if not registered:
            return [Note(MigrationWaits(state=self.state.value, reason="no brokers are registered in ZooKeeper"))]
        if missing or assigned is None:
            why = f"brokers {', '.join(map(str, missing))} have not registered with KRaft"
            return [Note(MigrationWaits(state=self.state.value, reason=why))]
        return self._enter(DriverState.BECOME_CONTROLLER)

    def _on_claimed(self, claim: Claim) -> list[DriverEffect]:
        if self.state is not DriverState.BECOME_CONTROLLER:
            return []
        self.claim = claim
        return self._enter(self.after_claim())

    def after_claim(self) -> DriverState:
        """Return what follows the claim: the copy, or if that is done the comparison of everything (KAFKA-15010)."""
        is_in_log = self._news is not None and self._news.migration_state == MIGRATION
        return DriverState.SYNC_KRAFT_TO_ZK if self.claim.is_copied or is_in_log else DriverState.ZK_MIGRATION

    # Moving ---------------------------------------------------------------------------------------------------------------------------------

    def _has_seen_all(self) -> bool:
        """Whether the image has all that ZooKeeper has seen. Inside a metadata transaction nothing is published."""
        return self._news is not None and (self._news.offset, self._news.epoch) >= self.claim.in_step_until

    def _enter_from(self, expected: DriverState, following: DriverState) -> list[DriverEffect]:
        return self._enter(following) if self.state is expected else []

    def _enter(self, following: DriverState) -> list[DriverEffect]:
        """Go over to another state, and act in it at once."""
        assert following in NEXT[self.state], f"the driver goes from {self.state.value} to {following.value}"
        moved = MigrationDriverMoved(from_state=self.state.value, to_state=following.value)
        self.state = following
        self._polls = 0
        return [Note(moved), *self._act_soon()]

    def _act_soon(self) -> list[DriverEffect]:
        return [PollAfter(0)]

    def _following_poll(self) -> PollAfter:
        delay_ms = min(POLL_MAX_MS, POLL_MS << min(self._polls, DOUBLINGS_MAX))
        self._polls += 1
        return PollAfter(delay_ms * (1 + POLL_JITTER * (2 * self._draw() - 1)))
