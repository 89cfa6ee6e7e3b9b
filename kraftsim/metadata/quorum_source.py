"""A KRaft broker's metadata: a replica of the metadata log, heartbeats, and requests to the active
controller.

Source: kafka.server.BrokerServer, org.apache.kafka.image.publisher.BrokerRegistrationTracker.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from kraftsim.metadata.metadata_publisher import MetadataPublisher
from kraftsim.metadata.metadata_source import NO_CONTROLLER, ClusterFeatures, SourceHost
from kraftsim.metadata.rules_config_definitions import ALL_DIRECTORIES
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage
from kraftsim.metadata.topic_creation import TopicCreation
from kraftsim.partitions.log_directory import NO_BROKER_EPOCH, LogDirectory
from kraftsim.partitions.partitions import Partitions
from kraftsim.partitions.replication import IsrChanges, Replication
from kraftsim.producer_ids.broker import BlockChannel
from kraftsim.raft.quorum_settings import raft_settings
from kraftsim.raft.raft_node import RaftNode
from kraftsim.raft.rules_voters import VoterNode
from kraftsim.server.api_offer import spoken_versions
from kraftsim.server.call import Answer
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.controller_channel import ActiveController, ControllerChannel
from kraftsim.server.forwarding import Forwarding, RequestForwarder
from kraftsim.server.identity import load_metadata_identity
from kraftsim.server.lifecycle import Lifecycle, Registration
from kraftsim.server.outbound import VersionRange
from kraftsim.server.security.broker_guards import BROKER_TABLE
from kraftsim.server.security.rights import GuardedBroker, GuardTable
from kraftsim.server.shell import NodeShell
from protocol.api_keys import ApiKey
from protocol.malformed import MalformedMessage

# --------------------------------------------------------------------------------------------------
# How a broker takes part in the controller quorum: it replicates the metadata log as an observer,
# and sends heartbeats to the leader
#
# KRaft brokers depend on both; brokers that migrate from ZooKeeper run both in addition (KIP-866).
# Source: org.apache.kafka.raft.KafkaRaftClient (observers), kafka.server.BrokerLifecycleManager.

HEARTBEAT_SHARE: Final = 2
"""A heartbeat times out after half a session timeout, so that the next one is still in time."""


def heartbeat_channel(
    shell: NodeShell, controller: ActiveController, own_versions: Mapping[int, VersionRange]
) -> ControllerChannel:
    """Return the channel for the broker's registration and heartbeats."""
    return ControllerChannel(
        shell,
        name="heartbeat",
        controller=controller,
        request_timeout_ms=shell.config.controller_socket_timeout_ms,
        retry_timeout_ms=shell.config.broker_session_timeout_ms // HEARTBEAT_SHARE,
        own_versions=own_versions,
    )


async def loaded_observer(
    shell: NodeShell,
    directory_id: bytes,
    own_versions: Mapping[int, VersionRange],
    listener: MetadataPublisher,
    *,
    has_pre_vote: bool,
) -> RaftNode:
    """Return a replica with the broker's metadata log loaded.

    Raises ConfigError or OSError; everything is closed then.
    """
    config = shell.config
    raft = RaftNode(
        shell,
        directory_id=await load_metadata_identity(shell.world, config, directory_id),
        own_versions=own_versions,
        settings=raft_settings(config, has_pre_vote=has_pre_vote, always_flushes=False),
        listener=listener,
    )
    try:
        await raft.load()
    except BaseException as failure:
        raft.close()
        if isinstance(failure, MalformedMessage):
            raise ConfigError(
                f"{config.metadata_key}: the metadata log in {config.metadata_directory} "
                f"contains unsupported records: {failure}"
            ) from failure
        raise
    return raft


CORDONED = "cordoned.log.dirs"


