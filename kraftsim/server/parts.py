"""The replaceable classes of a node: selected once by the traits of its release; some are replaced
to inject a historical bug.

No other code compares releases or checks for enabled bugs: it uses the class it was given.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_transactional_producer import TransactionalProducer
from kraftsim.events.event import Event
from kraftsim.groups.rules_fencing_variants import FENCINGS
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.transactional_commits import TransactionalCommits
from kraftsim.metadata.rules_config_releases import ConfigTables, config_tables
from kraftsim.metadata.rules_controller_state import ControllerState, ProducerIdControlFactory
from kraftsim.metadata.rules_described_configs import (
    BEFORE_CLIENT_METRICS,
    BrokerSettings,
    ControllerNode,
    ReplicationBehavior,
    static_settings,
)
from kraftsim.metadata.rules_features import MigrationBehavior, MigrationStatePolicy
from kraftsim.metadata.rules_image import ImageWithoutZooKeeper, MetadataImage
from kraftsim.migration.rules_driver import MigrationDriver
from kraftsim.migration.zookeeper_side import ZookeeperCopy, ZookeeperSide
from kraftsim.partitions.fetch_responses import AbortedLists
from kraftsim.partitions.producer_snapshots import BoundedReplay, NewestSnapshots, ProducerSnapshots
from kraftsim.partitions.rules_replica import PartitionReplica
from kraftsim.producer_ids.rules_allocation import (
    LastIdProducerIdControl,
    ProducerIdControl,
    RepeatingProducerIdControl,
    ResizableProducerIdControl,
)
from kraftsim.producer_ids.rules_block_clients import (
    DisjointBlockClient,
    EagerBlockClient,
    OnDemandBlockClient,
    PrefetchingBlockClient,
    ProducerIdSource,
    TerminatingBlockClient,
    WaitingBlockClient,
)
from kraftsim.producer_ids.zookeeper import ControllerBlocks
from kraftsim.producer_state.rules_entries import ProducerStatePolicy, UnknownProducer
from kraftsim.producer_state.rules_manager import (
    LatestBatchRepeated,
    LatestBatchStateManager,
    ProducerStateManager,
)
from kraftsim.raft.rules_quorum import Quorum
from kraftsim.raft.rules_roles import Leadership
from kraftsim.raft.snapshotting import Snapshotting
from kraftsim.releases.release import Release
from kraftsim.releases.traits import (
    ABORTABLE_VERIFICATION,
    ACCEPTS_UNKNOWN_PRODUCERS,
    ADDED_SHARE_PARTITIONS_WHOLE,
    ADMITS_READERS_WITHOUT_EPOCH,
    ANSWERS_READERS_BEHIND,
    ASSIGNMENT_EPOCHS,
    ASSIGNMENTS_KEEP_ELIGIBLE,
    ATOMIC_FEATURE_UPDATES,
    BOUNDED_MIN_IN_SYNC_REPLICAS,
    CASELESS_GROUP_STATES,
    CHECKS_EPOCHS_FIRST,
    CHECKS_SESSIONS_PERIODICALLY,
    CLEAN_SHUTDOWN_EPOCH,
    CLIENT_INSTANCES_END,
    CLIENT_METRICS,
    CONSUMER_GROUPS,
    COUNTED_ABANDONED_DELIVERIES,
    COUNTS_COMPLETE_SHARE_RECORDS,
    DELAYED_ASSIGNMENTS,
    DISJOINT_PRODUCER_ID_BLOCKS,
    ENDPOINTS_FOR_CONSUMERS,
    EXPLAINED_UNREGISTRATION,
    FORGETS_BEGINNINGS,
    KEEPS_PRODUCERS_OF_DELETED_RECORDS,
    LOGS_BEGIN_WITH_SEQUENCE_ZERO,
    MEMBERS_DROP_UNSUBSCRIBED,
    MEMBERS_REJOIN,
    MEMBERS_TAKE_BACK,
    MIGRATES_BEHIND_A_GATE,
    MIGRATES_IN_TRANSACTIONS,
    MOVES_WAIT_FOR_NEWCOMERS,
    NAMED_DOWNGRADES,
    NEW_ID_AFTER_LAST_TIMEOUT,
    PARSES_SHARE_KEYS,
    PATIENT_TRANSACTIONS,
    PRE_VOTE,
    PREFETCHED_PRODUCER_IDS,
    PRODUCER_ID_EXPIRATION,
    PUBLISHES_REMOTE_SEGMENTS_FIRST,
    READERS_STAND_AT_BATCHES,
    RETRIABLE_BLOCK_TIMEOUT,
    SETTLED_SHARE_GROUPS,
    SHARE_GROUPS_FIRST,
    SHARE_OFFSETS_MAKE_GROUPS,
    SHARE_STARTS_ONLY_ADVANCE,
    SHUTDOWN_AT_REGISTRATION,
    SNAPSHOT_OF_EVERY_SEGMENT,
    STREAMS_ROLES,
    THROTTLED_DELIVERIES,
    TRANSACTIONS_HAVE_EPOCHS,
    TWO_PHASE_COMMIT_RIGHT,
    USER_RIGHTS,
    VERIFIED_TRANSACTIONS,
    WITHOUT_ZOOKEEPER,
)
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import (
    ANNOUNCED_WINDOW,
    AS_RELEASED,
    EAGER,
    ENDING,
    EVERY_SEGMENT,
    LAST_ID,
    LATEST_BATCH,
    LATEST_BATCH_46,
    NEWEST_TWO,
    ON_DEMAND,
    REPEATING,
    REPLAY_YOUNGER,
    RESIZABLE,
    UNKNOWN_PRODUCERS,
    ConfigError,
)
from kraftsim.server.rules_authorization import KnownRights
from kraftsim.tiered_storage.rules_copying import REMEDIES, ChecksSnapshotFirst, SnapshotRemedy
from kraftsim.transactions.marker_sender import MarkerSender
from kraftsim.transactions.rules_coordinator import (
    TransactionRules,
    TransactionRulesSince40,
    TransactionRulesSince41,
    TransactionRulesSince43,
)
from kraftsim.transactions.rules_markers import MarkerQueue
from kraftsim.transactions.rules_state import TransactionShard, TransactionShardSince41
from kraftsim.transactions.rules_two_phase_commit import TransactionRulesOfTwoPhaseCommit
from kraftsim.transactions.verification import Verifier
from kraftsim.zookeeper.rules_propagation import KraftPropagation
from kraftsim.zookeeper.rules_received_metadata import ReceivedMetadata
from protocol.config_resources import ConfigResourceType
from protocol.metadata.settings import MIGRATION, PRE_MIGRATION

if TYPE_CHECKING:
    from kraftsim.share_groups.rules_share_coordinator import ShareShard


class ProducerIdSourceFactory(Protocol):
    """Creates the producer id source of a broker. `max_wait_ms` is request.timeout.ms."""

    def __call__(
        self, *, broker_epoch: Callable[[], int], emit: Callable[[Event], None], max_wait_ms: int
    ) -> ProducerIdSource:
        """Create the source."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """The classes of a node.

    A class stands for itself or a subclass; functions take the arguments of what they replace.
    """

    release: Release
    producer_id_source: ProducerIdSourceFactory
    unknown_producer: UnknownProducer
    verifies_transactions: bool
    transactions_have_epochs: bool
    checks_epochs_first: bool
    answers_readers_behind: bool
    endpoints_for_consumers: bool
    readers_stand_at_batches: bool
    verification_is_abortable: bool
    expires_producer_ids: bool
    bounds_min_in_sync_replicas: bool
    keeps_shutdown_epoch: bool
    has_pre_vote: bool
    migration_state_policy: MigrationStatePolicy
    ignores_case_of_group_states: bool
    has_consumer_groups: bool
    share_groups_first: bool
    has_share_groups: bool
    throttles_deliveries: bool
    counts_abandoned_deliveries: bool
    members_drop_unsubscribed: bool
    streams_have_roles: bool
    members_may_rejoin: bool
    members_take_back: bool
    delays_assignments: bool
    keeps_assignment_epochs: bool
    share_offsets_make_groups: bool
    settles_share_groups: bool
    reads_added_share_partitions_whole: bool
    producer_state_manager: type[ProducerStateManager] = ProducerStateManager
    latest_batch_state_manager: type[ProducerStateManager] = LatestBatchStateManager
    """The variant of KIP-758, used if kraftsim.producer.state selects it."""
    partition_replica: type[PartitionReplica] = PartitionReplica
    group_shard: type[GroupShard] = GroupShard
    """The groups of one coordinator partition, with their offset storage."""
    share_shard: Callable[[], "type[ShareShard]"]
    """Imports the states of one share coordinator partition, which few brokers need."""
    transactional_commits: type[TransactionalCommits] = TransactionalCommits
    aborted_lists: type[AbortedLists] = AbortedLists
    verifier: type[Verifier] = Verifier
    producer_snapshots: type[ProducerSnapshots] = ProducerSnapshots
    tiering_remedy: type[SnapshotRemedy] = SnapshotRemedy
    """What is done if a segment for remote storage lacks its producer snapshot."""
    transaction_rules: type[TransactionRules] = TransactionRules
    """The decisions of a transaction coordinator."""
    marker_queue: type[MarkerQueue] = MarkerQueue
    """The transaction markers that a coordinator has yet to write."""
    marker_sender: type[MarkerSender] = MarkerSender
    transaction_shard: type[TransactionShard] = TransactionShard
    idempotent_producer: type[IdempotentProducer] = IdempotentProducer
    transactional_producer: type[TransactionalProducer] = TransactionalProducer
    """The rules of kraftsim's own clients, replaced for client bugs."""
    metadata_image: type[MetadataImage] = MetadataImage
    controller_state: type[ControllerState] = ControllerState
    migration_driver: type[MigrationDriver] = MigrationDriver
    zookeeper_copy: type[ZookeeperCopy] = ZookeeperCopy
    """How a migration converts ZooKeeper metadata."""
    zookeeper_side: type[ZookeeperSide] = ZookeeperSide
    """The ZooKeeper operations of a migrating controller."""
    controller_blocks: type[ControllerBlocks] = ControllerBlocks
    """The source of producer-id blocks of a ZooKeeper-mode controller."""
    kraft_propagation: type[KraftPropagation] = KraftPropagation
    received_metadata: type[ReceivedMetadata] = ReceivedMetadata
    """How a broker in ZooKeeper mode applies controller requests."""
    producer_id_control: type[ProducerIdControl] = ProducerIdControl
    leadership: type[Leadership] = Leadership
    quorum: type[Quorum] = Quorum
    snapshotting: type[Snapshotting] = Snapshotting

    @classmethod
    def for_release(cls, release: Release) -> "Parts":
        """Select the parts of a release."""
        prefetches = release.has(PREFETCHED_PRODUCER_IDS)
        surfaces_timeouts = not release.has(RETRIABLE_BLOCK_TIMEOUT)
        return cls(
            release=release,
            producer_id_source=disjoint_source
            if release.has(DISJOINT_PRODUCER_ID_BLOCKS)
            else prefetching_source
            if prefetches
            else surfacing_source
            if surfaces_timeouts
            else waiting_source,
            unknown_producer=_unknown_producer(release),
            verifies_transactions=release.has(VERIFIED_TRANSACTIONS),
            transactions_have_epochs=release.has(TRANSACTIONS_HAVE_EPOCHS),
            checks_epochs_first=release.has(CHECKS_EPOCHS_FIRST),
            answers_readers_behind=release.has(ANSWERS_READERS_BEHIND),
            endpoints_for_consumers=release.has(ENDPOINTS_FOR_CONSUMERS),
            readers_stand_at_batches=release.has(READERS_STAND_AT_BATCHES),
            verification_is_abortable=release.has(ABORTABLE_VERIFICATION),
            transaction_rules=_transaction_rules(release),
            share_shard=partial(_share_shard, release),
            transaction_shard=TransactionShardSince41
            if release.has(TWO_PHASE_COMMIT_RIGHT)
            else TransactionShard,
            expires_producer_ids=release.has(PRODUCER_ID_EXPIRATION),
            bounds_min_in_sync_replicas=release.has(BOUNDED_MIN_IN_SYNC_REPLICAS),
            keeps_shutdown_epoch=release.has(CLEAN_SHUTDOWN_EPOCH),
            has_pre_vote=release.has(PRE_VOTE),
            migration_state_policy=_migration_state_policy(release),
            metadata_image=ImageWithoutZooKeeper
            if release.has(WITHOUT_ZOOKEEPER)
            else MetadataImage,
            ignores_case_of_group_states=release.has(CASELESS_GROUP_STATES),
            has_consumer_groups=release.has(CONSUMER_GROUPS),
            share_groups_first=release.has(SHARE_GROUPS_FIRST),
            has_share_groups=release.has(PARSES_SHARE_KEYS),
            throttles_deliveries=release.has(THROTTLED_DELIVERIES),
            counts_abandoned_deliveries=release.has(COUNTED_ABANDONED_DELIVERIES),
            members_drop_unsubscribed=release.has(MEMBERS_DROP_UNSUBSCRIBED),
            streams_have_roles=release.has(STREAMS_ROLES),
            members_may_rejoin=release.has(MEMBERS_REJOIN),
            members_take_back=release.has(MEMBERS_TAKE_BACK),
            delays_assignments=release.has(DELAYED_ASSIGNMENTS),
            keeps_assignment_epochs=release.has(ASSIGNMENT_EPOCHS),
            share_offsets_make_groups=release.has(SHARE_OFFSETS_MAKE_GROUPS),
            settles_share_groups=release.has(SETTLED_SHARE_GROUPS),
            reads_added_share_partitions_whole=release.has(ADDED_SHARE_PARTITIONS_WHOLE),
            producer_snapshots=ProducerSnapshots
            if release.has(SNAPSHOT_OF_EVERY_SEGMENT)
            else NewestSnapshots,
            tiering_remedy=SnapshotRemedy
            if release.has(PUBLISHES_REMOTE_SEGMENTS_FIRST)
            else ChecksSnapshotFirst,
        )

    def replacing(self, **parts: object) -> "Parts":
        """Return these parts with some of them replaced, by name."""
        # arg-type: names and types are the caller's: `replace` checks the names
        return replace(self, **parts)  # type: ignore[arg-type]

    def producer_state(self, config: NodeConfig) -> ProducerStateManager:
        """Create the producer state of one partition."""
        latest = self.latest_batch_state_manager
        others: dict[str, type[ProducerStateManager]] = {
            LATEST_BATCH_46: LatestBatchRepeated,
            LATEST_BATCH: latest,
            ANNOUNCED_WINDOW: latest,
        }
        return others.get(config.producer_state, self.producer_state_manager)(
            self.producer_policy(config)
        )

    def producer_policy(
        self, config: NodeConfig, settings: BrokerSettings | None = None
    ) -> ProducerStatePolicy:
        """Return the producer validation policy: of the release, the properties, and `settings`
        that changed dynamically.
        """
        expiration_ms = (
            config.producer_id_expiration_ms
            if self.expires_producer_ids
            else config.transactional_id_expiration_ms
        )
        verifies = config.transaction_partition_verification_enable
        if settings is not None and self.expires_producer_ids:
            expiration_ms = int(settings.value("producer.id.expiration.ms") or expiration_ms)
        if settings is not None:
            verifies = (
                settings.value("transaction.partition.verification.enable") or str(verifies)
            ).lower() == "true"
        return ProducerStatePolicy(
            unknown_producer=self._unknown_producer(config),
            expiration_ms=expiration_ms,
            verifies_transactions=self.verifies_transactions and verifies,
            transactions_have_epochs=self.transactions_have_epochs,
            checks_epochs_first=self.checks_epochs_first,
            keeps_deleted=self.release.has(KEEPS_PRODUCERS_OF_DELETED_RECORDS),
            sequences_behind=config.max_in_flight_sequence_number_per_connection,
        )

    def migration_behavior(self, config: NodeConfig) -> MigrationBehavior:
        """Return how a controller starts and ends a migration from ZooKeeper."""
        is_early = not self.release.has(MIGRATES_BEHIND_A_GATE)
        return MigrationBehavior(
            is_enabled=config.zookeeper_metadata_migration_enable,
            is_known=not self.release.has(WITHOUT_ZOOKEEPER),
            needs_transactions=self.release.has(MIGRATES_IN_TRANSACTIONS),
            state_before=MIGRATION if is_early else PRE_MIGRATION,
            finishes=not is_early,
        )

    def _unknown_producer(self, config: NodeConfig) -> UnknownProducer:
        is_configured = config.unknown_producer != UNKNOWN_PRODUCERS[0]
        return (
            UnknownProducer(config.unknown_producer.replace("-", " "))
            if is_configured
            else self.unknown_producer
        )

    def groups(self, config: NodeConfig) -> type[GroupShard]:
        """Return the group implementation: as released, or by kraftsim.offset.fencing.

        Raises ConfigError.
        """
        if config.offset_fencing and config.offset_fencing not in FENCINGS:
            raise ConfigError(
                f"kraftsim.offset.fencing: expected one of {', '.join(FENCINGS)}, got "
                f"{config.offset_fencing!r}"
            )
        return FENCINGS[config.offset_fencing] if config.offset_fencing else self.group_shard

    def coordinator_rules(self, config: NodeConfig) -> type[TransactionRules]:
        """Return the decisions of transaction coordinators: as released, or by
        kraftsim.two.phase.commit.
        """
        if config.keeps_prepared_transactions:
            return TransactionRulesOfTwoPhaseCommit
        return self.transaction_rules

    def snapshots(self, config: NodeConfig) -> type[ProducerSnapshots]:
        """Return the producer snapshot implementation: of the release, or by
        kraftsim.producer.snapshots.
        """
        chosen = {
            AS_RELEASED: self.producer_snapshots,
            EVERY_SEGMENT: ProducerSnapshots,
            NEWEST_TWO: NewestSnapshots,
            REPLAY_YOUNGER: BoundedReplay,
        }
        return chosen[config.producer_snapshots]

    def snapshot_remedy(self, config: NodeConfig) -> SnapshotRemedy:
        """Create the remedy for missing producer snapshots: of the release, or by
        kraftsim.tiering.remedy.

        Raises ConfigError.
        """
        if config.tiering_remedy and config.tiering_remedy not in REMEDIES:
            raise ConfigError(
                f"kraftsim.tiering.remedy: expected one of {', '.join(REMEDIES)}, got "
                f"{config.tiering_remedy!r}"
            )
        return REMEDIES[config.tiering_remedy]() if config.tiering_remedy else self.tiering_remedy()

    def id_source(self, config: NodeConfig) -> ProducerIdSourceFactory:
        """Return the factory of a broker's producer id source: of the release, or by
        kraftsim.producer.ids.
        """
        configured = ID_SOURCES.get(config.producer_ids)
        return self.producer_id_source if configured is None else configured

    def id_control(self, config: NodeConfig) -> ProducerIdControlFactory:
        """Return the factory of a controller's block allocation rules: as released, or by
        kraftsim.producer.id.control.
        """
        configured = ID_CONTROLS.get(config.producer_id_control)
        return (
            self.producer_id_control
            if configured is None
            else partial(configured, size=config.producer_id_block_size)
        )

    @property
    def config_tables(self) -> ConfigTables:
        """The config definitions of the release."""
        return config_tables(self.release.name)

    @property
    def rights(self) -> KnownRights:
        """The ACL operations and resource types of the release."""
        return KnownRights.made(
            has_users=self.release.has(USER_RIGHTS),
            has_two_phase_commit=self.release.has(TWO_PHASE_COMMIT_RIGHT),
        )

    @property
    def ends_client_instances(self) -> bool:
        """Whether a client instance is forgotten with its connection."""
        return self.release.has(CLIENT_INSTANCES_END)

    @property
    def resource_types(self) -> frozenset[ConfigResourceType]:
        """The config resource types of the release."""
        return BEFORE_CLIENT_METRICS.union(
            (ConfigResourceType.CLIENT_METRICS,) if self.release.has(CLIENT_METRICS) else (),
            (ConfigResourceType.GROUP,) if self.config_tables.groups.configs else (),
        )

    def controller_node(self, config: NodeConfig) -> ControllerNode:
        """Return a controller's description of itself."""
        return ControllerNode(
            node_id=config.node_id,
            supported_features=self.release.supported_features,
            quorum_ids=tuple(voter.node_id for voter in config.controller_quorum_voters),
            static_configs=static_settings(config.given),
            config_tables=self.config_tables,
            resource_types=self.resource_types,
            fences_at_registration=self.release.has(SHUTDOWN_AT_REGISTRATION),
            checks_sessions_periodically=self.release.has(CHECKS_SESSIONS_PERIODICALLY),
            explains_unregistration=self.release.has(EXPLAINED_UNREGISTRATION),
            replication=ReplicationBehavior(
                moves_wait_for_all=not self.release.has(MOVES_WAIT_FOR_NEWCOMERS),
                assignments_forget_eligible=not self.release.has(ASSIGNMENTS_KEEP_ELIGIBLE),
            ),
            migrates=config.zookeeper_metadata_migration_enable,
            inter_broker_listener=config.inter_broker_listener_name,
            names_downgrades=self.release.has(NAMED_DOWNGRADES),
            updates_features_atomically=self.release.has(ATOMIC_FEATURE_UPDATES),
        )


