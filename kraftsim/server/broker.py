"""The broker: its components, how they are wired, and the order in which they start and shut down.

Source: kafka.server.BrokerServer.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from kraftsim.core.decision import Refusal
from kraftsim.groups.group_coordinator import (
    GroupCoordinator,
    ShareGroupParts,
    group_settings,
    may_serve_consumers,
    may_serve_streams,
)
from kraftsim.metadata.metadata_source import MetadataSource
from kraftsim.metadata.quorum_source import QuorumSource
from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage
from kraftsim.metadata.rules_registrations import BrokerRegistration
from kraftsim.metadata.rules_topic_names import SHARE_GROUP_STATE
from kraftsim.metadata.rules_versions import (
    GROUP_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
)
from kraftsim.metadata.topic_settings import broker_settings, configs_of_groups
from kraftsim.partitions.directory_assignments import DirectoryAssignments
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_directory import PartitionKey
from kraftsim.partitions.rules_fetch_sessions import FetchSessions
from kraftsim.partitions.rules_follower import Following
from kraftsim.partitions.throttles import ReplicationThrottles
from kraftsim.producer_ids.broker import BlockChannel, ChannelContext, ProducerIds, block_channel
from kraftsim.releases.traits import RETRIES_LOST_STATE_REQUESTS
from kraftsim.server.api_offer import ApiOffer, spoken_versions
from kraftsim.server.call import Handler
from kraftsim.server.client_quotas import ClientQuotas, throttled
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ANNOUNCED_WINDOW, BY_API_VERSIONS, BY_PRODUCE
from kraftsim.server.connection import ServerConnection
from kraftsim.server.controller_channel import ControllerChannel
from kraftsim.server.dispatch import Dispatcher
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.forwarding import broker_handlers
from kraftsim.server.frame_server import FrameServer
from kraftsim.server.identity import load_identity, random_uuid
from kraftsim.server.listeners import Listeners
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.parts import Parts
from kraftsim.server.purgatory import Purgatory
from kraftsim.server.security.rights import guarded
from kraftsim.server.serving_broker import BrokerAddress, TelemetryReporter
from kraftsim.server.shell import NodeShell, PartShell
from kraftsim.server.with_rules import parsing_rules
from kraftsim.tiered_storage.remote_store import METADATA_TOPIC
from kraftsim.tiered_storage.tiered_storage import TieredStorage
from kraftsim.transactions.transaction_coordinator import TransactionCoordinator
from kraftsim.world.interface import World
from kraftsim.zookeeper.broker_mode import ZookeeperMode
from kraftsim.zookeeper.migrating_mode import MigratingMode
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraftsim.share_groups.share_coordinator import ShareCoordinator
    from kraftsim.share_groups.share_requests import ShareRequests
    from kraftsim.share_groups.state_persister import StatePersister


class Broker:
    """A node that hosts partitions and serves clients."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        parts: Parts,
        *,
        whole: NodeShell | None = None,
        new_source: "Callable[[Broker], MetadataSource] | None" = None,
    ) -> None:
        """`whole` and `new_source` are for the broker of a combined node: the shell of the node,
        and what makes the source of its metadata.
        """
        self.world = world
        self.config = config
        self.parts = parts
        self.config_tables = parts.config_tables
        """The configuration definitions of the emulated release."""
        self._is_decided = asyncio.Event()
        """Set once startup has either completed or failed."""
        self.shell = (
            NodeShell(world, config, self._on_death)
            if whole is None
            else PartShell(whole, self._on_death)
        )
        self.fetches: Purgatory[PartitionKey] = Purgatory(world)
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, world.random("fetch sessions")
        )
        self.deletions: Purgatory[PartitionKey] = Purgatory(world)
        """DeleteRecords requests that wait for the followers to advance their log start offset."""
        self.produces: Purgatory[PartitionKey] = Purgatory(world)
        """Produce requests with acks=all that wait until the in-sync replicas have replicated their
        records.
        """
        self.incarnation_id = random_uuid(world, "incarnation id")
        self.source: MetadataSource = (new_source or Broker._make_source)(self)
        self.features = self.source.features
        self._make_partitions()
        self._make_coordinators()
        self.quotas = ClientQuotas(config, world.clock, world.emit)
        found = cast(tuple[Handler[Broker], ...], broker_handlers())
        served = parsing_rules(guarded(self.shell, self.source.guards, found))
        self._handlers = tuple(map(throttled, served))
        self.telemetry: TelemetryReporter | None = self._make_telemetry()
        self.offer = ApiOffer(
            {**self.source.apis, **({} if self.telemetry is None else self.telemetry.apis)},
            [handler.key for handler in self._handlers],
            self.source.supported_features,
        )
        self.offer.is_migration_ready = config.is_migrating
        if config.offers_two_phase_commit:
            self.offer.offer_newest(ApiKey.INIT_PRODUCER_ID)
        if config.producer_state == ANNOUNCED_WINDOW and config.window_carrier != BY_PRODUCE:
            window = config.max_in_flight_sequence_number_per_connection
            self.offer.announce(window if config.window_carrier == BY_API_VERSIONS else None)
        self._listeners = Listeners(self.shell)
        if self.telemetry is not None:
            self._listeners.on_closed = self.telemetry.on_disconnect

    def _make_source(self) -> MetadataSource:
        if not self.config.is_zookeeper_mode:
            return QuorumSource(self)
        return MigratingMode(self) if self.config.is_migrating else ZookeeperMode(self)

    def _make_telemetry(self) -> TelemetryReporter | None:
        """Create the reporter of client metrics, if the configuration has one and the release knows
        it.
        """
        is_known = ConfigResourceType.CLIENT_METRICS in self.parts.resource_types
        if not self.config.client_telemetry or not is_known or self.config.is_zookeeper_mode:
            return None
        # imported lazily: few nodes have a reporter
        from kraftsim.client_telemetry.client_telemetry import ClientTelemetry

        return ClientTelemetry(
            self.shell, lambda: self.image, ends_instances=self.parts.ends_client_instances
        )

    def _make_partitions(self) -> None:
        """Create the components around partitions: logs, replication, and their channels to the
        controller.
        """
        self._channels: list[ControllerChannel] = []
        self._forwarded = self._new_channel("forwarding")
        self._alterations = self._new_channel("alter-partition")
        self.throttles = ReplicationThrottles(self.config, self.world.clock)
        self.replication = self.source.replication(
            self.shell,
            throttle=self.throttles.follower,
            rebuild=self._rebuild_from_remote,
            image=lambda: self.image,
            broker_epoch=lambda: self.broker_epoch,
            own_versions=spoken_versions(self.source.apis),
            changes=self.source.isr_changes(self._alterations),
            on_moved=self.on_partition_changed,
            disk_failed=lambda path, operation, failure: self.partitions.disk_failed(
                path, operation, failure
            ),
        )
        assignments = self._new_channel("directory-assignments")
        self.partitions = self.source.partitions(
            self.shell,
            self.parts,
            self.incarnation_id,
            self.on_partition_changed,
            self.replication,
            settings=self.settings,
            on_offline=self.source.directory_failed,
            assignments=DirectoryAssignments(self.shell, assignments, lambda: self.broker_epoch),
        )

    def _new_channel(self, name: str) -> ControllerChannel:
        """Create a channel to the controller; it is closed with this broker."""
        made = ControllerChannel(
            self.shell,
            name=name,
            controller=self.source.active_controller,
            request_timeout_ms=self.config.controller_socket_timeout_ms,
            own_versions=self.source.controller_versions,
        )
        self._channels.append(made)
        return made

    def _block_channel(self) -> BlockChannel:
        """Return the channel for producer id blocks."""
        context = ChannelContext(
            shell=self.shell,
            shared=self.source.block_channel(self._forwarded),
            new_channel=self._new_channel,
            next_replicated_id=lambda: self.image.next_producer_id or 0,
        )
        return block_channel(self.config, context)

    def _make_coordinators(self) -> None:
        """Create the group and transaction coordinators and the producer id manager."""
        self.group_configs = configs_of_groups(self.config, lambda: self.image)
        self._share_requests: ShareRequests | None = None
        self.groups = GroupCoordinator(
            self.shell,
            lambda: self.image,
            self.partitions,
            self.produces,
            self.fetches,
            self.parts.groups(self.config),
            group_settings(self.config, self.parts, self.group_configs),
            self._serves_consumers,
            self._serves_streams,
            ShareGroupParts(
                is_enabled=lambda: self.features.level(SHARE_VERSION) > 0,
                persister=lambda: self.persister,
                own_versions=spoken_versions(self.source.apis),
            ),
        )
        self._shares: ShareCoordinator | None = None
        self._persister: StatePersister | None = None
        self.verifier = self.parts.verifier(
            self.shell, lambda: self.image, own_versions=spoken_versions(self.source.apis)
        )
        self.transactional_commits = self.parts.transactional_commits(
            self.world.clock, self.verifier
        )
        self.forwarding = self.source.decisions(self._forwarded)
        self.creation = self.source.topic_creation(self._forwarded)
        self.tiered = self._make_tiered_storage()
        source = self.parts.id_source(self.config)(
            broker_epoch=lambda: self.broker_epoch,
            emit=self.world.emit,
            max_wait_ms=self.config.request_timeout_ms,
        )
        self.producer_ids = ProducerIds(self.shell, source, self._block_channel())
        self.transactions = TransactionCoordinator(
            self.shell,
            self.parts,
            lambda: self.image,
            self.partitions,
            self.produces,
            self.fetches,
            self.producer_ids,
            own_versions=spoken_versions(self.source.apis),
            transaction_version=lambda: self.features.level(TRANSACTION_VERSION),
        )

    def _make_tiered_storage(self) -> TieredStorage | None:
        """Create the remote log manager; None if tiered storage is disabled."""
        if not self.config.remote_log_storage_system_enable:
            return None
        tiered = TieredStorage(
            self.shell,
            lambda: self.image,
            self.partitions.hosted,
            self.settings,
            self.parts.snapshot_remedy(self.config),
            own_versions=spoken_versions(self.source.apis),
            create_topic=lambda: self.creation.create([METADATA_TOPIC]),
            on_changed=self.on_partition_changed,
        )
        self.partitions.on_tiering = tiered.on_tiering
        return tiered

    # The node interface
    # ----------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> Mapping[str, ListenerEndpoint]:
        """Listener name -> endpoint that it is bound to."""
        return self._listeners.bound

    def put_in_front(self, in_front: Callable[[FrameServer], FrameServer]) -> None:
        """Put something between all connections, present and future ones, and this node."""
        self._listeners.put_in_front(in_front)

    def connections(self) -> Iterable[ServerConnection]:
        """Return the connections of all clients."""
        return self._listeners.connections()

    async def start(self) -> None:
        """Bind the listeners, load the logs, and start to register.

        Raises ConfigError or OSError; everything is closed then.
        """
        await self.source.prepare()
        self.shell.emit_started()
        self.shell.security.registries = lambda: self.image.registries
        directory_id = self.replication.directory_id = await load_identity(self.world, self.config)
        self._listeners.admission.shut()
        await self._listeners.open(
            self.config.broker_listeners, Dispatcher(self, self._handlers, self.offer)
        )
        try:
            await self.source.load(directory_id, await self.partitions.load(directory_id))
        except BaseException:
            await self._listeners.close()
            raise
        self.source.begin()
        self.partitions.begin_upkeep()
        self.groups.begin_upkeep()
        self.transactions.begin_upkeep()
        if self.tiered is not None:
            self.tiered.begin()
        self.world.flush_events()

    async def ready(self) -> None:
        """Wait until the broker is unfenced and serves clients.

        Raises the failure of the broker if it failed before.
        """
        await self._is_decided.wait()
        if self.shell.is_dead:
            raise self.shell.failure or ConnectionAbortedError(
                "the broker stopped before it was ready"
            )

    async def failed(self) -> BaseException:
        """Wait until the broker fails, and return the reason."""
        return await self.shell.failed()

    async def stop(self) -> None:
        """Controlled shutdown: move leadership away, complete pending requests, close the logs."""
        if self.shell.is_dead:
            return
        await self.source.leave()
        await self._listeners.close()
        self.fetches.close()
        self.produces.close()
        self.deletions.close()
        self.replication.close()
        self.groups.close()
        if self._share_requests is not None:
            self._share_requests.manager.close()
        self.transactions.close()
        self.verifier.close()
        if self._persister is not None:
            self._persister.close()
        if self.tiered is not None:
            self.tiered.close()
        for channel in self._channels:
            channel.close()
        await self.source.stop()
        await self.partitions.cleaner.stop()
        await self.shell.tasks.join()
        await self.partitions.close(self.source.shutdown_epoch)
        await self.source.finish()
        self.shell.emit_stopped()
        self.shell.is_dead = True

    def abort(self) -> None:
        """Stop at once, like a killed process."""
        self.shell.die()

    # Used by handlers
    # ----------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The current metadata image."""
        return self.source.image

    @property
    def broker_epoch(self) -> int:
        """The epoch of this incarnation's registration; -1 before it has one."""
        return self.source.broker_epoch

    @property
    def zookeeper(self) -> ZookeeperMode | None:
        """The component for ZooKeeper mode; None on a KRaft broker."""
        return self.source if isinstance(self.source, ZookeeperMode) else None

    def set_cluster_id(self, cluster_id: str) -> None:
        """Set the cluster id, as ZooKeeper or the quorum reports it."""
        self.config = self.shell.config = replace(self.config, cluster_id=cluster_id)

    def start_serving(self) -> None:
        """Serve clients."""
        self._listeners.admission.open()

    @property
    def is_decided(self) -> bool:
        """Whether startup has either completed or failed."""
        return self._is_decided.is_set()

    def startup_completed(self) -> None:
        """Startup has completed."""
        self._is_decided.set()

    def settings(self) -> BrokerSettings:
        """Return the effective broker configuration: dynamic configs override the static
        properties.
        """
        return broker_settings(self.config, self.image)

    def _serves_consumers(self) -> bool:
        """Return whether the broker serves consumer groups.

        Releases without group.version are governed by the properties alone.
        """
        is_finalized = not self.parts.has_consumer_groups or self.features.level(GROUP_VERSION) > 0
        return is_finalized and may_serve_consumers(self.config, self.parts)

    @property
    def shares(self) -> "ShareCoordinator":
        """The share coordinator, which is created when it is first needed."""
        if self._shares is None:
            from kraftsim.share_groups.share_coordinator import ShareCoordinator

            self._shares = ShareCoordinator(
                self.shell,
                lambda: self.image,
                self.partitions,
                self.produces,
                self.fetches,
                self.parts.share_shard(),
                lambda: self.features.level(SHARE_VERSION) > 0,
            )
        return self._shares

    def _serves_streams(self) -> bool:
        """Return whether the broker serves streams groups: since 4.2, from streams.version 1 on."""
        return self.features.level(STREAMS_VERSION) > 0 and may_serve_streams(self.config)

    @property
    def persister(self) -> "StatePersister":
        """The client side of share coordinators, which is created when it is first needed."""
        if self._persister is None:
            from kraftsim.share_groups.state_persister import StatePersister

            self._persister = StatePersister(
                self.shell,
                lambda: self.image,
                own_versions=spoken_versions(self.source.apis),
                retries_lost=self.parts.release.has(RETRIES_LOST_STATE_REQUESTS),
            )
        return self._persister

    @property
    def serves_share_groups(self) -> bool:
        """Whether share.version is enabled."""
        return self.features.level(SHARE_VERSION) > 0

    @property
    def share_requests(self) -> "ShareRequests":
        """The share-partitions that it leads; loaded with the first request of a member."""
        if self._share_requests is None:
            from kraftsim.share_groups.share_requests import share_requests_of

            self._share_requests = share_requests_of(self, self.persister, self.parts)
        return self._share_requests

    async def _rebuild_from_remote(
        self,
        hosted: HostedPartition,
        following: Following,
        connection: PeerConnection,
        log_start_offset: int,
    ) -> str | None:
        """Restart a follower's log after the offsets that are in remote storage only; return the
        reason if that is not possible now.
        """
        if self.tiered is None:
            return "remote storage is disabled on this broker"
        return await self.tiered.rebuild(hosted, following, connection, log_start_offset)

    def on_partition_changed(self, key: PartitionKey) -> None:
        """Re-check requests in purgatory that watch a partition: its high watermark or its role has
        changed.
        """
        self.produces.check(key)
        self.deletions.check(key)
        self.fetches.check(key)
        self.groups.on_partition_changed(key)
        self.transactions.on_partition_changed(key)
        if key[0] == SHARE_GROUP_STATE and self.parts.has_share_groups:
            self.shares.on_partition_changed(key)
        if self._share_requests is not None:
            self._share_requests.manager.on_partition_changed(key)

    def is_alive(self, broker_id: int) -> bool:
        """Return whether a broker is registered and unfenced."""
        registered = self.image.broker(broker_id)
        return registered is not None and not registered.fenced

    def address_of(self, broker_id: int, listener: str) -> BrokerAddress | None:
        """Return the address of an unfenced broker on a listener; None if there is none."""
        registered: BrokerRegistration | None = self.image.broker(broker_id)
        if registered is None or registered.fenced:
            return None
        found = registered.listener(listener)
        return None if found is None else BrokerAddress(found.host, found.port, registered.rack)

    # Metadata
    # ----------------------------------------------------------------------------------------------

    async def publish(self, image: MetadataImage, changes: ImageChanges) -> None:
        """Apply the changes of a metadata image."""
        if self._share_requests is not None and not self.serves_share_groups:
            self._share_requests.manager.clear("share groups were disabled")
        if changes.registries:
            self.quotas.follow(image.registries.quotas.records())
            self._listeners.follow_quotas(image.registries.quotas.records())
        if changes.configs:
            self._listeners.follow(self.settings())
        if changes.configs or changes.topics:
            self.throttles.follow(image)
        await self.partitions.follow(image, changes)
        deleted = [each for each, _ in changes.partitions if image.topic_by_id(each) is None]
        if deleted:
            self.groups.on_topics_deleted()
            if self._shares is not None:
                self._shares.on_topics_deleted(deleted)
        await self.source.on_published(image, changes)

    def not_hosted_error(self, topic: str, partition: int) -> Refusal:
        """Return the error for a partition that is not hosted: UNKNOWN_TOPIC_OR_PARTITION,
        KAFKA_STORAGE_ERROR or NOT_LEADER_OR_FOLLOWER.
        """
        if self.image.partition(topic, partition) is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist")
        if self.partitions.is_offline(topic, partition):
            return Refusal(
                ErrorCode.KAFKA_STORAGE_ERROR, "the log directory of the partition is offline"
            )
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")

    # Shutdown
    # ----------------------------------------------------------------------------------------------

    def _on_death(self) -> None:
        self._is_decided.set()
        self._listeners.abort()
        self.source.abort()
        for channel in self._channels:
            channel.abort()
        self.replication.abort()
        self.transactions.abort()
        self.verifier.abort()
        if self._persister is not None:
            self._persister.abort()
        self.groups.abort()
        if self.tiered is not None:
            self.tiered.abort()
        self.groups.close()
        self.fetches.close()
        self.produces.close()
        self.deletions.close()
        self.partitions.abort()
