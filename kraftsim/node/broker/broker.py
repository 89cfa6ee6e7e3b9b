"""A broker put together: what it knows, what it keeps, whom it talks to, and the order in which it comes up and goes down.

Source: kafka.server.BrokerServer.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.broker_configs import BrokerSettings
from kraftsim.core.metadata.broker_registration import BrokerRegistration
from kraftsim.core.metadata.feature_levels import GROUP_VERSION, TRANSACTION_VERSION
from kraftsim.core.metadata.image import ImageChanges, MetadataImage
from kraftsim.core.partitions.fetch_sessions import FetchSessions
from kraftsim.core.raft.voter_set import VoterNode
from kraftsim.events.nodes import NodeStopped
from kraftsim.node.api_offer import ApiOffer, spoken_versions
from kraftsim.node.broker.client_quotas import ClientQuotas, throttled
from kraftsim.node.broker.cluster_features import ClusterFeatures
from kraftsim.node.broker.directory_assignments import DirectoryAssignments
from kraftsim.node.broker.forwarded import broker_handlers
from kraftsim.node.broker.forwarding import Forwarding
from kraftsim.node.broker.groups.group_coordinator import GroupCoordinator
from kraftsim.node.broker.groups.told_settings import group_settings, may_serve_consumers
from kraftsim.node.broker.lifecycle import Lifecycle
from kraftsim.node.broker.log_directory import NO_BROKER_EPOCH, LogDirectory, PartitionKey
from kraftsim.node.broker.metadata_publisher import MetadataPublisher
from kraftsim.node.broker.partitions import Partitions
from kraftsim.node.broker.producer_ids import ProducerIds
from kraftsim.node.broker.registration import Registration
from kraftsim.node.broker.replication.replication import Replication
from kraftsim.node.broker.replication.throttles import ReplicationThrottles
from kraftsim.node.broker.topic_creation import TopicCreation
from kraftsim.node.broker.topic_settings import broker_settings
from kraftsim.node.broker.transactions.transaction_coordinator import TransactionCoordinator
from kraftsim.node.call import Handler
from kraftsim.node.config import NodeConfig
from kraftsim.node.config_keys import ConfigError
from kraftsim.node.controller_channel import ActiveController, ControllerChannel
from kraftsim.node.dispatch import Dispatcher
from kraftsim.node.endpoints import Endpoint
from kraftsim.node.identity import load_identity, load_metadata_identity, random_uuid
from kraftsim.node.listeners import Listeners
from kraftsim.node.parts import Parts
from kraftsim.node.purgatory import Purgatory
from kraftsim.node.raft.quorum_settings import raft_settings
from kraftsim.node.raft.raft_node import RaftNode
from kraftsim.node.security.broker_guards import BROKER_GUARDS
from kraftsim.node.security.rights import guarded
from kraftsim.node.shell import NodeShell
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage

CORDONED = "cordoned.log.dirs"
ALL_DIRECTORIES = "*"
HEARTBEAT_SHARE = 2
"""A heartbeat is given up after half a session: the next one still comes in time."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where clients reach a broker."""

    host: str
    port: int
    rack: str | None