def _unknown_producer(release: Release) -> UnknownProducer:
    if release.has(LOGS_BEGIN_WITH_SEQUENCE_ZERO):
        return UnknownProducer.OUT_OF_ORDER_IN_NEW_LOGS
    return (
        UnknownProducer.ACCEPTED
        if release.has(ACCEPTS_UNKNOWN_PRODUCERS)
        else UnknownProducer.UNKNOWN_PRODUCER_ID
    )


def _transaction_rules(release: Release) -> type[TransactionRules]:
    if release.has(NEW_ID_AFTER_LAST_TIMEOUT):
        return TransactionRulesSince43
    if release.has(FORGETS_BEGINNINGS):
        return TransactionRulesSince41
    return TransactionRulesSince40 if release.has(PATIENT_TRANSACTIONS) else TransactionRules


def _share_shard(release: Release) -> "type[ShareShard]":
    from kraftsim.share_groups.rules_share_coordinator import (
        ShareShard,
        ShareShardBefore42,
        ShareShardBefore43,
        ShareShardBefore44,
    )

    if release.has(SHARE_STARTS_ONLY_ADVANCE):
        return ShareShard
    if release.has(ADMITS_READERS_WITHOUT_EPOCH):
        return ShareShardBefore44
    return ShareShardBefore43 if release.has(COUNTS_COMPLETE_SHARE_RECORDS) else ShareShardBefore42


