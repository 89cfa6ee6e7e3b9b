"""A controller node: a voter of the metadata quorum and, while it is the leader, the active
controller.

Every controller replays committed records. A newly elected leader becomes active once it has
replayed everything before its epoch; it replays its own records when it writes them, answers when
they are committed, and reverts uncommitted ones when it loses leadership. Its listener opens before
that, because the quorum uses it. A failed write or flush stops the node: records that were promised
to the log must not be decided twice.
Source: org.apache.kafka.controller.QuorumController, kafka.server.{ControllerServer,
KafkaRaftServer}.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from kraftsim.core.decision import Decision
from kraftsim.metadata.deciding_controller import for_active_controller
from kraftsim.metadata.events import ControllerResigned
from kraftsim.metadata.metadata_publisher import parsed_records
from kraftsim.metadata.metadata_writer import MetadataWriter
from kraftsim.metadata.partition_upkeep import elect_leaders
from kraftsim.metadata.rules_brokers import check_at_ms, check_period_ms
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_features import (
    ActivationRefused,
    Bootstrap,
    bootstrap_at,
    bootstrap_records,
    takeover_records,
)
from kraftsim.metadata.rules_partitions import TopicDefaults
from kraftsim.metadata.rules_registries import Registries
from kraftsim.metadata.rules_versions import FEATURE, FIRST_WITH_FEATURE_RECORDS, KRAFT_VERSION
from kraftsim.migration.migration import Migration
from kraftsim.producer_ids.controller import BlockLimits
from kraftsim.raft.quorum_requests import WaitingFetches
from kraftsim.raft.quorum_settings import format_if_new, raft_settings
from kraftsim.raft.raft_node import RaftNode
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.rules_voters import Address, VoterNode
from kraftsim.raft.snapshotting import Snapshotting
from kraftsim.releases.release import Release
from kraftsim.releases.traits import BOOTSTRAPS_ARE_READ_WHEN_NEEDED
from kraftsim.server.api_offer import ApiOffer, FinalizedFeatures, spoken_versions
from kraftsim.server.call import Call, Handler, controller_handlers
from kraftsim.server.client_quotas import MutationQuotas, mute
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.connection import ServerConnection
from kraftsim.server.dispatch import Dispatcher
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.events import NodeReady
from kraftsim.server.frame_server import FrameServer
from kraftsim.server.identity import (
    load_identity,
    load_metadata_identity,
    metadata_world,
    random_uuid,
)
from kraftsim.server.listeners import Listeners
from kraftsim.server.own_registration import OwnRegistration
from kraftsim.server.parts import Parts
from kraftsim.server.rules_quotas import ClientLimits, ExpiringMap, Sharers, WindowedRate
from kraftsim.server.security.controller_guards import CONTROLLER_TABLE
from kraftsim.server.security.rights import guarded
from kraftsim.server.shell import NodeShell, PartShell
from kraftsim.server.with_rules import parsing_rules
from kraftsim.world.interface import Clock, Disk, World
from protocol.api_keys import ApiKey
from protocol.malformed import MalformedFile, MalformedMessage
from protocol.metadata.controller import BeginTransactionRecord, NoOpRecord
from protocol.metadata.registry import parse_record
from protocol.metadata.settings import FeatureLevelRecord
from protocol.records.batches import RecordBatch
from protocol.schema import Message
from protocol.storage.file_names import BOOTSTRAP_CHECKPOINT
from protocol.storage.metadata_snapshot import parse_metadata_snapshot

# --------------------------------------------------------------------------------------------------
# Request quotas (request_percentage) for AllocateProducerIds on a controller: the throttle that
# Kafka applies to it.
#
# A broker that allocates in a tight loop gets its blocks, and is then throttled. Refusals are not
# charged, because the request is inter-node.
# Source: KIP-124, kafka.server.{ControllerApis, RequestHandlerHelper, ClientRequestQuotaManager}.

REQUEST_PERCENTAGE: Final = "request_percentage"
NS_PER_PERCENT: Final = 10_000_000
"""Of one thread, per second."""


class RequestQuotas:
    """The rates of all clients with such a quota."""

    def __init__(
        self, config: NodeConfig, clock: Clock, registries: Callable[[], Registries]
    ) -> None:
        self._window_ms = config.quota_window_size_seconds * 1000
        self._clock = clock
        self._registries = registries
        self._limits = ClientLimits(())
        self._rates: ExpiringMap[Sharers, WindowedRate] = ExpiringMap(
            lambda: WindowedRate(config.quota_window_num, self._window_ms)
        )
        self._seen: tuple[Registries, int] | None = None
        """The registries that the limits were read from, and their change count."""

    def charge(self, call: Call, took_ns: int) -> int:
        """Charge the processing time of a request; mute its client and return the throttle time in
        milliseconds, or 0.
        """
        registries = self._registries()
        if (
            self._seen is None
            or self._seen[0] is not registries
            or self._seen[1] != registries.quota_changes
        ):
            self._seen = registries, registries.quota_changes
            self._limits = ClientLimits(registries.quotas.records())
            self._rates.clear()
        limit = (
            self._limits.find(REQUEST_PERCENTAGE, call.principal.name, call.client_id or "")
            if self._limits
            else None
        )
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._rates.of(limit.sharers, now_ms)
        rate.record(took_ns / NS_PER_PERCENT, now_ms)
        pause_ms = min(rate.pause_ms(limit.value, now_ms), self._window_ms)
        if pause_ms > 0:
            mute(call, pause_ms)
        return pause_ms


# --------------------------------------------------------------------------------------------------
# Periodic tasks of an active controller: they start with its activation and end when it resigns

Periodic = Callable[["Controller"], Coroutine[None, None, None]]


async def write_no_ops(controller: "Controller") -> None:
    """Write a NoOpRecord periodically, so that followers see a live leader and learn the high
    watermark.

    Source: KIP-835.
    """
    interval_ms = controller.config.metadata_max_idle_interval_ms
    while interval_ms:
        await asyncio.sleep(interval_ms / 1000)
        if (
            controller.is_active
            and controller.metadata_writer.state.features.metadata_level.has_no_op_records
        ):
            controller.metadata_writer.write([NoOpRecord()])


async def fence_silent_brokers(controller: "Controller") -> None:
    """Fence brokers whose session has expired: since 4.0 at the next check, before each at its own
    time.

    No session can expire earlier than the next look, so that checks without a result are left out.

    Source: org.apache.kafka.controller.BrokerHeartbeatManager, QuorumController.{
    maybeFenceReplicas, maybeFenceStaleBrokerPeriodNs}.
    """
    state, began_ms = controller.metadata_writer.state, controller.now_ms()
    period_ms = check_period_ms(
        controller.config.broker_session_timeout_ms,
        is_periodic=state.node.checks_sessions_periodically,
    )
    while True:
        due_ms = state.cluster.next_stale_at_ms()
        if due_ms is None:
            due_ms = controller.now_ms() + controller.config.broker_session_timeout_ms
        pause_ms = check_at_ms(due_ms, began_ms, period_ms) - controller.now_ms()
        await asyncio.sleep(max(pause_ms, 1) / 1000)
        while controller.is_active and (decision := _fencing(controller)) is not None:
            controller.metadata_writer.write(decision.records, decision.facts, is_atomic=False)


def _fencing(controller: "Controller") -> Decision[int] | None:
    """Return the decision to fence a broker, if any session has expired.

    No broker is fenced before the migration from ZooKeeper.
    """
    state = controller.metadata_writer.state
    return None if state.is_before_migration else state.decide_fence_stale(controller.now_ms())


PERIODIC: Final[tuple[Periodic, ...]] = (write_no_ops, fence_silent_brokers, elect_leaders)


# --------------------------------------------------------------------------------------------------
# The initial metadata records of a cluster: `bootstrap.checkpoint`, as kafka-storage format writes
# it to the metadata directory, or the defaults.
#
# The file is read and validated at every start, even if the log is not empty. It contains the level
# of metadata.version, and may contain levels of other features, SCRAM credentials (format
# --add-scram), or any other record. It is not updated when levels are raised, so since 4.0.1 an
# unsupported old level in it is fatal only for a controller with an empty log.
# Source: KIP-778, KIP-900, KAFKA-19192, org.apache.kafka.metadata.bootstrap.{BootstrapDirectory,
# BootstrapMetadata}.

NOT_SUPPORTED = (0, 0)


def load_bootstrap(disk: Disk, release: Release, directory: str) -> Bootstrap:
    """Return the first records of an empty log; `directory` is the name of the disk in error
    messages.

    Raises ConfigError.
    """
    path = f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    try:
        records = parse_metadata_snapshot(disk.read(BOOTSTRAP_CHECKPOINT)).records
    except FileNotFoundError:
        return bootstrap_at(release.metadata_version, release.supported_features)
    except MalformedFile as malformed:
        raise ConfigError(f"{path} cannot be read: {malformed}") from malformed
    levels = [record for record in records if isinstance(record, FeatureLevelRecord)]
    found = [record.feature_level for record in levels if record.name == FEATURE]
    if not found:
        raise ConfigError(f"{path}: no FeatureLevelRecord for {FEATURE}")
    why = _refusal(levels, release, found[-1])
    if why is not None and not release.has(BOOTSTRAPS_ARE_READ_WHEN_NEEDED):
        raise ConfigError(f"{path}: {why}")
    return Bootstrap(
        records=records,
        metadata_version=found[-1],
        refusal=None if why is None else f"{path}: {why}",
    )


def _refusal(
    levels: Sequence[FeatureLevelRecord], release: Release, metadata_version: int
) -> str | None:
    """Return why a cluster of a release cannot start at these levels, or None."""
    for record in levels:
        lowest, highest = release.supported_features.get(record.name, NOT_SUPPORTED)
        if not lowest <= record.feature_level <= highest:
            return (
                f"{record.name} at level {record.feature_level} is not supported by "
                f"{release.name} ({lowest} to {highest})"
            )
    return (
        None
        if metadata_version >= FIRST_WITH_FEATURE_RECORDS
        else f"{FEATURE} at level {metadata_version}, before 3.3-IV0, is not supported"
    )


class Controller:
    """One controller.

    Call `start`, then `stop` or `abort`; handlers use `raft`, `metadata_writer`, `fetches` and the
    other public members.
    """

    raft: RaftNode
    metadata_writer: MetadataWriter
    fetches: WaitingFetches
    snapshots: Snapshotting
    registration: OwnRegistration
    migration: Migration | None = None
    """The migration driver, if the properties enable the migration from ZooKeeper."""
    _bootstrap: Bootstrap

    def __init__(
        self, world: World, config: NodeConfig, parts: Parts, *, whole: NodeShell | None = None
    ) -> None:
        """`whole` is the shell of the node, for the controller of a combined node."""
        self.world = world
        self.config = config
        self.shell = (
            NodeShell(world, config, self._on_death)
            if whole is None
            else PartShell(whole, self._on_death)
        )
        self.shell.security.registries = lambda: self.metadata_writer.state.registries
        self.parts = parts
        self.mutations = MutationQuotas(
            config, world.clock, lambda: self.metadata_writer.state.registries
        )
        self.request_quotas = RequestQuotas(
            config, world.clock, lambda: self.metadata_writer.state.registries
        )
        self.block_limits = BlockLimits(config, world.clock)
        found = cast(tuple[Handler[Controller], ...], controller_handlers())
        served = parsing_rules(
            guarded(self.shell, CONTROLLER_TABLE, map(for_active_controller, found))
        )  # the authorization check comes first
        self._handlers = {handler.key: handler for handler in served}
        self.offer = ApiOffer(
            parts.release.controller_apis, self._handlers, parts.release.supported_features
        )
        self.offer.is_migration_ready = config.zookeeper_metadata_migration_enable
        self._listeners = Listeners(self.shell)
        self._is_loaded = False
        self._active_epoch: int | None = None
        self.has_metadata = False
        """Whether a metadata record was ever committed: an empty quorum starts with the bootstrap
        records.
        """
        self._features = FinalizedFeatures({}, -1)
        self._duties: list[asyncio.Task[None]] = []
        self._is_ready = asyncio.Event()

    # Node lifecycle
    # ----------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> Mapping[str, ListenerEndpoint]:
        """Listener name -> bound endpoint."""
        return self._listeners.bound

    def put_in_front(self, in_front: Callable[[FrameServer], FrameServer]) -> None:
        """Put something between all connections, present and future ones, and this node."""
        self._listeners.put_in_front(in_front)

    def connections(self) -> Iterable[ServerConnection]:
        """Return the connections of all clients."""
        return self._listeners.connections()

    async def start(self) -> None:
        """Recover the log, open the listener, and join the quorum.

        Raises ConfigError, OSError kinds; then nothing is left open.
        """
        self.shell.emit_started()
        try:
            await format_if_new(self.world, self.config)
            directory_id = await load_identity(self.world, self.config)
            await self._load(await load_metadata_identity(self.world, self.config, directory_id))
            self.raft.begin()
            await self._listeners.open(
                self.config.controller_listeners,
                Dispatcher(self, self._handlers.values(), self.offer),
            )
        except BaseException:
            await self.shell.tasks.join_all()
            if self._is_loaded:
                self.raft.close()
            raise
        self.raft.own_endpoints.update(self._own_endpoints())
        self.raft.run()
        self.shell.tasks.spawn(self.snapshots.run(), "write-snapshots")
        self.shell.tasks.spawn(self.registration.run(), "register-at-the-active-controller")
        if self.migration is not None:
            self.shell.tasks.spawn(self.migration.run(), "migrate-from-zookeeper")

    async def ready(self) -> None:
        """Return once this controller is active, or a standby that has read what was committed when
        it found the leader.
        """
        await self._is_ready.wait()

    async def failed(self) -> BaseException:
        """Wait until the node fails, and return why."""
        return await self.shell.failed()

    async def stop(self) -> None:
        """Commit pending records if this is the only voter, or hand over leadership; answer what
        can be answered, and stop.
        """
        if self.shell.is_dead:
            return
        await self.raft.flush()
        await self.raft.transfer_leadership()
        self._end_duties()
        self.fetches.close()
        self.registration.close()
        if self.migration is not None:
            await self.migration.close()
        await self._listeners.close()
        await self.raft.stop()
        await self.shell.tasks.join_all()
        self.raft.close()
        if self._active_epoch is not None:
            self.world.emit(ControllerResigned(leader_epoch=self._active_epoch, reason="stopping"))
        self.shell.emit_stopped()

    def abort(self) -> None:
        """Stop immediately, as a killed process would."""
        self.shell.die()

    # Interface for handlers
    # ----------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this is the active controller, to its own knowledge."""
        return self._active_epoch is not None and self.raft.is_active

    def handler_of(self, key: ApiKey) -> "Handler[Controller] | None":
        """Return the handler of an API, including the gate for the active controller; None if the
        API is not served.
        """
        return self._handlers.get(key)

    def now_ms(self) -> int:
        """Return the monotonic clock, by which broker sessions are measured."""
        return self.world.clock.monotonic_ms()

    def finalized_features(self) -> FinalizedFeatures:
        """Return the committed feature levels, and the metadata offset at their last change."""
        return self._features

    # Callbacks of the quorum
    # ----------------------------------------------------------------------------------------------

    async def on_committed(self, batches: Sequence[RecordBatch]) -> None:
        """Replay committed records; they are never reverted."""
        state = self.metadata_writer.state
        for batch in batches:
            if not batch.is_control:
                self._replay(await parsed_records(batch))
        state.commit_through(batches[-1].last_offset)
        self._check_features(batches[-1].last_offset)
        self._check_ready(batches[-1].next_offset)
        if self.migration is not None:
            self.migration.on_grown()

    async def on_snapshot(self, snapshot: SnapshotId, batches: Iterator[RecordBatch]) -> None:
        """Replace the state by that of a snapshot."""
        self.metadata_writer.state = self._new_state()
        for batch in batches:
            if not batch.is_control:
                self._replay_snapshot(batch, snapshot.end_offset - 1)
        self._check_features(snapshot.end_offset - 1)
        if self.migration is not None:
            self.migration.on_grown()

    def on_leader(self, leader_epoch: int, leader: VoterNode | None) -> None:
        """The leader has changed; None: there is no leader."""
        self.registration.recheck()
        self._check_ready(self.raft.applied_end_offset)
        if self.migration is not None and (leader is None or leader.key.id != self.config.node_id):
            self.migration.on_leader(None if leader is None else leader.key.id, leader_epoch)

    def on_lead(self, leader_epoch: int) -> None:
        """Become the active controller: write the records that a new leader owes to the log, and
        start tracking broker heartbeats.
        """
        state = self.metadata_writer.state
        self._active_epoch = leader_epoch
        state.activate(self.now_ms())
        try:
            first_records = self._first_records()
        except ActivationRefused as refused:
            self.shell.fail(refused)
            return
        if self.migration is not None:
            self.migration.on_leader(self.config.node_id, leader_epoch)
        self._duties = [
            self.shell.tasks.spawn(periodic(self), periodic.__name__.replace("_", "-"))
            for periodic in PERIODIC
        ]
        is_atomic = not any(isinstance(record, BeginTransactionRecord) for record in first_records)
        self.metadata_writer.write(
            first_records, on_committed=lambda _: self._become_ready(), is_atomic=is_atomic
        )

    def on_stop_leading(self, leader_epoch: int, reason: str, high_watermark: int) -> None:
        """Become a standby: revert uncommitted records, and fail the requests that wait for
        them.
        """
        self._active_epoch = None
        self._end_duties()
        self.world.emit(ControllerResigned(leader_epoch=leader_epoch, reason=reason))
        self.metadata_writer.give_up(high_watermark)
        if self.migration is not None:
            self.migration.on_leader(None, leader_epoch)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Records of this leader are committed."""
        self.has_metadata = True
        self.metadata_writer.on_high_watermark(high_watermark)
        self._check_features(high_watermark - 1)
        if self.migration is not None:
            self.migration.on_grown()

    def on_readable(self, *, is_committed: bool) -> None:
        """Fetches may read more of the log."""
        self.fetches.on_readable(is_committed=is_committed)

    def on_lost(self, reason: str, high_watermark: int) -> None:
        """The disk failed: revert uncommitted records without answering their requests."""
        if self._active_epoch is not None:
            self.world.emit(ControllerResigned(leader_epoch=self._active_epoch, reason=reason))
            self.metadata_writer.revert(high_watermark)

    def _first_records(self) -> list[Message]:
        """Return the first records of a new active controller. Raises ActivationRefused."""
        state, migration = self.metadata_writer.state, self.parts.migration_behavior(self.config)
        if not self.has_metadata:
            if self._bootstrap.refusal is not None:
                raise ActivationRefused(self._bootstrap.refusal)
            in_sync = state.configs.static_min_in_sync_replicas()
            return bootstrap_records(
                self._bootstrap,
                self.parts.migration_state_policy,
                min_in_sync_replicas=in_sync,
                migration=migration,
            )
        return takeover_records(
            is_in_transaction=state.is_in_transaction,
            migration_state=state.registries.migration_state.zk_migration_state,
            level=state.features.metadata_level,
            migration=migration,
        )

    def _replay(self, records: Sequence[tuple[Message, int]]) -> None:
        self.has_metadata = True
        state = self.metadata_writer.state
        for record, offset in records:
            state.replay(self._checked(record), offset)

    def _replay_snapshot(self, batch: RecordBatch, last_contained_offset: int) -> None:
        self.has_metadata = True
        state = self.metadata_writer.state
        for record in batch.records():
            assert record.value is not None, "a metadata record has a value"
            state.replay(self._checked(parse_record(record.value)), last_contained_offset)
            state.commit_through(last_contained_offset)

    def _checked(self, record: Message) -> Message:
        """Return a record. Raises ConfigError if it finalizes a feature level that this release
        does not support: later records may have any meaning.

        Source: FeaturesDelta.replay (checked with 3.4.1 on a log of 3.5.2: a fatal fault).
        """
        if isinstance(record, FeatureLevelRecord):
            known = self.parts.release
            lowest, highest = known.supported_features.get(record.name, (0, 0))
            if not lowest <= record.feature_level <= highest:
                level = f"{record.name} is finalized at level {record.feature_level}"
                way = (
                    " (upgrade the level before the release)"
                    if record.feature_level < lowest
                    else ""
                )
                raise ConfigError(
                    f"kraftsim.release: {level}, and {known.name} knows {lowest} to {highest}: "
                    f"it cannot read this metadata log{way}"
                )
        return record

    def _check_features(self, last_offset: int) -> None:
        self.registration.recheck()
        levels = dict(self.metadata_writer.state.features.finalized) if self.has_metadata else {}
        kraft_version = self.raft.quorum.voters.kraft_version
        if levels and kraft_version:
            levels[KRAFT_VERSION] = kraft_version
        if levels != self._features.levels:
            self._features = FinalizedFeatures(levels, last_offset)

    # Startup and shutdown
    # ----------------------------------------------------------------------------------------------

    async def _load(self, directory_id: bytes) -> None:
        release = self.parts.release
        self._bootstrap = load_bootstrap(
            metadata_world(self.world, self.config).disk, release, self.config.metadata_directory
        )
        own_versions = spoken_versions(release.controller_apis)
        self.raft = RaftNode(
            self.shell,
            directory_id=directory_id,
            own_versions=own_versions,
            settings=raft_settings(self.config, has_pre_vote=self.parts.has_pre_vote),
            listener=self,
            duties=self,
            leadership=self.parts.leadership,
            new_quorum=self.parts.quorum,
        )
        self._is_loaded = True
        self.registration = OwnRegistration(
            self,
            random_uuid(self.world, "incarnation id"),
            release.supported_features,
            own_versions,
        )
        self.snapshots = self.parts.snapshotting(self.shell, self.raft, self.parts.metadata_image)
        self.raft.on_grown = self.snapshots.on_grown
        self.fetches = WaitingFetches(self.raft, self.world)
        if self.config.zookeeper_metadata_migration_enable:
            self.migration = Migration(self)
        self.metadata_writer = MetadataWriter(self.world, self._new_state(), self.raft)
        try:
            await self.raft.load()
        except MalformedMessage as malformed:
            raise ConfigError(
                f"{self.config.metadata_key}: the metadata log in "
                f"{self.config.metadata_directory} cannot be parsed: {malformed}"
            ) from malformed
        self.raft.own_endpoints.update(self._own_endpoints())

    def _new_state(self) -> ControllerState:
        config = self.config
        return self.parts.controller_state(
            cluster_id=config.cluster_id,
            session_timeout_ms=config.broker_session_timeout_ms,
            metadata_version=self.parts.release.metadata_version,
            topic_defaults=TopicDefaults(
                num_partitions=config.num_partitions,
                replication_factor=config.default_replication_factor,
            ),
            producer_id_control=self.parts.id_control(config),
            node=self.parts.controller_node(config),
        )

    def _own_endpoints(self) -> dict[str, Address]:
        """Return the advertised address of each listener, the one that it listens on if none is
        advertised; a port of 0 is replaced by the bound port.

        Source: kafka.server.KafkaConfig.effectiveAdvertisedControllerListeners.
        """
        found = {}
        places = (*self.config.advertised_listeners, *self.config.advertisable_listeners)
        for listener in self.config.controller_listener_names:
            advertised = next((each for each in places if each.listener == listener), None)
            if advertised is not None:
                bound = self._listeners.bound.get(listener)
                found[listener] = Address(
                    advertised.host, advertised.port or (bound.port if bound is not None else 0)
                )
        return found

    def _check_ready(self, applied_end_offset: int) -> None:
        """A standby is ready once it has read what was committed when it found the leader."""
        quorum = self.raft.quorum
        if (
            quorum.leader_id not in (None, quorum.own.id)
            and applied_end_offset == self.raft.high_watermark
        ):
            self._become_ready()

    def _become_ready(self) -> None:
        if not self._is_ready.is_set():
            self.world.emit(NodeReady())
            self._is_ready.set()

    def _end_duties(self) -> None:
        for duty in self._duties:
            duty.cancel()
        self._duties = []

    def _on_death(self) -> None:
        self._listeners.abort()
        if self._is_loaded:
            self.fetches.close()
            self.registration.abort()
            if self.migration is not None:
                self.migration.abort()
            self.raft.abort()