class Broker:
    """A node that keeps partitions and serves clients."""

    def __init__(self, world: World, config: NodeConfig, parts: Parts) -> None:
        self.world = world
        self.config = config
        self.parts = parts
        self.config_tables = parts.config_tables
        """What its release knows of configurations."""
        self.chance = world.random("metadata answers")
        self._lifecycle: Lifecycle | None = None
        self._raft: RaftNode | None = None
        self._is_decided = asyncio.Event()
        """Set once it is known whether the broker came into service."""
        self.shell = NodeShell(world, config, self._on_death)
        self.features = ClusterFeatures(lambda: self.image, self._quorum_level)
        self.fetches: Purgatory[PartitionKey] = Purgatory()
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, world.random("fetch sessions"))
        self.deletions: Purgatory[PartitionKey] = Purgatory()
        """DeleteRecords requests that wait for the followers."""
        self.produces: Purgatory[PartitionKey] = Purgatory()
        """Produce requests with acks=all that wait until others have copied what they appended."""
        self._incarnation_id = random_uuid(world, "incarnation id")
        self._metadata = MetadataPublisher(world, parts.metadata_image, self._publish, self._on_leader)
        self._controller = ActiveController()
        self._own_versions = spoken_versions(parts.release.controller_apis)
        self._keep_partitions()
        self._coordinate()
        self.quotas = ClientQuotas(config, world.clock)
        self._handlers: tuple[Handler[Broker], ...] = tuple(map(throttled, guarded(self.shell, BROKER_GUARDS, broker_handlers())))
        self.offer = ApiOffer(parts.release.broker_apis, [handler.key for handler in self._handlers], parts.release.supported_features)
        self._listeners = Listeners(self.shell)

    def _keep_partitions(self) -> None:
        """Make what holds partitions: their logs, their copies, and the ways to the controller that both need."""
        channel = partial(
            ControllerChannel,
            self.shell,
            controller=self._controller,
            request_timeout_ms=self.config.controller_socket_timeout_ms,
            own_versions=self._own_versions,
        )
        self._heartbeats = channel(name="heartbeat", retry_timeout_ms=self.config.broker_session_timeout_ms // HEARTBEAT_SHARE)
        self._forwarded = channel(name="forwarding")
        self._alterations = channel(name="alter-partition")
        self.throttles = ReplicationThrottles(self.config, self.world.clock)
        self.replication = Replication(
            self.shell,
            throttle=self.throttles.follower,
            image=lambda: self.image,
            broker_epoch=lambda: self.broker_epoch,
            own_versions=spoken_versions(self.parts.release.broker_apis),
            channel=self._alterations,
            on_moved=self.on_partition_changed,
            disk_failed=lambda path, operation, failure: self.partitions.disk_failed(path, operation, failure),
        )
        self._assignments = channel(name="directory-assignments")
        self.partitions = Partitions(
            self.shell,
            self.parts,
            self._incarnation_id,
            self.on_partition_changed,
            self.replication,
            settings=self.settings,
            on_offline=self._on_directory_offline,
            assignments=DirectoryAssignments(self.shell, self._assignments, lambda: self.broker_epoch),
        )

    def _coordinate(self) -> None:
        """Make what coordinates groups and transactions, and hands out producer ids."""
        self.groups = GroupCoordinator(
            self.shell,
            lambda: self.image,
            self.partitions,
            self.produces,
            self.fetches,
            self.parts.group_shard,
            group_settings(self.config, self.parts),
            self._serves_consumers,
        )
        self.verifier = self.parts.verifier(self.shell, lambda: self.image, own_versions=spoken_versions(self.parts.release.broker_apis))
        self.transactional_commits = self.parts.transactional_commits(self.world.clock, self.verifier)
        self.forwarding = Forwarding(self._forwarded)
        self.creation = TopicCreation(self.config, self._forwarded, self._own_versions[ApiKey.CREATE_TOPICS][1])
        source = self.parts.producer_id_source(
            broker_epoch=lambda: self.broker_epoch, note=self.world.note, max_wait_ms=self.config.request_timeout_ms
        )
        self.producer_ids = ProducerIds(self.world, self.config.node_id, source, self._forwarded)
        self.transactions = TransactionCoordinator(
            self.shell,
            self.parts,
            lambda: self.image,
            self.partitions,
            self.produces,
            self.fetches,
            self.producer_ids,
            own_versions=spoken_versions(self.parts.release.broker_apis),
            transaction_version=lambda: self.features.level(TRANSACTION_VERSION),
        )

    # The node ------------------------------------------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> Mapping[str, Endpoint]:
        """Listener name -> where it listens."""
        return self._listeners.bound

    async def start(self) -> None:
        """Listen, read what the last stop left, and begin to register. Raises ConfigError, OSError kinds; then nothing is left open."""
        self.shell.note_started()
        self.shell.security.registries = lambda: self.image.registries
        directory_id = self.replication.directory_id = await load_identity(self.world, self.config)
        self._listeners.door.shut()
        await self._listeners.open(self.config.listeners, Dispatcher(self, self._handlers, self.offer))
        try:
            previous_broker_epoch = await self.partitions.load(directory_id)
            raft = self._raft = await self._load_metadata_log(await load_metadata_identity(self.world, self.config, directory_id))
        except BaseException:
            await self._listeners.close()
            raise
        registration = Registration(
            config=self.config,
            incarnation_id=self._incarnation_id,
            directory_ids=lambda: self.partitions.directories.ids,
            bound=self._listeners.bound,
            supported_features=self.parts.release.supported_features,
            previous_broker_epoch=previous_broker_epoch,
        )
        self._lifecycle = Lifecycle(
            self.shell, self._heartbeats, registration, lambda: self._metadata.published_offset, lambda: raft.trouble, self._cordoned_directories
        )
        raft.begin()
        raft.run()
        snapshots = self.parts.snapshotting(self.shell, raft, self.parts.metadata_image)
        raft.on_grown = snapshots.on_grown
        self.shell.tasks.spawn(snapshots.run(), "write-snapshots")
        self.shell.tasks.spawn(self._lifecycle.run(), "lifecycle")
        self.shell.tasks.spawn(self._become_ready(self._lifecycle), "readiness")
        self.partitions.begin_upkeep()
        self.groups.begin_upkeep()
        self.transactions.begin_upkeep()
        self.world.flush_events()

    async def ready(self) -> None:
        """Wait until the controller lets this broker serve clients. Raises what the broker failed with instead, if it did."""
        await self._is_decided.wait()
        if self.shell.is_dead:
            raise self.shell.failure or ConnectionAbortedError("the broker went down before it was ready")

    async def failed(self) -> BaseException:
        """Wait until the broker fails, and return why."""
        return await self.shell.failed()

    async def stop(self) -> None:
        """Hand leadership over, answer what is under way, close the logs."""
        if self.shell.is_dead:
            return
        await self._shut_down_controlled()
        await self._listeners.close()
        self.fetches.close()
        self.produces.close()
        self.deletions.close()
        self.replication.close()
        self.groups.close()
        self.transactions.close()
        self.verifier.close()
        self._heartbeats.close()
        self._forwarded.close()
        self._alterations.close()
        self._assignments.close()
        if self._raft is not None:
            await self._raft.hand_over()
            await self._raft.stop()
        await self.partitions.cleaner.stop()
        await self.shell.tasks.join()
        if self._raft is not None:
            self._raft.close()
        await self.partitions.close(self.broker_epoch)
        self.world.note(NodeStopped(reason="stopped"))
        self.world.flush_events()
        self.shell.is_dead = True

    def abort(self) -> None:
        """Go down at once, as a process that is killed."""
        self.shell.die()

    # What handlers ask ---------------------------------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """What is known of the cluster."""
        return self._metadata.image

    @property
    def broker_epoch(self) -> int:
        """The epoch of this incarnation's registration; -1 before it has one."""
        return NO_BROKER_EPOCH if self._lifecycle is None else self._lifecycle.broker_epoch

    def settings(self) -> BrokerSettings:
        """Return what holds for this broker: what was set while brokers run, and what its properties say."""
        return broker_settings(self.config, self.image)

    def _serves_consumers(self) -> bool:
        """Tell whether there are consumer groups. Before group.version nobody but the properties had a say."""
        is_finalized = not self.parts.has_consumer_groups or self.features.level(GROUP_VERSION) > 0
        return is_finalized and may_serve_consumers(self.config, self.parts)

    def on_partition_changed(self, key: PartitionKey) -> None:
        """Look again at whoever waits for something in a partition: its high watermark or its role has changed."""
        self.produces.check(key)
        self.deletions.check(key)
        self.fetches.check(key)
        self.groups.on_partition_changed(key)
        self.transactions.on_partition_changed(key)

    def is_alive(self, broker_id: int) -> bool:
        """Tell whether a broker is registered and not fenced."""
        registered = self.image.broker(broker_id)
        return registered is not None and not registered.fenced

    def address_of(self, broker_id: int, listener: str) -> Address | None:
        """Return where a live broker can be reached on a listener; None if it cannot."""
        registered: BrokerRegistration | None = self.image.broker(broker_id)
        if registered is None or registered.fenced:
            return None
        found = registered.listener(listener)
        return None if found is None else Address(found.host, found.port, registered.rack)

    # Metadata ------------------------------------------------------------------------------------------------------------------------------

    async def _load_metadata_log(self, directory_id: bytes) -> RaftNode:
        """Read back what this broker has of the metadata log. It is an observer: it copies the log, and never votes."""
        raft = RaftNode(
            self.shell,
            directory_id=directory_id,
            own_versions=self._own_versions,
            settings=raft_settings(self.config, has_pre_vote=self.parts.has_pre_vote, always_flushes=False),
            listener=self._metadata,
        )
        try:
            await raft.load()
        except BaseException as failure:
            raft.close()
            if isinstance(failure, MalformedMessage):
                raise ConfigError(
                    f"{self.config.metadata_key}: the metadata log in {self.config.metadata_directory} holds what is not understood here: {failure}"
                ) from failure
            raise
        return raft

    async def _publish(self, image: MetadataImage, changes: ImageChanges) -> None:
        """Act by what changed in the metadata."""
        if changes.registries:
            self.quotas.follow(image.registries.quotas.records())
            self._listeners.follow_quotas(image.registries.quotas.records())
        if changes.configs:
            self._listeners.follow(self.settings())
        if changes.configs or changes.topics:
            self.throttles.follow(image)
        await self.partitions.follow(image, changes)
        if any(image.topic_by_id(topic_id) is None for topic_id, _ in changes.partitions):
            self.groups.on_topics_deleted()
        own = image.broker(self.config.node_id)
        if self._lifecycle is None or own is None or own.incarnation_id != self._incarnation_id:
            return
        if image.metadata_level.has_directories and not own.directories and (changes.features or own.broker_id in changes.brokers):
            self._lifecycle.register_again()

    def _on_directory_offline(self, directory: LogDirectory) -> None:
        """Tell the controller that what lies in a directory is to be led by others."""
        if self._lifecycle is not None:
            self._lifecycle.directory_failed(directory.directory_id)

    def why_not_here(self, topic: str, partition: int) -> Refusal:
        """Return why a partition is not served that is not hosted: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR or NOT_LEADER_OR_FOLLOWER."""
        if self.image.partition(topic, partition) is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        if self.partitions.is_offline(topic, partition):
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory of the partition is offline")
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")

    def _on_leader(self, leader: VoterNode | None) -> None:
        """Talk to whoever leads the quorum: it is the active controller."""
        assert self._raft is not None, "the replica says who leads"
        self._controller.learned(None if leader is None else self._raft.quorum.address_in(leader.endpoints))

    # Coming up and going down --------------------------------------------------------------------------------------------------------------

    async def _become_ready(self, lifecycle: Lifecycle) -> None:
        """Serve clients and ask to be let in once the broker has acted by everything up to its own registration; say when it was let in.

        Before that it would tell of a cluster without brokers and topics. Source: kafka.server.BrokerServer.startup (enableRequestProcessing).
        """
        await lifecycle.caught_up.wait()
        await self.partitions.remove_strays(self.image)
        self._listeners.door.open()
        lifecycle.set_ready_to_unfence()
        await lifecycle.running.wait()
        self._is_decided.set()

    async def _shut_down_controlled(self) -> None:
        """Let the controller move everything away; no longer than a session, after which it would do so anyway."""
        if self._lifecycle is None or not self.config.controlled_shutdown_enable or not self._lifecycle.begin_controlled_shutdown():
            return
        try:
            async with asyncio.timeout(self.config.broker_session_timeout_ms / 1000):
                await self._lifecycle.may_stop.wait()
        except TimeoutError:
            return

    def _cordoned_directories(self) -> list[bytes] | None:
        """Return the directories that get no new partitions: those that `cordoned.log.dirs` names, `*` all of them (KIP-1066)."""
        if not self.image.metadata_level.has_cordons:
            return None
        named = [path.strip() for path in (self.settings().value(CORDONED) or "").split(",")]
        return [each.directory_id for each in self.partitions.directories.online if ALL_DIRECTORIES in named or each.path in named]

    def _quorum_level(self) -> int:
        return 0 if self._raft is None else self._raft.quorum.voters.kraft_version

    def _on_death(self) -> None:
        self._is_decided.set()
        self._listeners.abort()
        if self._raft is not None:
            self._raft.abort()
        self._heartbeats.abort()
        self._forwarded.abort()
        self._alterations.abort()
        self._assignments.abort()
        self.replication.abort()
        self.transactions.abort()
        self.verifier.abort()
        self.groups.close()
        self.fetches.close()
        self.produces.close()
        self.deletions.close()
        self.partitions.abort()