def _migration_state_policy(release: Release) -> MigrationStatePolicy:
    if release.has(WITHOUT_ZOOKEEPER):
        return MigrationStatePolicy.NEVER
    return (
        MigrationStatePolicy.IN_TRANSACTIONS
        if release.has(MIGRATES_IN_TRANSACTIONS)
        else MigrationStatePolicy.WHERE_IT_CAN_BE
    )


def source_of(kind: type[PrefetchingBlockClient]) -> ProducerIdSourceFactory:
    """Return a factory of non-blocking producer id sources."""

    def make(
        *, broker_epoch: Callable[[], int], emit: Callable[[Event], None], max_wait_ms: int
    ) -> ProducerIdSource:
        return kind(broker_epoch=broker_epoch, emit=emit)

    return make


ID_SOURCES: Final[Mapping[str, ProducerIdSourceFactory]] = {
    ENDING: source_of(TerminatingBlockClient),
    ON_DEMAND: source_of(OnDemandBlockClient),
    EAGER: source_of(EagerBlockClient),
}
ID_CONTROLS: Final[Mapping[str, type[ResizableProducerIdControl]]] = {
    RESIZABLE: ResizableProducerIdControl,
    REPEATING: RepeatingProducerIdControl,
    LAST_ID: LastIdProducerIdControl,
}


