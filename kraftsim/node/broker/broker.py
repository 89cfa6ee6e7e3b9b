"""A broker put together: what it knows, what it keeps, whom it talks to, and the order in which it comes up and goes down.

Source: kafka.server.BrokerServer.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from kraftsim.core.metadata.broker_configs import BrokerSettings, applicable, static_settings
from kraftsim.core.metadata.broker_registration import BrokerRegistration
from kraftsim.core.metadata.config_control import ALL_BROKERS
from kraftsim.events.nodes import NodeStopped
from kraftsim.node.api_offer import ApiOffer, FinalizedFeatures, spoken_versions
from kraftsim.node.broker.forwarded import broker_handlers
from kraftsim.node.broker.forwarding import Forwarding
from kraftsim.node.broker.lifecycle import Lifecycle
from kraftsim.node.broker.metadata_follower import MetadataFollower
from kraftsim.node.broker.partitions import NO_BROKER_EPOCH, PartitionKey, Partitions
from kraftsim.node.broker.producer_ids import ProducerIds
from kraftsim.node.broker.registration import Registration
from kraftsim.node.broker.topic_creation import TopicCreation
from kraftsim.node.call import Handler
from kraftsim.node.config import NodeConfig
from kraftsim.node.controller_channel import ControllerChannel, ControllerFinder
from kraftsim.node.dispatch import Dispatcher
from kraftsim.node.endpoints import Endpoint
from kraftsim.node.identity import load_identity, random_uuid
from kraftsim.node.listeners import Listeners
from kraftsim.node.parts import Parts
from kraftsim.node.purgatory import Purgatory
from kraftsim.node.shell import NodeShell
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.batches import RecordBatch
from protocol.config_resources import ConfigResourceType
from protocol.metadata.registry import parse_record

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
        self.chance = world.random("metadata answers")
        self.image = parts.metadata_image()
        self._lifecycle: Lifecycle | None = None
        self._is_decided = asyncio.Event()
        """Set once it is known whether the broker came into service."""
        self.shell = NodeShell(world, config, self._on_death)
        self.fetches: Purgatory[PartitionKey] = Purgatory()
        self.partitions = Partitions(self.shell, parts, lambda: self.broker_epoch, self.fetches.check)
        own_versions = spoken_versions(parts.release.controller_apis)
        finder = ControllerFinder(config.first_asked)
        self._heartbeats = ControllerChannel(
            self.shell,
            name="heartbeat",
            finder=finder,
            retry_timeout_ms=config.broker_session_timeout_ms // HEARTBEAT_SHARE,
            request_timeout_ms=config.controller_socket_timeout_ms,
            own_versions=own_versions,
        )
        self._forwarded = ControllerChannel(
            self.shell, name="forwarding", finder=finder, request_timeout_ms=config.controller_socket_timeout_ms, own_versions=own_versions
        )
        self.forwarding = Forwarding(self._forwarded)
        self.creation = TopicCreation(config, self._forwarded, own_versions[ApiKey.CREATE_TOPICS][1])
        source = parts.producer_id_source(broker_epoch=lambda: self.broker_epoch, note=world.note, max_wait_ms=config.request_timeout_ms)
        self.producer_ids = ProducerIds(world, config.node_id, source, self._forwarded)
        self._handlers: tuple[Handler[Broker], ...] = broker_handlers()
        self.offer = ApiOffer(parts.release.broker_apis, [handler.key for handler in self._handlers], parts.release.supported_features)
        self._listeners = Listeners(self.shell)
        self._follower = MetadataFollower(self.shell, own_versions, finder, self._on_committed, self._on_metadata_reset)
        self._published_offset = -1
        """The last metadata offset that the broker acts by."""

    # The node ------------------------------------------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> Mapping[str, Endpoint]:
        """Listener name -> where it listens."""
        return self._listeners.bound

    async def start(self) -> None:
        """Listen, read what the last stop left, and begin to register. Raises ConfigError, OSError kinds; then nothing is left open."""
        self.shell.note_started()
        directory_id = await load_identity(self.world, self.config)
        await self._listeners.open(self.config.listeners, Dispatcher(self, self._handlers, self.offer))
        try:
            previous_broker_epoch = await self.partitions.load()
        except BaseException:
            await self._listeners.close()
            raise
        registration = Registration(
            config=self.config,
            incarnation_id=random_uuid(self.world, "incarnation id"),
            directory_id=directory_id,
            bound=self._listeners.bound,
            supported_features=self.parts.release.supported_features,
            previous_broker_epoch=previous_broker_epoch,
        )
        self._lifecycle = Lifecycle(self.shell, self._heartbeats, registration, lambda: self._published_offset)
        self.shell.tasks.spawn(self._lifecycle.run(), "lifecycle")
        self.shell.tasks.spawn(self._follower.run(), "metadata follower")
        self.shell.tasks.spawn(self._become_ready(self._lifecycle), "readiness")
        self.partitions.begin_upkeep()
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
        self._follower.close()
        self._heartbeats.close()
        self._forwarded.close()
        await self.shell.tasks.join()
        await self.partitions.close(self.broker_epoch)
        self.world.note(NodeStopped(reason="stopped"))
        self.world.flush_events()
        self.shell.is_dead = True

    def abort(self) -> None:
        """Go down at once, as a process that is killed."""
        self.shell.die()

    # What handlers ask ---------------------------------------------------------------------------------------------------------------------

    @property
    def broker_epoch(self) -> int:
        """The epoch of this incarnation's registration; -1 before it has one."""
        return NO_BROKER_EPOCH if self._lifecycle is None else self._lifecycle.broker_epoch

    def finalized_features(self) -> FinalizedFeatures:
        """Return the levels of the cluster; before anything is applied there are none."""
        return FinalizedFeatures(self.image.finalized_features, self.image.highest_offset)

    def settings(self) -> BrokerSettings:
        """Return what holds for this broker: what was set while brokers run, and what its properties say."""
        return BrokerSettings(
            static=static_settings(self.config.given),
            own=applicable(self.image.configs_of(ConfigResourceType.BROKER, str(self.config.node_id)), is_for_all=False),
            cluster=applicable(self.image.configs_of(ConfigResourceType.BROKER, ALL_BROKERS), is_for_all=True),
        )

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

    async def _on_committed(self, batches: tuple[RecordBatch, ...]) -> None:
        """Apply committed batches, then act by them."""
        for batch in batches:
            if batch.is_control:
                self.image.skip(batch.last_offset)
                continue
            for record in batch.records():
                assert record.value is not None, "a metadata record has a value"
                self.image.replay(parse_record(record.value), record.offset)
        if self.image.has_changes:
            await self.partitions.follow(self.image, self.image.take_changes())
        self._published_offset = self.image.highest_offset

    def _on_metadata_reset(self) -> None:
        """The quorum lost what it had committed: forget everything that came from it, and lead nothing until it is heard of again."""
        self.image = self.parts.metadata_image()
        self._published_offset = -1
        self.partitions.resign_all()

    # Coming up and going down --------------------------------------------------------------------------------------------------------------

    async def _become_ready(self, lifecycle: Lifecycle) -> None:
        """Ask to be let in once the broker has acted by everything up to its own registration, and say when it was."""
        await lifecycle.caught_up.wait()
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

    def _on_death(self) -> None:
        self._is_decided.set()
        self._listeners.abort()
        self._follower.abort()
        self._heartbeats.abort()
        self._forwarded.abort()
        self.fetches.close()
        self.partitions.abort()
