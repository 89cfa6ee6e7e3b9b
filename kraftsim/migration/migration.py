"""Runs the migration driver of a controller: one event at a time, with all effects of an event done
before the next one.

Source: org.apache.kafka.metadata.migration.KRaftMigrationDriver,
kafka.migration.MigrationPropagator, KIP-866.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kraftsim.metadata.rules_features import MigrationBehavior
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage
from kraftsim.metadata.rules_registries import MetadataRecord
from kraftsim.metadata.rules_versions import METADATA_VERSIONS
from kraftsim.migration import rules_driver as do
from kraftsim.migration.events import (
    BrokersNotified,
    MigrationWaits,
    ProducerIdBlockMirrored,
    ZnodesMirrored,
    ZookeeperControllerClaimed,
)
from kraftsim.migration.rules_driver import (
    Claim,
    DriverState,
    MigrationDriver,
    why_not_asked_ready,
    why_not_ready,
)
from kraftsim.migration.zookeeper_side import (
    REFUSALS,
    CopyAborted,
    CopyingController,
    ZookeeperCopy,
    ZookeeperSide,
)
from kraftsim.raft.raft_node import RaftNode
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.rules_voters import Address
from kraftsim.releases.release import Release
from kraftsim.releases.traits import REGISTERS_MIGRATION_READINESS
from kraftsim.server.config import NodeConfig
from kraftsim.server.pump import run_awaited
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import YieldPoint
from kraftsim.zookeeper.propagator import (
    BrokerChannelEndpoint,
    ControllerChannelManager,
    ControlResponse,
)
from kraftsim.zookeeper.rules_control_requests import (
    ControlRequest,
    Sender,
    ToBroker,
    request_versions,
)
from kraftsim.zookeeper.rules_propagation import KraftPropagation, migrating_brokers
from kraftsim.zookeeper.rules_znode_writes import (
    Touched,
    ZnodeOperation,
    operations_of,
    sync_operations,
)
from protocol.metadata.registrations import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from protocol.metadata.registry import parse_record
from protocol.records.batches import RecordBatch, split_batches
from protocol.zookeeper.kafka_znodes import PRODUCER_ID_BLOCK, ProducerIdBlockZnode

# --------------------------------------------------------------------------------------------------
# The committed metadata image on a controller: the migration driver compares ZooKeeper with it, and
# sends it to brokers
#
# Read from the log itself, whichever controller wrote it, so it contains nothing that could be
# reverted.
# Source: org.apache.kafka.image.loader.MetadataLoader.

READ_BYTES = 256 * 1024
REGISTRATIONS = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    RegisterControllerRecord,
)


class CommittedImage:
    """`advance` applies what was committed since; `touched` and `changes` describe that until they
    are taken.
    """

    def __init__(self, raft: RaftNode, new_image: Callable[[], MetadataImage]) -> None:
        self._raft = raft
        self._new_image = new_image
        self.image = self._watched_image()
        self.epoch = 0
        """The epoch of the last visible record."""
        self.offset = -1
        """The offset of the last visible record: records of an open metadata transaction are not
        visible.
        """
        self.touched = Touched()
        self.is_snapshot = False
        """Whether a snapshot has replaced the image since the changes were taken."""
        self.registration_count = 0
        """How often a broker or controller registration changed."""

    @property
    def has_metadata(self) -> bool:
        """Whether the log contains any metadata."""
        return bool(self.image.finalized_features)

    def advance(self) -> bool:
        """Apply the newly committed records; return whether there were any."""
        committed = self._raft.high_watermark or 0
        log = self._raft.quorum.log
        latest = log.latest_snapshot
        following = self.image.highest_offset + 1
        if (
            latest is not None
            and following < latest.end_offset
            and (following < log.start_offset or following == 0)
        ):
            self._load(latest)
            following = latest.end_offset
        if following >= committed:
            return False
        while following < committed and (
            data := self._raft.store.read(following, READ_BYTES, committed)
        ):
            for batch in split_batches(data):
                self._replay(batch)
                following = batch.next_offset
        return True

    def take(self) -> tuple[Touched, ImageChanges, bool]:
        """Return and reset what was touched, what changed, and whether a snapshot was loaded."""
        taken = self.touched, self.image.take_changes(), self.is_snapshot
        self.touched, self.is_snapshot = Touched(), False
        return taken

    def _load(self, snapshot: SnapshotId) -> None:
        self.image = self._watched_image()
        for batch in self._raft.store.snapshots.read(snapshot):
            if not batch.is_control:
                for record in batch.records():
                    assert record.value is not None, "a metadata record has a value"
                    self.image.load(parse_record(record.value))
        self.image.skip(snapshot.end_offset - 1)
        self.offset, self.epoch, self.is_snapshot = snapshot.end_offset - 1, snapshot.epoch, True
        self.touched = Touched()

    def _replay(self, batch: RecordBatch) -> None:
        if batch.is_control:
            self.image.skip(batch.last_offset)
        else:
            for record in batch.records():
                assert record.value is not None, "a metadata record has a value"
                self.image.replay(parse_record(record.value), record.offset)
        if not self.image.is_in_transaction:
            self.offset, self.epoch = batch.last_offset, batch.partition_leader_epoch

    def _watched_image(self) -> MetadataImage:
        image = self._new_image()

        def watch(record: MetadataRecord) -> None:
            self.touched.emit(record, image)
            self.registration_count += isinstance(record, REGISTRATIONS)

        image.before_applying = watch
        return image


@dataclass(frozen=True, slots=True)
class _Grown:
    """More records are committed."""


class MigrationParts(Protocol):
    """The replaceable classes of a migration."""

    @property
    def release(self) -> Release:
        """The emulated release."""
        ...

    @property
    def metadata_image(self) -> type[MetadataImage]:
        """The image of the committed metadata."""
        ...

    @property
    def migration_driver(self) -> type[MigrationDriver]:
        """The order of the steps."""
        ...

    @property
    def zookeeper_copy(self) -> type[ZookeeperCopy]:
        """Writes the metadata of ZooKeeper into the metadata log."""
        ...

    @property
    def zookeeper_side(self) -> type[ZookeeperSide]:
        """The ZooKeeper operations."""
        ...

    @property
    def kraft_propagation(self) -> type[KraftPropagation]:
        """The requests for brokers in ZooKeeper mode."""
        ...

    def migration_behavior(self, config: NodeConfig) -> MigrationBehavior:
        """Return how a controller starts and ends a migration."""
        ...


class MigratingController(CopyingController, Protocol):
    """A controller that migrates the cluster from ZooKeeper."""

    @property
    def config(self) -> NodeConfig:
        """The properties of the node."""
        ...

    @property
    def shell(self) -> NodeShell:
        """Tasks and connections of the node."""
        ...

    @property
    def raft(self) -> RaftNode:
        """The committed metadata, and the voters."""
        ...

    @property
    def parts(self) -> MigrationParts:
        """The replaceable classes of the node."""
        ...


class Migration:
    """`run` is a task of the controller; the quorum calls `on_grown` and `on_leader`."""

    def __init__(self, controller: MigratingController) -> None:
        self._controller = controller
        self._shell = controller.shell
        parts = controller.parts
        self.driver = parts.migration_driver(
            controller.config.node_id,
            controller.world.random("migration polls").random,
            state_before=parts.migration_behavior(controller.config).state_before,
        )
        self.committed = CommittedImage(controller.raft, parts.metadata_image)
        self._zookeeper = parts.zookeeper_side(self._shell)
        self._copy = parts.zookeeper_copy(controller)
        self._propagator = ControllerChannelManager(self._shell, self._on_response)
        self._propagation: KraftPropagation | None = None
        self._owes_everything = False
        """Whether brokers missed an update because writing it to ZooKeeper failed."""
        self._registrations_seen = 0
        self._queue: deque[do.DriverEvent | _Grown] = deque()
        self._has_work = asyncio.Event()
        self._poll: asyncio.TimerHandle | None = None

    @property
    def mirrored(self) -> tuple[int, MetadataImage] | None:
        """Return an offset and the image up to it, if this controller is in dual-write mode and
        ZooKeeper is in sync with its committed metadata.
        """
        in_step = self.driver.claim.znode.kraft_metadata_offset
        is_settled = (
            self.driver.state is DriverState.DUAL_WRITE and in_step == self.committed.offset
        )
        return (in_step, self.committed.image) if is_settled else None

    # Callbacks of the quorum
    # ----------------------------------------------------------------------------------------------

    def on_grown(self) -> None:
        """More records are committed."""
        if not self._queue or not isinstance(self._queue[-1], _Grown):
            self._put(_Grown())

    def on_leader(self, leader_id: int | None, leader_epoch: int) -> None:
        """The leader changed: another controller, this one, or none."""
        self._put(do.LeaderChanged(leader_id, leader_epoch))

    async def run(self) -> None:
        """Process events one at a time, until cancelled."""
        self._put(do.Polled())
        while True:
            while self._queue:
                await self._take(self._queue.popleft())
            self._has_work.clear()
            await self._has_work.wait()

    async def close(self) -> None:
        """Close the channels to brokers, and close the session."""
        self._disarm()
        self._propagator.close()
        await self._zookeeper.close()

    def abort(self) -> None:
        """Release everything immediately, as a killed process would."""
        self._disarm()
        self._propagator.abort()
        self._zookeeper.abort()

    def _put(self, event: do.DriverEvent | _Grown) -> None:
        self._queue.append(event)
        self._has_work.set()

    # Effects
    # ----------------------------------------------------------------------------------------------

    async def _take(self, event: do.DriverEvent | _Grown) -> None:
        """Process an event and the results of its effects, before any other event."""
        happened = self._advance() if isinstance(event, _Grown) else event
        if happened is None:
            return
        if (
            isinstance(event, do.LeaderChanged)
            and event.leader_id != self._controller.config.node_id
        ):
            self._propagation = None
            self._propagator.set_brokers({})
        await run_awaited(self.driver.step, happened, self._carry_out)

    def _advance(self) -> do.Published | None:
        committed = self.committed
        changed = committed.image.is_in_transaction
        if (
            not committed.advance()
            or not committed.has_metadata
            or (changed and committed.image.is_in_transaction)
        ):
            return None
        return self._published()

    def _published(self) -> do.Published:
        committed, image = self.committed, self.committed.image
        has_changed, self._registrations_seen = (
            committed.registration_count != self._registrations_seen,
            committed.registration_count,
        )
        return do.Published(
            offset=committed.offset,
            epoch=committed.epoch,
            migration_state=image.registries.migration_state.zk_migration_state,
            migrating_brokers=frozenset(
                broker.broker_id for broker in image.brokers() if broker.is_migrating_zk_broker
            ),
            has_brokers=any(True for _ in image.brokers()),
            why_not_ready=self._why_not_ready(image),
            brokers_changed=has_changed,
            is_snapshot=committed.is_snapshot,
        )

    def _why_not_ready(self, image: MetadataImage) -> str | None:
        raft = self._controller.raft
        if self._controller.parts.release.has(REGISTERS_MIGRATION_READINESS):
            return why_not_ready(image, raft.quorum.voter_set.ids)
        others = [
            voter_id
            for voter_id in raft.quorum.voter_set.ids
            if voter_id != self._controller.config.node_id
        ]
        return why_not_asked_ready(image, others, raft.is_migration_ready)

    async def _carry_out(self, effect: do.DriverEffect) -> do.DriverEvent | None:
        """Execute an effect, and return the resulting event."""
        match effect:
            case do.PollAfter(delay_ms):
                self._arm(delay_ms)
                return None
            case do.EmitMigrationEvent(event):
                self._shell.world.emit(event)
                return None
        try:
            return await self._attempt(effect)
        except REFUSALS as refused:
            return do.MigrationFailed(str(refused))
        except CopyAborted:
            return do.MigrationFailed("this controller is not the leader any more")

    async def _attempt(self, effect: do.DriverEffect) -> do.DriverEvent | None:
        match effect:
            case do.Recover():
                return do.RecoveredMigration(await self._zookeeper.recover(self.driver.claim))
            case do.LookForBrokers(migrating):
                registered = await self._zookeeper.broker_ids()
                is_worth_it = registered and registered <= migrating
                return do.BrokersSeen(
                    registered, await self._zookeeper.assigned_ids() if is_worth_it else None
                )
            case do.ClaimController(claim):
                return await self._claim(claim)
            case do.CopyToLog(claim):
                return await self._copy_to_log(claim)
            case do.SyncZookeeper(claim):
                return await self._sync(claim)
            case do.SendRpcsToBrokers(claim):
                self._send_everything(claim)
                return do.BrokersInformed()
            case do.Mirror(claim, is_snapshot):
                return await self._mirror(claim, is_snapshot=is_snapshot)
            case _:
                return None

    async def _claim(self, claim: Claim) -> do.Claimed:
        taken = await self._zookeeper.claim(claim)
        kraft_epoch = taken.znode.kraft_controller_epoch
        self._shell.world.emit(
            ZookeeperControllerClaimed(
                controller_epoch=taken.controller_epoch, kraft_controller_epoch=kraft_epoch
            )
        )
        return do.Claimed(taken)

    async def _copy_to_log(self, claim: Claim) -> do.Copied:
        """Copy, and record the copy in ZooKeeper; if that fails, the sync that follows records it.
        What is in the log is never copied again.
        """
        written = await self._copy.run(claim, await self._zookeeper.metadata())
        try:
            return do.Copied(await self._zookeeper.move(written))
        except REFUSALS as refused:
            self._shell.world.emit(
                MigrationWaits(state=self.driver.state.value, reason=str(refused))
            )
            return do.Copied(written)

    async def _sync(self, claim: Claim) -> do.InStep:
        """Compare everything.

        The comparison includes all changes until now; brokers receive the full metadata afterwards.
        """
        self.committed.take()
        return do.InStep(await self._write_all(claim))

    async def _mirror(self, claim: Claim, *, is_snapshot: bool) -> do.InStep:
        """Write the changes to ZooKeeper, update /migration, and notify brokers."""
        committed = self.committed
        touched, changes, was_replaced = committed.take()
        sends_all, self._owes_everything = was_replaced or self._owes_everything, True
        if is_snapshot or was_replaced:
            moved = await self._write_all(claim)
        else:
            operations = operations_of(touched, committed.image, committed.epoch)
            moved = await self._write(claim, operations, is_full=False)
        if self._propagation is not None:
            self._set_brokers()
            requests = (
                self._propagation.begin(committed.image)
                if sends_all
                else self._propagation.changed(committed.image, changes)
            )
            self._send(requests, moved, is_full=sends_all)
        self._owes_everything = False
        return do.InStep(moved)

    async def _write_all(self, claim: Claim) -> Claim:
        znodes = await self._zookeeper.everything()
        return await self._write(
            claim, sync_operations(znodes, self.committed.image, self.committed.epoch), is_full=True
        )

    async def _write(
        self, claim: Claim, operations: Sequence[ZnodeOperation], *, is_full: bool
    ) -> Claim:
        """Write, then record the offset up to which ZooKeeper is in sync."""
        committed = self.committed
        claim = await self._zookeeper.write(claim, operations)
        await self._shell.world.yield_point(YieldPoint.DUAL_WRITE_DONE)
        claim = await self._zookeeper.move(claim.in_step(committed.offset, committed.epoch))
        self._emit_written(operations, is_full=is_full)
        return claim

    def _emit_written(self, operations: Sequence[ZnodeOperation], *, is_full: bool) -> None:
        world = self._shell.world
        if operations or is_full:
            names = ",".join(operation.name for operation in operations)
            count = sum(len(operation.writes) for operation in operations)
            world.emit(
                ZnodesMirrored(
                    last_offset=self.committed.offset,
                    is_full=is_full,
                    operations=names,
                    znode_count=count,
                )
            )
        for write in (
            write
            for operation in operations
            for write in operation.writes
            if write.path == PRODUCER_ID_BLOCK
        ):
            block = ProducerIdBlockZnode.parse(write.data or b"")
            world.emit(
                ProducerIdBlockMirrored(
                    first_producer_id=block.first_producer_id,
                    last_producer_id=block.last_producer_id,
                )
            )

    # Brokers
    # ----------------------------------------------------------------------------------------------

    def _send_everything(self, claim: Claim) -> None:
        committed = self.committed
        committed.image.take_changes()
        self._owes_everything = False
        level = METADATA_VERSIONS[committed.image.metadata_level.level].name
        sender = Sender(
            controller_id=self._controller.config.node_id,
            controller_epoch=claim.controller_epoch,
            is_kraft=True,
            listener=self._controller.config.inter_broker_listener_name or "PLAINTEXT",
            versions=request_versions(level),
            decided_in=lambda topic, number: committed.epoch,
        )
        self._propagation = self._controller.parts.kraft_propagation(sender)
        self._set_brokers()
        self._send(self._propagation.begin(committed.image), claim, is_full=True)

    def _send(self, requests: list[ToBroker], claim: Claim, *, is_full: bool) -> None:
        if requests:
            self._propagator.send(requests)
            self._shell.world.emit(
                BrokersNotified(
                    controller_epoch=claim.controller_epoch,
                    is_full=is_full,
                    request_count=len(requests),
                )
            )

    def _set_brokers(self) -> None:
        listener = self._controller.config.inter_broker_listener_name or "PLAINTEXT"
        found = {}
        for broker_id, broker in migrating_brokers(self.committed.image).items():
            endpoint = broker.listener(listener)
            if endpoint is not None:
                found[broker_id] = BrokerChannelEndpoint(
                    Address(endpoint.host, endpoint.port), broker.broker_epoch
                )
        self._propagator.set_brokers(found)

    def _on_response(
        self, broker_id: int, request: ControlRequest, response: ControlResponse
    ) -> None:
        """Responses of brokers change nothing: failed log directories are reported by other
        means.
        """

    # Timer
    # ----------------------------------------------------------------------------------------------

    def _arm(self, delay_ms: float) -> None:
        self._disarm()
        self._poll = asyncio.get_running_loop().call_later(delay_ms / 1000, self._put, do.Polled())

    def _disarm(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