def disjoint_source(
    *, broker_epoch: Callable[[], int], emit: Callable[[Event], None], max_wait_ms: int
) -> ProducerIdSource:
    """Create the source of 4.3 and later."""
    return DisjointBlockClient(broker_epoch=broker_epoch, emit=emit)


def prefetching_source(
    *, broker_epoch: Callable[[], int], emit: Callable[[Event], None], max_wait_ms: int
) -> ProducerIdSource:
    """Create the source of 3.6 to 4.2, which never waits."""
    return PrefetchingBlockClient(broker_epoch=broker_epoch, emit=emit)


def waiting_source(
    *, broker_epoch: Callable[[], int], emit: Callable[[Event], None], max_wait_ms: int
) -> ProducerIdSource:
    """Create the source of 3.3.2 to 3.5."""
    return WaitingBlockClient(broker_epoch=broker_epoch, emit=emit, max_wait_ms=max_wait_ms)


def surfacing_source(
    *, broker_epoch: Callable[[], int], emit: Callable[[Event], None], max_wait_ms: int
) -> ProducerIdSource:
    """Create the source of 3.0 to 3.3.1, whose timeouts reach the client as REQUEST_TIMED_OUT."""
    return WaitingBlockClient(
        broker_epoch=broker_epoch, emit=emit, max_wait_ms=max_wait_ms, surfaces_timeouts=True
    )
