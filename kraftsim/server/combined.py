"""A combined node: a controller and a broker in one process, with one node id, one data directory
and one replica of the metadata log.

The controller owns the replica, and the broker applies the committed log from it: it fetches no
second copy. Otherwise the two behave as if they were apart: each has its own listeners, and the
broker registers, sends heartbeats and forwards requests to the active controller over the network,
which may be its own. The controller starts first and stops last, because the broker needs a
controller for both. The two fail together. They share the event log of the node, which has one
start, one readiness (that of the broker), one stop, and one count of connections.
Source: kafka.server.{KafkaRaftServer, SharedServer} (process.roles=broker,controller), KIP-631.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from kraftsim.metadata.metadata_source import SourceHost
from kraftsim.metadata.quorum_source import QuorumSource
from kraftsim.raft.metadata_store import DamagedSnapshot
from kraftsim.raft.raft_node import APPLY_BYTES, MetadataListener, RaftNode
from kraftsim.raft.rules_voters import VoterNode
from kraftsim.server.broker import Broker
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller import Controller
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.parts import Parts
from kraftsim.server.shell import NodeShell
from kraftsim.server.tasks import Signal
from kraftsim.world.interface import World, YieldPoint
from protocol.records.batches import RecordBatch, split_batches

# --------------------------------------------------------------------------------------------------
# The committed metadata log, read from the replica of the node's controller
#
# A replica passes committed batches to its controller only while that is a standby: an active one
# replays its records when it writes them. The broker needs them in both roles, and only those that
# are committed, so it reads them from the log at its own pace.
# Source: org.apache.kafka.image.loader.MetadataLoader, which SharedServer registers with the same
# RaftClient as the QuorumController.


class CommittedLog:
    """Passes the committed log of a replica to a second listener; `run` is a task of the node."""

    def __init__(self, shell: NodeShell, raft: RaftNode, listener: MetadataListener) -> None:
        self._shell = shell
        self._raft = raft
        self._listener = listener
        self._may_apply = Signal()
        self._end_offset = 0
        self._has_begun = False

    def on_grown(self) -> None:
        """The high watermark has advanced."""
        self._may_apply.set()

    async def run(self) -> None:
        """Pass everything that is committed, until cancelled."""
        self._may_apply.set()
        while True:
            await self._may_apply.wait()
            try:
                while await self._pass_next():
                    await asyncio.sleep(0)
                    await self._shell.world.yield_point(YieldPoint.BATCH_PASSED_TO_BROKER)
            except OSError as refused:
                self._raft.fail_disk("read", refused)
                return

    async def _pass_next(self) -> bool:
        """Pass the next committed batches, or the snapshot that replaced them; return whether there
        may be more.
        """
        log, store = self._raft.quorum.log, self._raft.store
        latest = log.latest_snapshot
        if latest is not None and (not self._has_begun or self._end_offset < log.start_offset):
            self._has_begun = True
            await self._listener.on_snapshot(latest, _whole(store.snapshots.read(latest)))
            self._end_offset = latest.end_offset
            return True
        self._has_begun = True
        committed = self._raft.high_watermark or 0
        if self._end_offset >= committed:
            return False
        batches = tuple(split_batches(store.read(self._end_offset, APPLY_BYTES, committed)))
        assert batches, f"the log has no batches from {self._end_offset} to {committed}"
        await self._listener.on_committed(batches)
        self._end_offset = batches[-1].next_offset
        return True


def _whole(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield the batches of a snapshot, a damaged one as a failed read: no other copy is there."""
    try:
        yield from batches
    except DamagedSnapshot as damaged:
        raise OSError(f"the snapshot is damaged: {damaged}") from damaged


# --------------------------------------------------------------------------------------------------
# The parts, where they differ from those of nodes with one role


