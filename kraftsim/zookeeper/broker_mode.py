"""A broker in ZooKeeper mode: it registers as an ephemeral znode, serves the controller's requests,
and reads configs from znodes.

What it reads or receives is converted to metadata records and applied to the same image that KRaft
brokers use, so the rest of the broker is identical in both modes.
Source: kafka.server.KafkaServer (2.3 to 3.9).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

from kraftsim.metadata.events import BrokerEpochReceived
from kraftsim.metadata.metadata_source import (
    NO_CONTROLLER,
    ClusterFeatures,
    SourceHost,
    SourceParts,
)
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_described_configs import ControllerNode
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage
from kraftsim.metadata.rules_registries import MetadataRecord
from kraftsim.metadata.topic_creation import TopicCreation
from kraftsim.partitions.log_directory import NO_BROKER_EPOCH, LogDirectory
from kraftsim.partitions.partitions import Partitions
from kraftsim.partitions.replication import IsrChanges, Replication
from kraftsim.producer_ids.broker import BlockChannel
from kraftsim.producer_ids.zookeeper import ControllerBlocks, ZnodeBlocks
from kraftsim.raft.rules_voters import Address
from kraftsim.server.api_offer import spoken_versions
from kraftsim.server.call import Answer, Deferred, Failed
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller_channel import ActiveController, ControllerChannel
from kraftsim.server.events import NodeReady
from kraftsim.server.forwarding import Forwarding, RequestForwarder
from kraftsim.server.outbound import VersionRange
from kraftsim.server.release_modes import protocol_version
from kraftsim.server.rules_authorization import KnownRights
from kraftsim.server.security.broker_guards import ZOOKEEPER_TABLE
from kraftsim.server.security.rights import GuardedBroker, GuardTable
from kraftsim.zookeeper.broker_registration import (
    broker_znode,
    cluster_id_of,
    create_chroot,
    create_persistent_paths,
    register_in_time,
)
from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.config_watch import (
    AccessWatch,
    ConfigWatch,
    FeatureWatch,
    ZookeeperFeatures,
)
from kraftsim.zookeeper.control_requests import (
    ControlledPartitions,
    ControlledReplication,
    ControlRequests,
)
from kraftsim.zookeeper.controller_requests import (
    DecidesHere,
    ZookeeperDecisions,
    ZookeeperTopicCreation,
)
from kraftsim.zookeeper.isr_znodes import IsrChangesWithoutEpochs, IsrZnodes
from kraftsim.zookeeper.rules_received_metadata import ReceivedMetadata
from kraftsim.zookeeper.session import OnEvent, ZookeeperSession
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k07_controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from protocol.zookeeper.kafka_znodes import LOG_DIRECTORY_EVENTS, build_log_directory_event
from protocol.zookeeper.op_codes import CreateMode, ZookeeperError

# --------------------------------------------------------------------------------------------------
# Controlled shutdown of a broker: it repeats the ControlledShutdown request until no partition
# leadership is left.
#
# Source: kafka.server.KafkaServer.controlledShutdown; controlled.shutdown.max.retries,
# controlled.shutdown.retry.backoff.ms.


class ControlledShutdown:
    """The controlled shutdown of one broker."""

    def __init__(self, mode: "ZookeeperMode") -> None:
        self._mode = mode
        self._channel = ControllerChannel(
            mode.shell,
            name="controlled-shutdown",
            controller=mode.active_controller,
            request_timeout_ms=mode.shell.config.controller_socket_timeout_ms,
            retry_timeout_ms=mode.shell.config.controller_socket_timeout_ms,
            own_versions=mode.controller_versions,
        )

    async def run(self) -> None:
        """Return when the controller has moved all leadership away, or when the retries are
        exhausted.
        """
        config = self._mode.shell.config
        for attempt in range(config.controlled_shutdown_max_retries):
            if attempt:
                await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
            if self._mode.active_controller.address is None:
                continue
            try:
                answer = await self._channel.request(
                    ControlledShutdownRequest(
                        broker_id=config.node_id, broker_epoch=self._mode.broker_epoch
                    )
                )
            except OSError:
                continue
            assert isinstance(answer, ControlledShutdownResponse), "ControlledShutdown was asked"
            if answer.error_code == ErrorCode.NONE and not answer.remaining_partitions:
                return

    def close(self) -> None:
        """Drop the connection."""
        self._channel.close()


CONTROLLER = "kraftsim.zookeeper.controller"
LOG_DIRECTORY_EVENT = f"{LOG_DIRECTORY_EVENTS}/log_dir_event_"
VERSION_WITH_FEATURES, VERSION_BEFORE = 5, 4
"""Versions of the broker znode: since inter.broker.protocol.version 2.7-IV0 it contains
features.
"""


class ControllerPart(DecidesHere, Protocol):
    """The component of a broker that can be the active controller."""

    async def elect(self) -> None:
        """Become the controller if there is none, and watch /controller."""
        ...

    def on_session_lost(self) -> None:
        """Resign immediately."""
        ...

    def learned(self, records: Sequence[MetadataRecord]) -> None:
        """Apply what was read from ZooKeeper, if this broker is the controller."""
        ...

    def stop_standing(self) -> None:
        """Remain the controller until shutdown, but do not stand for election again."""
        ...

    async def stop(self) -> None:
        """Resign, with controlled shutdown of the controller."""
        ...

    def abort(self) -> None:
        """Release everything immediately, as a killed process would."""
        ...


class ZookeeperParts(SourceParts, Protocol):
    """The replaceable classes of a broker in ZooKeeper mode, and of its controller component."""

    @property
    def received_metadata(self) -> type[ReceivedMetadata]:
        """Applies controller requests."""
        ...

    @property
    def controller_blocks(self) -> type[ControllerBlocks]:
        """Allocates producer-id blocks for brokers."""
        ...

    @property
    def controller_state(self) -> type[ControllerState]:
        """The state of the controller."""
        ...

    @property
    def rights(self) -> KnownRights:
        """The ACL operations and resource types of the release."""
        ...

    def controller_node(self, config: NodeConfig) -> ControllerNode:
        """Return a controller's description of itself."""
        ...


