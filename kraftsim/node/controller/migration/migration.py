"""The migration driver of a controller at work: one event after the other, and whatever it wants is done before the next one is looked at.

Source: org.apache.kafka.metadata.migration.KRaftMigrationDriver, kafka.migration.MigrationPropagator, KIP-866.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.metadata.metadata_versions import METADATA_VERSIONS
from kraftsim.core.migration import driver as do
from kraftsim.core.migration.driver import Claim
from kraftsim.core.migration.readiness import why_not_asked_ready, why_not_ready
from kraftsim.core.migration.states import DriverState
from kraftsim.core.raft.voter_set import Address
from kraftsim.core.zookeeper_mode.propagation import KraftPropagation, migrating_brokers
from kraftsim.core.zookeeper_mode.request_batch import ControlRequest, Sender, ToBroker
from kraftsim.core.zookeeper_mode.request_versions import request_versions
from kraftsim.core.zookeeper_mode.znode_syncing import sync_operations
from kraftsim.core.zookeeper_mode.znode_writing import ZnodeOperation, operations_of
from kraftsim.events.migration import BrokersTold, MigrationWaits, ProducerIdBlockMirrored, ZnodesMirrored, ZookeeperControllerClaimed
from kraftsim.node.controller.migration.committed_image import CommittedImage
from kraftsim.node.controller.migration.copying import CopyGivenUp
from kraftsim.node.controller.migration.zookeeper_side import REFUSALS
from kraftsim.node.zookeeper_mode.propagator import ControlResponse, Propagator, ToldBroker
from kraftsim.releases.traits import REGISTERS_MIGRATION_READINESS
from protocol.zookeeper.kafka_znodes import PRODUCER_ID_BLOCK, ProducerIdBlockZnode

if TYPE_CHECKING:
    from kraftsim.node.controller.controller import Controller


@dataclass(frozen=True, slots=True)
class _Grown:
    """More is committed than before."""


class Migration:
    """`run` is a task of the controller; `on_grown` and `on_leader` are what it hears of the quorum."""

    def __init__(self, controller: "Controller") -> None:
        self._controller = controller
        self._shell = controller.shell
        parts = controller.parts
        self.driver = parts.migration_driver(
            controller.config.node_id,
            controller.world.random("migration polls").random,
            state_before=parts.migration_manners(controller.config).state_before,
        )
        self.committed = CommittedImage(controller.raft, parts.metadata_image)
        self._zookeeper = parts.zookeeper_side(self._shell)
        self._copy = parts.zookeeper_copy(controller)
        self._propagator = Propagator(self._shell, self._on_told)
        self._propagation: KraftPropagation | None = None
        self._owes_everything = False
        """Whether brokers were not told of something, because writing it to ZooKeeper failed."""
        self._registrations_seen = 0
        self._queue: deque[do.DriverEvent | _Grown] = deque()
        self._has_work = asyncio.Event()
        self._poll: asyncio.TimerHandle | None = None

    @property
    def mirrored(self) -> tuple[int, MetadataImage] | None:
        """Return an offset and the image up to it, if this controller writes to both and ZooKeeper is in step with all that is committed here."""
        in_step = self.driver.claim.znode.kraft_metadata_offset
        is_settled = self.driver.state is DriverState.DUAL_WRITE and in_step == self.committed.offset
        return (in_step, self.committed.image) if is_settled else None

    # What it hears ------------------------------------------------------------------------------------------------------------------------------

    def on_grown(self) -> None:
        """More is committed."""
        if not self._queue or not isinstance(self._queue[-1], _Grown):
            self._put(_Grown())

    def on_leader(self, leader_id: int | None, leader_epoch: int) -> None:
        """Somebody leads, perhaps this controller, or nobody."""
        self._put(do.LeaderChanged(leader_id, leader_epoch))

    async def run(self) -> None:
        """Take one event after the other, until cancelled."""
        self._put(do.Polled())
        while True:
            while self._queue:
                await self._take(self._queue.popleft())
            self._has_work.clear()
            await self._has_work.wait()

    async def close(self) -> None:
        """Tell nobody anything any more, and end the session."""
        self._disarm()
        self._propagator.close()
        await self._zookeeper.close()

    def abort(self) -> None:
        """Let go, as a process that dies."""
        self._disarm()
        self._propagator.abort()
        self._zookeeper.abort()

    def _put(self, event: do.DriverEvent | _Grown) -> None:
        self._queue.append(event)
        self._has_work.set()

    # What it does -------------------------------------------------------------------------------------------------------------------------------

    async def _take(self, event: do.DriverEvent | _Grown) -> None:
        """Take one event, and what becomes of what it asks for, before any other."""
        todo: deque[do.DriverEvent] = deque()
        if isinstance(event, _Grown):
            if (news := self._advance()) is None:
                return
            todo.append(news)
        else:
            todo.append(event)
            if isinstance(event, do.LeaderChanged) and event.leader_id != self._controller.config.node_id:
                self._propagation = None
                self._propagator.set_brokers({})
        while todo:
            for effect in self.driver.step(todo.popleft()):
                outcome = await self._carry_out(effect)
                if outcome is not None:
                    todo.append(outcome)

    def _advance(self) -> do.Published | None:
        committed = self.committed
        changed = committed.image.is_in_transaction
        if not committed.advance() or not committed.has_metadata or (changed and committed.image.is_in_transaction):
            return None
        return self._published()

    def _published(self) -> do.Published:
        committed, image = self.committed, self.committed.image
        has_changed, self._registrations_seen = committed.registration_count != self._registrations_seen, committed.registration_count
        return do.Published(
            offset=committed.offset,
            epoch=committed.epoch,
            migration_state=image.registries.migration_state.zk_migration_state,
            migrating_brokers=frozenset(broker.broker_id for broker in image.brokers() if broker.is_migrating_zk_broker),
            has_brokers=any(True for _ in image.brokers()),
            why_not_ready=self._why_not_ready(image),
            brokers_changed=has_changed,
            is_snapshot=committed.is_snapshot,
        )

    def _why_not_ready(self, image: MetadataImage) -> str | None:
        raft = self._controller.raft
        if self._controller.parts.release.has(REGISTERS_MIGRATION_READINESS):
            return why_not_ready(image, raft.quorum.voter_set.ids)
        others = [voter_id for voter_id in raft.quorum.voter_set.ids if voter_id != self._controller.config.node_id]
        return why_not_asked_ready(image, others, raft.is_migration_ready)

    async def _carry_out(self, effect: do.DriverEffect) -> do.DriverEvent | None:
        """Do what the driver wants, and return what became of it."""
        match effect:
            case do.PollAfter(delay_ms):
                self._arm(delay_ms)
                return None
            case do.Note(event):
                self._shell.world.note(event)
                return None
        try:
            return await self._attempt(effect)
        except REFUSALS as refused:
            return do.Failed(str(refused))
        except CopyGivenUp:
            return do.Failed("this controller leads no more")

    async def _attempt(self, effect: do.DriverEffect) -> do.DriverEvent | None:
        match effect:
            case do.Recover():
                return do.Recovered(await self._zookeeper.recover(self.driver.claim))
            case do.LookForBrokers(migrating):
                registered = await self._zookeeper.broker_ids()
                is_worth_it = registered and registered <= migrating
                return do.BrokersSeen(registered, await self._zookeeper.assigned_ids() if is_worth_it else None)
            case do.ClaimController(claim):
                return await self._claim(claim)
            case do.CopyToLog(claim):
                return await self._copy_to_log(claim)
            case do.Sync(claim):
                return await self._sync(claim)
            case do.TellEverything(claim):
                self._tell_everything(claim)
                return do.Told()
            case do.Mirror(claim, is_snapshot):
                return await self._mirror(claim, is_snapshot=is_snapshot)
            case _:
                return None

    async def _claim(self, claim: Claim) -> do.Claimed:
        taken = await self._zookeeper.claim(claim)
        kraft_epoch = taken.znode.kraft_controller_epoch
        self._shell.world.note(ZookeeperControllerClaimed(controller_epoch=taken.controller_epoch, kraft_controller_epoch=kraft_epoch))
        return do.Claimed(taken)

    async def _copy_to_log(self, claim: Claim) -> do.Copied:
        """Copy, and note it in ZooKeeper; where that fails the comparison that follows does it. What is in the log is never copied again."""
        copied = await self._copy.run(claim, await self._zookeeper.metadata())
        try:
            return do.Copied(await self._zookeeper.move(copied))
        except REFUSALS as refused:
            self._shell.world.note(MigrationWaits(state=self.driver.state.value, reason=str(refused)))
            return do.Copied(copied)

    async def _sync(self, claim: Claim) -> do.InStep:
        """Compare everything. What has changed until now is in it; brokers are told everything afterwards."""
        self.committed.take()
        return do.InStep(await self._write_all(claim))

    async def _mirror(self, claim: Claim, *, is_snapshot: bool) -> do.InStep:
        """Write what changed, move /migration, and tell brokers."""
        committed = self.committed
        touched, changes, was_replaced = committed.take()
        tells_everything, self._owes_everything = was_replaced or self._owes_everything, True
        if is_snapshot or was_replaced:
            moved = await self._write_all(claim)
        else:
            operations = operations_of(touched, committed.image, committed.epoch)
            moved = await self._write(claim, operations, is_full=False)
        if self._propagation is not None:
            self._set_brokers()
            told = self._propagation.begin(committed.image) if tells_everything else self._propagation.changed(committed.image, changes)
            self._send(told, moved, is_full=tells_everything)
        self._owes_everything = False
        return do.InStep(moved)

    async def _write_all(self, claim: Claim) -> Claim:
        znodes = await self._zookeeper.everything()
        return await self._write(claim, sync_operations(znodes, self.committed.image, self.committed.epoch), is_full=True)

    async def _write(self, claim: Claim, operations: Sequence[ZnodeOperation], *, is_full: bool) -> Claim:
        """Write, then say up to where ZooKeeper is in step."""
        committed = self.committed
        claim = await self._zookeeper.write(claim, operations)
        await self._shell.world.breathe("written to ZooKeeper, and its offset not")
        claim = await self._zookeeper.move(claim.in_step(committed.offset, committed.epoch))
        self._note_written(operations, is_full=is_full)
        return claim

    def _note_written(self, operations: Sequence[ZnodeOperation], *, is_full: bool) -> None:
        world = self._shell.world
        if operations or is_full:
            names = ",".join(operation.name for operation in operations)
            count = sum(len(operation.writes) for operation in operations)
            world.note(ZnodesMirrored(last_offset=self.committed.offset, is_full=is_full, operations=names, znode_count=count))
        for write in (write for operation in operations for write in operation.writes if write.path == PRODUCER_ID_BLOCK):
            block = ProducerIdBlockZnode.parse(write.data or b"")
            world.note(ProducerIdBlockMirrored(first_producer_id=block.first_producer_id, last_producer_id=block.last_producer_id))

    # Brokers ------------------------------------------------------------------------------------------------------------------------------------

    def _tell_everything(self, claim: Claim) -> None:
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

    def _send(self, told: list[ToBroker], claim: Claim, *, is_full: bool) -> None:
        if told:
            self._propagator.send(told)
            self._shell.world.note(BrokersTold(controller_epoch=claim.controller_epoch, is_full=is_full, request_count=len(told)))

    def _set_brokers(self) -> None:
        listener = self._controller.config.inter_broker_listener_name or "PLAINTEXT"
        found = {}
        for broker_id, broker in migrating_brokers(self.committed.image).items():
            endpoint = broker.listener(listener)
            if endpoint is not None:
                found[broker_id] = ToldBroker(Address(endpoint.host, endpoint.port), broker.broker_epoch)
        self._propagator.set_brokers(found)

    def _on_told(self, broker_id: int, request: ControlRequest, response: ControlResponse) -> None:
        """What a broker answers changes nothing: it is asked for its directories by other ways."""

    # Time ---------------------------------------------------------------------------------------------------------------------------------------

    def _arm(self, delay_ms: float) -> None:
        self._disarm()
        self._poll = asyncio.get_running_loop().call_later(delay_ms / 1000, self._put, do.Polled())

    def _disarm(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