class CombinedSource(QuorumSource):
    """The metadata of a broker whose process has the replica of a controller already."""

    def __init__(self, broker: SourceHost, controller: "CombinedController") -> None:
        super().__init__(broker)
        self._controller = controller

    async def _replica(self, directory_id: bytes) -> RaftNode:
        """Return the replica of the controller."""
        return self._controller.raft

    def begin(self) -> None:
        """Apply the committed log, and register."""
        raft = self._controller.raft
        committed = CommittedLog(self._shell, raft, self._metadata)
        before = raft.on_grown

        def on_grown() -> None:
            if before is not None:
                before()
            committed.on_grown()

        raft.on_grown = on_grown
        self._shell.tasks.spawn(committed.run(), "apply-metadata-log")
        self._begin_lifecycle()
        self._controller.report_leader_to(self._learn_leader)

    def _learn_leader(self) -> None:
        quorum = self._controller.raft.quorum
        self.active_controller.learned(
            None if quorum.leader_id is None else quorum.address_in(quorum.leader_endpoints)
        )

    async def stop(self) -> None:
        """Stop the heartbeats; the replica remains with the controller."""
        self._heartbeats.close()

    async def finish(self) -> None:
        """The controller closes the log."""

    def abort(self) -> None:
        """Close the heartbeats at once."""
        self._heartbeats.abort()


class CombinedController(Controller):
    """A controller whose broker also needs to know the leader; the node is ready when the broker
    is.
    """

    _report_leader: Callable[[], None] | None = None

    def report_leader_to(self, report: Callable[[], None]) -> None:
        """Call `report` now, and whenever the leader changes."""
        self._report_leader = report
        report()

    def on_leader(self, leader_epoch: int, leader: VoterNode | None) -> None:
        """The leader has changed."""
        super().on_leader(leader_epoch, leader)
        if self._report_leader is not None:
            self._report_leader()

    def _become_ready(self) -> None:
        """Emit nothing: a node is ready once, when its broker is."""
        self._is_ready.set()


class CombinedNode:
    """A controller and a broker in one process: `start`, then `stop` or `abort`."""

    def __init__(self, world: World, config: NodeConfig, parts: Parts) -> None:
        self.config = config
        self.shell = NodeShell(world, config, self._on_death)
        self.controller = CombinedController(world, config, parts, whole=self.shell)
        self.broker = Broker(
            world,
            config,
            parts,
            whole=self.shell,
            new_source=lambda broker: CombinedSource(broker, self.controller),
        )

    @property
    def addresses(self) -> Mapping[str, ListenerEndpoint]:
        """Listener name -> bound endpoint, of both parts."""
        return {**self.broker.addresses, **self.controller.addresses}

    async def start(self) -> None:
        """Start the controller, then the broker.

        Raises ConfigError, OSError kinds; then nothing is left open.
        """
        self.shell.emit_started()
        await self.controller.start()
        try:
            await self.broker.start()
        except BaseException:
            self.shell.die()
            for part in self._parts:
                await part.tasks.join_all()
            self.controller.raft.close()
            raise

    async def ready(self) -> None:
        """Wait until the broker is unfenced and serves clients.

        Raises the failure of the node if it failed before.
        """
        await self.broker.ready()

    async def failed(self) -> BaseException:
        """Wait until one of the parts fails, and return why."""
        return await self.shell.failed()

    async def stop(self) -> None:
        """Stop the broker, which needs a controller for that, then the controller."""
        if self.shell.is_dead:
            return
        await self.broker.stop()
        await self.controller.stop()
        if not self.shell.is_dead:
            self.shell.emit_stopped()
            self.shell.is_dead = True

    def abort(self) -> None:
        """Stop both at once, as a killed process would."""
        self.shell.die()

    @property
    def _parts(self) -> Sequence[NodeShell]:
        return (self.broker.shell, self.controller.shell)

    def _on_death(self) -> None:
        for part in self._parts:
            part.die()


# --------------------------------------------------------------------------------------------------
# The parts of any node


def controller_of(node: object) -> Controller | None:
    """Return the controller of a node; None if it has none."""
    if isinstance(node, CombinedNode):
        return node.controller
    return node if isinstance(node, Controller) else None


def broker_of(node: object) -> Broker | None:
    """Return the broker of a node; None if it has none."""
    if isinstance(node, CombinedNode):
        return node.broker
    return node if isinstance(node, Broker) else None
