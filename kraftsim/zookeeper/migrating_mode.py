"""A ZooKeeper-mode broker that is being migrated to KRaft: it also registers with the KRaft quorum.

It replicates the metadata log without applying it, registers as a migrating broker, and sends
heartbeats. The controller that sends it requests determines where its own requests go: once that is
a KRaft controller, they go to the leader of the quorum, with the broker epoch that the quorum
assigned.
Source: kafka.server.{KafkaServer (3.4 to 3.9), ZkBrokerEpochManager}, KIP-866, KAFKA-16463.
"""

import asyncio
from typing import Final

from kraftsim.metadata.metadata_publisher import MetadataPublisher
from kraftsim.metadata.quorum_source import heartbeat_channel, loaded_observer
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage
from kraftsim.metadata.rules_versions import FEATURE, KRAFT_VERSION
from kraftsim.migration.events import MetadataCopyForgotten
from kraftsim.partitions.log_directory import NO_BROKER_EPOCH
from kraftsim.raft.raft_node import RaftNode
from kraftsim.raft.rules_voters import Address, VoterNode
from kraftsim.server.controller_channel import ActiveController
from kraftsim.server.identity import METADATA_DIRECTORY, metadata_world
from kraftsim.server.lifecycle import Lifecycle, Registration
from kraftsim.zookeeper.broker_mode import ZookeeperHost, ZookeeperMode

A_LONG_TIME_MS: Final = 365 * 24 * 3_600_000
"""Effectively no registration timeout: ZooKeeper-mode controllers serve the broker meanwhile."""
DEPARTURE_MS: Final = 300_000


class MigratingLifecycle(Lifecycle):
    """`Lifecycle` without an effective registration timeout."""

    def _registration_timeout_ms(self) -> int:
        return A_LONG_TIME_MS


class MigratingMode(ZookeeperMode):
    """Implements `MetadataSource` with ZooKeeper, and the KRaft quorum that takes over from it."""

    def __init__(self, broker: ZookeeperHost) -> None:
        super().__init__(broker)
        self._quorum = ActiveController()
        self._log = MetadataPublisher(
            self.shell.world,
            broker.parts.metadata_image,
            self._ignore,
            self._on_leader,
            takes_effect=False,
        )
        self._lifecycle: Lifecycle | None = None
        self._raft: RaftNode | None = None
        self._heartbeats = heartbeat_channel(self.shell, self._quorum, self.controller_versions)

    @property
    def broker_epoch(self) -> int:
        """The epoch by which the current controller knows this broker."""
        return self.epoch_for(is_kraft=self.received.is_kraft_controller)

    def epoch_for(self, *, is_kraft: bool) -> int:
        """Return the epoch assigned by the quorum or by ZooKeeper."""
        if not is_kraft:
            return super().epoch_for(is_kraft=False)
        return NO_BROKER_EPOCH if self._lifecycle is None else self._lifecycle.broker_epoch

    # Startup
    # ----------------------------------------------------------------------------------------------

    async def load(self, directory_id: bytes, previous_broker_epoch: int) -> None:
        """Replicate the metadata log from scratch, and register with ZooKeeper.

        Raises ConfigError, OSError kinds.
        """
        broker = self.broker
        await self._delete_log()
        raft = await loaded_observer(
            self.shell,
            directory_id,
            self.controller_versions,
            self._log,
            has_pre_vote=broker.parts.has_pre_vote,
        )
        try:
            await super().load(directory_id, previous_broker_epoch)
        except BaseException:
            raft.close()
            raise
        self._raft = raft
        registration = Registration(
            config=self.shell.config,
            incarnation_id=broker.incarnation_id,
            directory_ids=lambda: broker.partitions.directories.ids,
            bound=broker.addresses,
            supported_features=self._supported_by_migrating(),
            previous_broker_epoch=NO_BROKER_EPOCH,
            is_migrating=True,
        )
        self._lifecycle = MigratingLifecycle(
            self.shell,
            self._heartbeats,
            registration,
            lambda: self._log.published_offset,
            lambda: raft.trouble,
            lambda: None,
        )

    def _supported_by_migrating(self) -> dict[str, tuple[int, int]]:
        """Return only the level of inter.broker.protocol.version: controllers at another level
        refuse this broker.
        """
        features = {
            name: levels
            for name, levels in self.broker.parts.release.supported_features.items()
            if name == KRAFT_VERSION
        }
        return {**features, FEATURE: (self.protocol.level, self.protocol.level)}

    async def _delete_log(self) -> None:
        """Delete the metadata log of an earlier run, which may have been in KRaft mode."""
        disk = metadata_world(self.shell.world, self.shell.config).disk
        names = disk.list(METADATA_DIRECTORY)
        for name in names:
            disk.remove(f"{METADATA_DIRECTORY}/{name}")
        if names:
            await disk.flush_directory(METADATA_DIRECTORY)
            self.shell.world.emit(MetadataCopyForgotten())

    def begin(self) -> None:
        """Fetch the metadata log and register with the quorum, in addition to ZooKeeper mode."""
        raft, lifecycle = self._raft, self._lifecycle
        assert raft is not None and lifecycle is not None, "it was loaded"
        super().begin()
        raft.begin()
        raft.run()
        self.shell.tasks.spawn(lifecycle.run(), "lifecycle")
        self.shell.tasks.spawn(self._wait_unfenced(lifecycle), "unfencing")

    async def _wait_unfenced(self, lifecycle: Lifecycle) -> None:
        await lifecycle.caught_up.wait()
        lifecycle.set_ready_to_unfence()

    # Running
    # ----------------------------------------------------------------------------------------------

    async def _ignore(self, image: MetadataImage, changes: ImageChanges) -> None:
        """Ignore the metadata log: controller requests determine the image."""

    def _on_leader(self, leader: VoterNode | None) -> None:
        assert self._raft is not None, "only the Raft replica reports leaders"
        self._quorum.learned(
            None if leader is None else self._raft.quorum.address_in(leader.endpoints)
        )
        self._look_for_controller()

    def _on_controller_request(self) -> None:
        """Connect to the controller that sent the latest request."""
        self._look_for_controller()

    def _look_for_controller(self) -> None:
        address: Address | None
        if self.received.is_kraft_controller:
            address, is_broker = self._quorum.address, False
        else:
            address, is_broker = self._address_of_controller(), True
        known = self.active_controller
        if (known.address, known.is_broker) != (address, is_broker):
            known.learned(address, is_broker=is_broker)

    # Shutdown
    # ----------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Controlled shutdown with the current controller."""
        if (
            self.received.is_kraft_controller
            and self._lifecycle is not None
            and self._lifecycle.begin_controlled_shutdown()
        ):
            try:
                async with asyncio.timeout(
                    min(DEPARTURE_MS, self.shell.config.broker_session_timeout_ms) / 1000
                ):
                    await self._lifecycle.may_stop.wait()
            except TimeoutError:
                pass
            return
        await super().leave()

    async def stop(self) -> None:
        """Stop heartbeats and metadata fetches, and do not stand for election any more."""
        await super().stop()
        self._heartbeats.close()
        if self._raft is not None:
            await self._raft.transfer_leadership()
            await self._raft.stop()

    async def finish(self) -> None:
        """Close the metadata log, and close the session."""
        if self._raft is not None:
            self._raft.close()
        await super().finish()

    def abort(self) -> None:
        """Release everything immediately."""
        if self._raft is not None:
            self._raft.abort()
        self._heartbeats.abort()
        super().abort()
