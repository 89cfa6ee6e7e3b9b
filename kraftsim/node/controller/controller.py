"""A controller node: a quorum of one, its metadata log, and what it lets brokers do.

It starts in Kafka's order: read the log back, make it durable, win an election, open the epoch with a LeaderChange record, and only when that is
committed act as the controller. Its listener opens last, so whoever can connect talks to an active controller. A disk that refuses to write or to
flush takes the node down: what was promised to the log must not be decided twice.
Source: org.apache.kafka.controller.QuorumController, kafka.server.{ControllerServer, KafkaRaftServer}.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.catalogue import Catalogue
from kraftsim.core.metadata.activation import bootstrap_records, takeover_records
from kraftsim.core.metadata.replication_view import TopicDefaults
from kraftsim.core.partitions.segments import SegmentSettings
from kraftsim.events.metadata import ControllerElected, ControllerResigned
from kraftsim.events.nodes import NodeReady, NodeStopped
from kraftsim.node.api_offer import ApiOffer, FinalizedFeatures
from kraftsim.node.call import Handler
from kraftsim.node.config import NodeConfig
from kraftsim.node.config_keys import ConfigError
from kraftsim.node.controller.handlers import k01_fetch
from kraftsim.node.controller.ledger import MetadataLedger
from kraftsim.node.controller.metadata_log import MetadataLog, recover_metadata_log
from kraftsim.node.controller.quorum_state import win_election
from kraftsim.node.controller.replicas import Replicas
from kraftsim.node.dispatch import Dispatcher
from kraftsim.node.endpoints import Endpoint
from kraftsim.node.identity import load_identity
from kraftsim.node.listeners import Listeners
from kraftsim.node.log import PartitionLog
from kraftsim.node.purgatory import Purgatory
from kraftsim.node.shell import NodeShell
from kraftsim.world.interface import World
from protocol.disk.file_names import METADATA_TOPIC
from protocol.malformed import MalformedMessage
from protocol.metadata.m20_no_op import NoOpRecord
from protocol.schema import Message

if TYPE_CHECKING:
    from kraftsim.node.parts import Parts


class Controller:
    """One controller. `start`, then `stop` or `abort`; handlers use `log`, `ledger` and what else is public here."""

    log: MetadataLog
    ledger: MetadataLedger

    def __init__(self, world: World, config: NodeConfig, parts: "Parts") -> None:
        self.world = world
        self.config = config
        self.shell = NodeShell(world, config, self._on_death)
        self.waiting_fetches: Purgatory[str] = Purgatory()
        self.last_fetch_answer = k01_fetch.LastAnswer()
        self.replicas = Replicas()
        self._handlers: tuple[Handler[Controller], ...] = Catalogue("kraftsim.node.controller.handlers", "HANDLER", Handler).all()
        self.offer = ApiOffer(parts.release.controller_apis, [handler.key for handler in self._handlers], parts.release.supported_features)
        self._parts = parts
        self._listeners = Listeners(self.shell)
        self._partition_log: PartitionLog | None = None
        self._features_epoch = -1
        self._is_ready = asyncio.Event()

    # The node's life ----------------------------------------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> Mapping[str, Endpoint]:
        """Listener name -> where it listens."""
        return self._listeners.bound

    async def start(self) -> None:
        """Take the lead and open the listener. Raises ConfigError, OSError kinds; then nothing is left open."""
        self.shell.note_started()
        try:
            await load_identity(self.world, self.config)
            await self._take_lead()
            await self._activate()
            self.shell.tasks.spawn(self._flush_log(), "flush-metadata-log")
            await self._listeners.open(self.config.listeners, Dispatcher(self, self._handlers, self.offer))
        except BaseException:
            await self.shell.tasks.join()
            self._close_log()
            raise
        self.shell.tasks.spawn(self._fence_silent_brokers(), "fence-silent-brokers")
        if self.config.metadata_max_idle_interval_ms and self.ledger.state.features.metadata_level.has_no_op_records:
            self.shell.tasks.spawn(self._write_no_ops(), "write-no-ops")
        self.world.note(NodeReady())
        self._is_ready.set()

    async def ready(self) -> None:
        """Return once this is the active controller, which it is as soon as it listens."""
        await self._is_ready.wait()

    async def failed(self) -> BaseException:
        """Wait until the node fails, and return why."""
        return await self.shell.failed()

    async def stop(self) -> None:
        """Commit what is under way, answer it, and go down."""
        if self.shell.is_dead:
            return
        await self.log.flush()
        self.waiting_fetches.close()
        await self._listeners.close()
        await self.shell.tasks.join()
        await self.log.flush()
        self._close_log()
        self.world.note(ControllerResigned(leader_epoch=self.log.leader_epoch, reason="stopping"))
        self.world.note(NodeStopped(reason="stopped"))
        self.world.flush_events()

    def abort(self) -> None:
        """Go down at once, as a process that is killed."""
        self.shell.die()

    # What handlers ask --------------------------------------------------------------------------------------------------------------------------

    @property
    def advertised(self) -> Endpoint:
        """Where others reach this controller."""
        listener = self.config.listeners[0].listener
        told = self.config.advertised_at(listener)
        return told if told.port else Endpoint(listener, told.host, self._listeners.bound[listener].port)

    def now_ms(self) -> int:
        """Return the monotonic clock, by which sessions are judged."""
        return self.world.clock.monotonic_ms()

    def finalized_features(self) -> FinalizedFeatures:
        """Return the levels of the cluster's features. Their epoch is the end of what was loaded: levels do not change yet while a node runs."""
        return FinalizedFeatures(self.ledger.state.features.finalized, self._features_epoch)

    # Taking the lead ----------------------------------------------------------------------------------------------------------------------------

    async def _take_lead(self) -> None:
        """Read the log back, make it durable, and win an epoch of its own."""
        config = self.config
        log = PartitionLog(
            self.world,
            METADATA_TOPIC,
            0,
            SegmentSettings(segment_bytes=config.metadata_log_segment_bytes, segment_ms=config.metadata_log_segment_ms),
        )
        self._partition_log = log
        state = self._parts.controller_state(
            cluster_id=config.cluster_id,
            session_timeout_ms=config.broker_session_timeout_ms,
            metadata_version=self._parts.release.metadata_version,
            topic_defaults=TopicDefaults(
                num_partitions=config.num_partitions, replication_factor=config.default_replication_factor, replication_factor_max=1
            ),
            producer_id_control=self._parts.producer_id_control,
        )

        def take(record: Message, offset: int) -> None:
            state.replay(record, offset)
            state.commit_through(offset)

        try:
            last_epoch = await recover_metadata_log(log, take)
        except MalformedMessage as malformed:
            raise ConfigError(f"log.dirs: the metadata log in {config.log_dir} holds what is not understood here: {malformed}") from malformed
        await log.flush()
        leader_epoch = await win_election(self.world.disk, config.node_id, last_epoch)
        leader = self._parts.leader_log(leader_epoch=leader_epoch, log_end_offset=log.log_end_offset, note=self.world.note)
        self.log = MetadataLog(self.world, log, leader, self._on_committed)
        self.ledger = MetadataLedger(self.world, state, self.log, self._lose_log)

    async def _activate(self) -> None:
        """Open the epoch; once that is committed, write what the log needs from a new controller, and wait for that, too."""
        state, start_offset = self.ledger.state, self.log.log_end_offset
        self.log.append_leader_change(self.config.node_id)
        assert self._partition_log is not None, "the log was read back"
        await self._partition_log.store_epochs()
        await self.log.flush()
        self.world.note(ControllerElected(leader_epoch=self.log.leader_epoch, epoch_start_offset=start_offset))
        is_new = start_offset == 0
        first_records = (
            bootstrap_records(self._parts.release.metadata_version) if is_new else takeover_records(is_in_transaction=state.is_in_transaction)
        )
        if first_records:
            self.ledger.write(first_records)
            await self.log.flush()
        state.activate(self.now_ms())
        self._features_epoch = self.log.log_end_offset - 1

    def _on_committed(self, high_watermark: int) -> None:
        self.ledger.on_high_watermark(high_watermark)
        self.waiting_fetches.check(k01_fetch.COMMITTED)

    # Tasks --------------------------------------------------------------------------------------------------------------------------------------

    async def _flush_log(self) -> None:
        try:
            await self.log.flush_forever()
        except OSError as refused:
            self._lose_log(refused)

    async def _write_no_ops(self) -> None:
        """Write a NoOpRecord every now and then, so that followers see a live leader and learn of the high watermark (KIP-835)."""
        while True:
            await asyncio.sleep(self.config.metadata_max_idle_interval_ms / 1000)
            self.ledger.write([NoOpRecord()])

    async def _fence_silent_brokers(self) -> None:
        """Take brokers out of service whose session is over, each at its time. Nobody's session can end sooner than it is looked for here."""
        cluster = self.ledger.state.cluster
        while True:
            due_ms = cluster.next_stale_at_ms()
            pause_ms = self.config.broker_session_timeout_ms if due_ms is None else due_ms - self.now_ms()
            await asyncio.sleep(max(pause_ms, 1) / 1000)
            while (decision := self.ledger.state.decide_fence_stale(self.now_ms())) is not None:
                self.ledger.write(decision.records, decision.facts)

    # The end ------------------------------------------------------------------------------------------------------------------------------------

    def _lose_log(self, refused: OSError) -> None:
        """The disk refused a write or a flush: undo what is not committed, answer nobody, go down."""
        if self.shell.is_dead:
            return
        self.world.note(ControllerResigned(leader_epoch=self.log.leader_epoch, reason=f"the metadata log is lost: {refused}"))
        self.ledger.revert(self.log.high_watermark or 0)
        self.shell.fail(refused)

    def _on_death(self) -> None:
        self._listeners.abort()
        self.waiting_fetches.close()
        if self._partition_log is not None:
            self._partition_log.abort()

    def _close_log(self) -> None:
        if self._partition_log is not None:
            self._partition_log.close()