class QuorumSource:
    """Implements `MetadataSource` with a replica of the metadata log."""

    partitions: type[Partitions] = Partitions
    replication: type[Replication] = Replication
    guards: GuardTable[GuardedBroker] = BROKER_TABLE

    def __init__(self, broker: SourceHost) -> None:
        self._broker = broker
        self._shell = broker.shell
        self._rng = broker.shell.world.random("metadata answers")
        self._parts = broker.parts
        self.apis: Mapping[ApiKey, VersionRange] = broker.parts.release.broker_apis
        self.supported_features = broker.parts.release.supported_features
        self.controller_versions: Mapping[int, VersionRange] = spoken_versions(
            broker.parts.release.controller_apis
        )
        self.active_controller = ActiveController()
        self.features = ClusterFeatures(lambda: self.image, self._quorum_level)
        self._metadata = MetadataPublisher(
            broker.shell.world,
            broker.parts.metadata_image,
            broker.publish,
            self._on_leader,
            self._observe_fencing,
            high_watermark=lambda: None if self._raft is None else self._raft.high_watermark,
        )
        self._lifecycle: Lifecycle | None = None
        self._raft: RaftNode | None = None
        self._heartbeats = heartbeat_channel(
            broker.shell, self.active_controller, self.controller_versions
        )

    # Used by the broker
    # ----------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The current metadata image."""
        return self._metadata.image

    @property
    def broker_epoch(self) -> int:
        """The epoch of this incarnation's registration; -1 before it has one."""
        return NO_BROKER_EPOCH if self._lifecycle is None else self._lifecycle.broker_epoch

    @property
    def shutdown_epoch(self) -> int:
        """The same: the next incarnation reports it as its previous broker epoch (KIP-966)."""
        return self.broker_epoch

    def isr_changes(self, channel: ControllerChannel) -> IsrChanges:
        """Request them by AlterPartition."""
        return IsrChanges(
            self._shell, channel, lambda: self.broker_epoch, self._broker.on_partition_changed
        )

    def decisions(self, channel: ControllerChannel) -> RequestForwarder:
        """Forward requests in envelopes."""
        return Forwarding(self._shell, channel)

    def topic_creation(self, channel: ControllerChannel) -> TopicCreation:
        """Forward CreateTopics in an envelope, too."""
        return TopicCreation(
            self._shell.config, channel, self.controller_versions[ApiKey.CREATE_TOPICS][1]
        )

    def block_channel(self, channel: ControllerChannel) -> BlockChannel:
        """Use AllocateProducerIds."""
        return channel

    def reported_controller(self, alive: Sequence[int]) -> int:
        """Return a random alive broker: it forwards requests to the controller."""
        return self._rng.choice(alive) if alive else NO_CONTROLLER

    def with_configs(self, topics: Collection[str], answer: Callable[[], Answer]) -> Answer:
        """Return at once: the metadata log contains the configs."""
        return answer()

    # Startup
    # ----------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Nothing is required before loading."""

    async def load(self, directory_id: bytes, previous_broker_epoch: int) -> None:
        """Load this broker's replica of the metadata log.

        It is an observer: it fetches the log and never votes.
        """
        raft = self._raft = await self._replica(directory_id)
        self._lifecycle = Lifecycle(
            self._shell,
            self._heartbeats,
            self._registration(previous_broker_epoch),
            lambda: self._metadata.published_offset,
            lambda: raft.trouble,
            self._cordoned_directories,
        )

    async def _replica(self, directory_id: bytes) -> RaftNode:
        """Return the replica of the metadata log, loaded. Raises ConfigError or OSError."""
        return await loaded_observer(
            self._shell,
            directory_id,
            self.controller_versions,
            self._metadata,
            has_pre_vote=self._parts.has_pre_vote,
        )

    def _registration(self, previous_broker_epoch: int) -> Registration:
        broker = self._broker
        return Registration(
            config=self._shell.config,
            incarnation_id=broker.incarnation_id,
            directory_ids=lambda: broker.partitions.directories.ids,
            bound=broker.addresses,
            supported_features=self.supported_features,
            previous_broker_epoch=previous_broker_epoch,
        )

    def begin(self) -> None:
        """Start to fetch the log, and register."""
        raft = self._raft
        assert raft is not None, "load was called before"
        raft.begin()
        raft.run()
        snapshots = self._parts.snapshotting(self._shell, raft, self._parts.metadata_image)
        raft.on_grown = snapshots.on_grown
        self._shell.tasks.spawn(snapshots.run(), "write-snapshots")
        self._begin_lifecycle()

    def _begin_lifecycle(self) -> None:
        lifecycle = self._lifecycle
        assert lifecycle is not None, "load was called before"
        self._shell.tasks.spawn(lifecycle.run(), "lifecycle")
        self._shell.tasks.spawn(self._become_ready(lifecycle), "readiness")

    async def _become_ready(self, lifecycle: Lifecycle) -> None:
        """Serve clients and request unfencing once the broker has applied everything up to its own
        registration; report when it is unfenced.

        Before that it would report a cluster without brokers and topics. Source:
        kafka.server.BrokerServer.startup (enableRequestProcessing).
        """
        await lifecycle.caught_up.wait()
        await self._broker.partitions.remove_strays(self.image)
        self._broker.start_serving()
        lifecycle.set_ready_to_unfence()
        await lifecycle.running.wait()
        self._broker.startup_completed()

    # Running
    # ----------------------------------------------------------------------------------------------

    async def on_published(self, image: MetadataImage, changes: ImageChanges) -> None:
        """Re-register with the log directories once metadata.version supports them."""
        own = image.broker(self._shell.config.node_id)
        if (
            self._lifecycle is None
            or own is None
            or own.incarnation_id != self._broker.incarnation_id
        ):
            return
        if (
            image.metadata_level.has_directories
            and not own.directories
            and (changes.features or own.broker_id in changes.brokers)
        ):
            self._lifecycle.reregister()

    def _observe_fencing(self, image: MetadataImage) -> None:
        """Check every batch: the one that fences the broker may be published together with the one
        that unfences it.
        """
        own = image.broker(self._shell.config.node_id)
        if (
            self._lifecycle is not None
            and own is not None
            and own.incarnation_id == self._broker.incarnation_id
        ):
            self._lifecycle.observe_fencing(own.fenced)

    def directory_failed(self, directory: LogDirectory) -> None:
        """Report a failed log directory to the controller, which elects other leaders for its
        replicas.
        """
        if self._lifecycle is not None:
            self._lifecycle.directory_failed(directory.directory_id)

    def _on_leader(self, leader: VoterNode | None) -> None:
        """Connect to the leader of the metadata quorum: it is the active controller."""
        assert self._raft is not None, "called by the raft node"
        self.active_controller.learned(
            None if leader is None else self._raft.quorum.address_in(leader.endpoints)
        )

    def _cordoned_directories(self) -> list[bytes] | None:
        """Return the cordoned directories: those in `cordoned.log.dirs`, or all for `*`
        (KIP-1066).
        """
        if not self.image.metadata_level.has_cordons:
            return None
        named = [
            path.strip() for path in (self._broker.settings().value(CORDONED) or "").split(",")
        ]
        online = self._broker.partitions.directories.online
        return [
            each.directory_id for each in online if ALL_DIRECTORIES in named or each.path in named
        ]

    def _quorum_level(self) -> int:
        return 0 if self._raft is None else self._raft.quorum.voters.kraft_version

    # Shutdown
    # ----------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Controlled shutdown, limited to a session timeout, after which the controller fences the
        broker anyway.
        """
        config = self._shell.config
        if (
            self._lifecycle is None
            or not config.controlled_shutdown_enable
            or not self._lifecycle.begin_controlled_shutdown()
        ):
            return
        try:
            async with asyncio.timeout(config.broker_session_timeout_ms / 1000):
                await self._lifecycle.may_stop.wait()
        except TimeoutError:
            return

    async def stop(self) -> None:
        """Stop the heartbeats and the fetches."""
        self._heartbeats.close()
        if self._raft is not None:
            await self._raft.transfer_leadership()
            await self._raft.stop()

    async def finish(self) -> None:
        """Close the log."""
        if self._raft is not None:
            self._raft.close()

    def abort(self) -> None:
        """Close everything at once."""
        if self._raft is not None:
            self._raft.abort()
        self._heartbeats.abort()