class ZookeeperHost(SourceHost, Protocol):
    """The broker of a ZooKeeper mode."""

    @property
    def parts(self) -> ZookeeperParts:
        """The replaceable classes of the node."""
        ...

    @property
    def is_decided(self) -> bool:
        """Whether startup has either completed or failed."""
        ...

    def set_cluster_id(self, cluster_id: str) -> None:
        """Set the cluster id that ZooKeeper has."""
        ...


class ZookeeperMode:
    """Implements `MetadataSource` with ZooKeeper and the active ZooKeeper-mode controller."""

    partitions: type[Partitions] = ControlledPartitions
    replication: type[Replication] = ControlledReplication
    guards: GuardTable[GuardedBroker] = ZOOKEEPER_TABLE

    def __init__(self, broker: ZookeeperHost) -> None:
        self.broker = broker
        self.shell = broker.shell
        self._rng = broker.shell.world.random("metadata answers")
        release = broker.parts.release
        self.apis: Mapping[ApiKey, VersionRange] = release.zookeeper_apis
        self.supported_features: Mapping[str, VersionRange] = {}
        self.controller_versions: Mapping[int, VersionRange] = spoken_versions(
            {**release.controller_apis, **release.zookeeper_apis}
        )
        self.active_controller = ActiveController()
        self.protocol = protocol_version(broker.shell.config, release)
        """inter.broker.protocol.version."""
        self._image = broker.parts.metadata_image()
        self._czxid = NO_BROKER_EPOCH
        self._is_up = False
        self.session = ZookeeperSession(self.shell, self._on_expired, self._on_renewed)
        self.received = self._receiver()
        self.requests = ControlRequests(
            self, self.received, lambda: broker.partitions, self._on_controller_request
        )
        self.configs = ConfigWatch(self.shell.world, self.session, lambda: self.image, self.apply)
        self._access = (
            AccessWatch(self.shell.world, self.session, lambda: self.image, self.apply)
            if self.shell.config.authorizer_class_name
            else None
        )
        self.features: ClusterFeatures = ZookeeperFeatures(lambda: self.image)
        self._feature_watch = (
            FeatureWatch(self.shell.world, self.session, self.features)
            if self.protocol.has_feature_znode
            else None
        )
        self.controller: ControllerPart | None = self._make_controller()
        self._departure = ControlledShutdown(self)

    def _receiver(self) -> ReceivedMetadata:
        broker = self.broker
        return broker.parts.received_metadata(
            self.shell.config.node_id,
            broker.incarnation_id,
            deletes_what_is_missing=self.shell.config.is_migrating,
        )

    def _make_controller(self) -> ControllerPart | None:
        if find_spec(CONTROLLER) is None:
            return None
        made: ControllerPart = import_module(CONTROLLER).ZookeeperController(
            self
        )  # which imports this module
        return made

    # Interface for the broker and its controller component
    # ---------------------------------------------------------------------------------

    @property
    def client(self) -> ZookeeperClient:
        """The client of the current session.

        Each session loss creates a new client, so callers must not keep it.
        """
        return self.session.client

    def listen(self, on_event: OnEvent) -> None:
        """Register a callback for all watch events, in this session and all later ones."""
        self.session.listen(on_event)

    @property
    def image(self) -> MetadataImage:
        """The metadata image of the cluster."""
        return self._image

    @property
    def broker_epoch(self) -> int:
        """The czxid of this broker's znode (its broker epoch); -1 before registration."""
        return self._czxid

    def epoch_for(self, *, is_kraft: bool) -> int:
        """Return the epoch by which a controller knows this broker."""
        return self._czxid

    @property
    def shutdown_epoch(self) -> int:
        """A clean shutdown leaves no epoch in this mode (checked against Apache Kafka 3.9.2)."""
        return NO_BROKER_EPOCH

    def isr_changes(self, channel: ControllerChannel) -> IsrChanges:
        """Send AlterPartition or write the state znode, depending on
        inter.broker.protocol.version.
        """
        moved = self.broker.on_partition_changed
        if self.protocol.uses_alter_partition:
            return IsrChangesWithoutEpochs(self.shell, channel, lambda: self.broker_epoch, moved)
        return IsrZnodes(
            self.shell, channel, self.session, lambda: self.received.controller_epoch, moved
        )

    def decisions(self, channel: ControllerChannel) -> RequestForwarder:
        """Decide locally if this broker is the controller."""
        return ZookeeperDecisions(
            lambda: self.controller,
            Forwarding(self.shell, channel),
            lambda: self.received.is_kraft_controller,
        )

    def topic_creation(self, channel: ControllerChannel) -> TopicCreation:
        """Send CreateTopics to the controller as a client would."""
        version = self.controller_versions[ApiKey.CREATE_TOPICS][1]
        return ZookeeperTopicCreation(
            self.shell.config, channel, version, lambda: self.received.is_kraft_controller
        )

    def block_channel(self, channel: ControllerChannel) -> BlockChannel:
        """Allocate producer-id blocks from ZooKeeper, or through the controller, depending on
        inter.broker.protocol.version.
        """
        return (
            channel
            if self.protocol.allocates_producer_ids
            else ZnodeBlocks(self.shell, self.session)
        )

    def reported_controller(self, alive: Sequence[int]) -> int:
        """Return the controller id for clients, if clients can reach it. They cannot reach a KRaft
        controller: then any live broker, which forwards requests."""
        if self.received.is_kraft_controller:
            return self._rng.choice(alive) if alive else NO_CONTROLLER
        known = self.received.controller_id
        return known if known is not None and known in alive else NO_CONTROLLER

    def with_configs(
        self, topics: Collection[str], answer: Callable[[], Answer]
    ) -> Answer | Deferred:
        """Read the topic configs before answering, if there are any to read. Without a session the
        known configs are used; any other refusal fails the request.
        """
        if not topics:
            return answer()
        later = Deferred()

        async def read_then_answer() -> None:
            try:
                await self.configs.reread_topics(topics)
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.SESSION_EXPIRED:
                    later.complete(Failed(f"the configs cannot be read: {refused}"))
                    return
            later.complete_with(answer)

        self.shell.tasks.spawn(read_then_answer(), "configs-described")
        return later

    # Startup
    # ----------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Open a session, create the persistent top-level znodes, and read the cluster id.

        Raises ZookeeperUnreachable, InconsistentClusterId, ConfigError.
        """

        async def learn() -> None:
            await create_chroot(self.session, self.shell.config)
            await create_persistent_paths(self.session)
            shell = self.shell
            self.broker.set_cluster_id(await cluster_id_of(self.session, shell.world, shell.config))

        with self._given_up_if_refused():
            await self.session.start()
            await self._start_up(learn)

    async def load(self, directory_id: bytes, previous_broker_epoch: int) -> None:
        """Register the broker, once everything else is ready. Raises BrokerIdTaken."""

        async def register_broker() -> None:
            await self._read_all()
            await self._register()

        with self._given_up_if_refused():
            self.session.emit_session_started()
            await self._start_up(register_broker)
        self._is_up = True

    async def _start_up(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run startup work; if the session expires and registration_wait_ms is set, retry in the
        next session.

        Apache Kafka exits.
        """
        while True:
            try:
                await work()
                return
            except ZookeeperRefused as refused:
                if (
                    refused.error != ZookeeperError.SESSION_EXPIRED
                    or not self.shell.config.registration_wait_ms
                ):
                    raise
            await self.session.until_there_is_one()

    @contextmanager
    def _given_up_if_refused(self) -> Iterator[None]:
        try:
            yield
        except ZookeeperRefused as refused:
            self.session.abort()
            raise OSError(f"zookeeper.connect: {refused}") from refused
        except BaseException:
            self.session.abort()
            raise

    def begin(self) -> None:
        """Accept requests of the controller, and stand for election if there is none."""
        spawn = self.shell.tasks.spawn
        spawn(self.requests.run(), "control-requests")
        spawn(self.configs.run(), "config-changes")
        if self._feature_watch is not None:
            spawn(self._feature_watch.run(), "feature-changes")
        if self._access is not None:
            spawn(self._access.run(), "access-changes")
        self.broker.start_serving()
        if self.controller is not None:
            spawn(self.controller.elect(), "controller-election")

    async def _read_all(self) -> None:
        """Read all configs and set watches."""
        if self._feature_watch is not None:
            await self._feature_watch.read()
        await self.configs.read_all()
        if self._access is not None:
            await self._access.read_all()

    async def _register(self) -> None:
        config, world = self.shell.config, self.shell.world
        version = VERSION_WITH_FEATURES if self.protocol.has_feature_znode else VERSION_BEFORE
        znode = broker_znode(config, self.broker.addresses, world.clock.wall_ms(), version)
        self._czxid = await register_in_time(
            self.session, config.node_id, znode, config.registration_wait_ms
        )
        world.emit(BrokerEpochReceived(broker_epoch=self._czxid))

    # Running
    # ----------------------------------------------------------------------------------------------

    async def apply(self, records: Sequence[MetadataRecord]) -> None:
        """Apply records read from ZooKeeper to the image, and publish the changes."""
        if self.controller is not None:
            self.controller.learned(records)
        for record in records:
            self.image.load(record)
        changes = self.image.take_changes()
        if changes:
            await self.publish(changes)

    async def publish(self, changes: ImageChanges) -> None:
        """Publish changes of the image to the broker."""
        await self.broker.publish(self.image, changes)

    async def on_published(self, image: MetadataImage, changes: ImageChanges) -> None:
        """The broker is in service once the image lists it as alive."""
        if (
            self.shell.config.node_id in changes.brokers
            and image.broker(self.shell.config.node_id) is not None
        ):
            if not self.broker.is_decided:
                self.shell.world.emit(NodeReady())
            self.broker.startup_completed()

    def _on_controller_request(self) -> None:
        """Connect to the controller that sent the latest request."""
        self.active_controller.learned(self._address_of_controller(), is_broker=True)

    def _address_of_controller(self) -> Address | None:
        config = self.shell.config
        registered = (
            None
            if self.received.controller_id is None
            else self.image.broker(self.received.controller_id)
        )
        if registered is None:
            return None
        listener = registered.listener(
            config.control_plane_listener_name or config.inter_broker_listener_name
        )
        return None if listener is None else Address(listener.host, listener.port)

    def directory_failed(self, directory: LogDirectory) -> None:
        """Notify the controller of a failed log directory, so that it checks the remaining
        replicas.
        """
        self.shell.tasks.spawn(self._report_directory(), "log-directory-event")

    async def _report_directory(self) -> None:
        data = build_log_directory_event(self.shell.config.node_id)
        await self.session.until_connected(
            lambda client: client.create(
                LOG_DIRECTORY_EVENT, data, CreateMode.PERSISTENT_SEQUENTIAL
            )
        )

    def _on_expired(self) -> None:
        """The session expired: other nodes may already have seen this broker's znode disappear."""
        if self.controller is not None:
            self.controller.on_session_lost()

    async def _on_renewed(self) -> None:
        """Register again with a new epoch, and re-read what changed meanwhile."""
        if not self._is_up:
            return  # startup continues in this session
        try:
            await self._register()
            await self._read_all()
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.SESSION_EXPIRED:
                raise
            return  # retried in the next session
        if self.controller is not None:
            await self.controller.elect()

    # Shutdown
    # ----------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Controlled shutdown: let the controller move leadership away."""
        if self.shell.config.controlled_shutdown_enable and self.broker.is_decided:
            await self._departure.run()

    async def stop(self) -> None:
        """Do not stand for election any more. An active controller stays active while logs are
        closed, because brokers still need its requests.
        """
        self._departure.close()
        if self.controller is not None:
            self.controller.stop_standing()

    async def finish(self) -> None:
        """Resign as controller and close the session, which deletes the broker's znode."""
        if self.controller is not None:
            await self.controller.stop()
            await self.shell.tasks.join_all()
        await self.session.close()

    def abort(self) -> None:
        """Release everything immediately."""
        self._departure.close()
        if self.controller is not None:
            self.controller.abort()
        self.session.abort()


class ZookeeperBroker(Protocol):
    """A broker that may be in ZooKeeper mode."""

    @property
    def zookeeper(self) -> ZookeeperMode | None:
        """The component for ZooKeeper mode; None on a KRaft broker."""
        ...
