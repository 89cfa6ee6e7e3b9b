"""ZooKeeper operations of a migrating controller: /migration, the claim of /controller,
registrations, and the copy of all metadata into the metadata log.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from kraftsim.metadata.metadata_writer import AppendedOffsets, MetadataWriter
from kraftsim.migration.events import (
    MigrationPieceCopied,
    MigrationStateChanged,
    ZookeeperMetadataCopied,
)
from kraftsim.migration.rules_driver import Claim
from kraftsim.producer_ids.rules_allocation import ProducerIdBlock
from kraftsim.server.identity import random_uuid
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import World, YieldPoint
from kraftsim.zookeeper.client import SessionState, ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.rules_znode_writes import ZnodeOperation
from kraftsim.zookeeper.rules_znodes import Znodes, records_of_znodes
from kraftsim.zookeeper.znode_writer import (
    RETRY_MS,
    ControllerMoved,
    MigrationConflict,
    MigrationWriter,
    ZnodeReader,
    check_request,
    create_request,
    raise_unless_lost,
    retried,
    set_request,
)
from protocol.malformed import MalformedMessage
from protocol.metadata.controller import (
    BeginTransactionRecord,
    EndTransactionRecord,
    ProducerIdsRecord,
)
from protocol.metadata.settings import MIGRATION as MIGRATION_STATE
from protocol.metadata.settings import ZkMigrationStateRecord
from protocol.schema import Message
from protocol.zookeeper.kafka_znodes import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    MIGRATION,
    NO_KRAFT_EPOCH,
    TOPICS,
    ControllerZnode,
    MigrationZnode,
    TopicZnode,
    parse_controller_epoch,
    topic_path,
)
from protocol.zookeeper.op_codes import OpCode, ZookeeperError
from protocol.zookeeper.znodes import Asked, StatResponse, VersionedPath

# --------------------------------------------------------------------------------------------------
# ZooKeeper operations of a migrating controller: /migration, the claim of /controller, registered
# brokers, reads and writes of metadata
#
# Every write is conditional on the versions of /controller_epoch and /migration, so that a deposed
# controller writes nothing.
# Source: kafka.zk.{ZkMigrationClient, KafkaZkClient.tryRegisterKRaftControllerAsActiveController},
# KIP-866, KAFKA-16171, KAFKA-16667.

REFUSALS: Final = (ZookeeperRefused, ControllerMoved, MigrationConflict, MalformedMessage)
"""Errors of ZooKeeper or of its content; the driver retries."""


class ZookeeperSide:
    """The session of one controller, replaced by a new one when it has expired.

    All methods raise REFUSALS.
    """

    def __init__(self, shell: NodeShell) -> None:
        self._shell = shell
        self._client: ZookeeperClient | None = None

    @property
    def client(self) -> ZookeeperClient:
        """The current session."""
        if self._client is None or self._client.state in (
            SessionState.EXPIRED,
            SessionState.CLOSED,
        ):
            config = self._shell.config
            self._client = ZookeeperClient(
                self._shell.world,
                config.zookeeper.servers,
                session_timeout_ms=config.zookeeper_session_timeout_ms,
                local_host=config.outgoing_host,
                chroot=config.zookeeper.chroot,
            )
            self._client.start()
        return self._client

    async def close(self) -> None:
        """Close the session."""
        if self._client is not None:
            await self._client.close()

    def abort(self) -> None:
        """Drop the session immediately, as a killed process would."""
        if self._client is not None:
            self._client.abort()

    async def recover(self, claim: Claim) -> Claim:
        """Read /migration, or create it; again after a lost connection, because nothing else makes
        the driver try again (KafkaZkClient.retryRequestUntilConnected).
        """
        client = self.client
        while True:
            try:
                return await self._recover(claim)
            except ZookeeperRefused as refused:
                raise_unless_lost(client, refused)
            await asyncio.sleep(RETRY_MS / 1000)

    async def _recover(self, claim: Claim) -> Claim:
        try:
            data, stat = await self.client.get(MIGRATION)
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NO_NODE:
                raise
            await self._create_migration()
            data, stat = await self.client.get(MIGRATION)
        return replace(
            claim, znode=MigrationZnode.parse(data or b""), migration_version=stat.version
        )

    async def claim(self, claim: Claim) -> Claim:
        """Claim /controller permanently with the next controller epoch; then learn the version of
        /migration by writing it unconditionally.
        """
        epoch_data, epoch_stat = await self.client.get(CONTROLLER_EPOCH)
        epoch, kraft_epoch = parse_controller_epoch(epoch_data), claim.znode.kraft_controller_epoch
        found = await self._present_controller()
        if found is not None and (found[0].broker_id, found[0].kraft_epoch) == (
            claim.znode.kraft_controller_id,
            kraft_epoch,
        ):
            taken = replace(
                claim, controller_epoch=epoch, controller_epoch_version=epoch_stat.version
            )  # the response to the claim was lost
        else:
            taken = await self._take(claim, found, epoch, epoch_stat.version)
        stat = await self.client.set(MIGRATION, taken.znode.build())
        return replace(taken, migration_version=stat.version)

    async def broker_ids(self) -> frozenset[int]:
        """Return the ids of registered brokers."""
        names, _ = await self.client.children(BROKER_IDS)
        return frozenset(int(name) for name in names if name.isdecimal())

    async def assigned_ids(self) -> frozenset[int]:
        """Return the ids of brokers with assigned replicas."""
        found: set[int] = set()
        names, _ = await self.client.children(TOPICS)
        for name in names:
            data, _ = await self.client.get(topic_path(name))
            for replicas in TopicZnode.parse(data or b"").partitions.values():
                found.update(replicas)
        return frozenset(found)

    async def metadata(self) -> Znodes:
        """Return all metadata znodes, except topics queued for deletion."""
        return await ZnodeReader(self.client).metadata()

    async def everything(self) -> Znodes:
        """Return all metadata znodes."""
        return await ZnodeReader(self.client).everything()

    async def write(self, claim: Claim, operations: Sequence[ZnodeOperation]) -> Claim:
        """Execute operations; each increments the version of /migration.

        If the response to one was lost it is executed again, with the version that it gave to
        /migration.
        """
        for operation in operations:
            while True:
                writer = MigrationWriter(
                    self.client,
                    epoch_version=claim.controller_epoch_version,
                    migration_version=claim.migration_version,
                )
                try:
                    await writer.carry_out(operation, claim.znode.build())
                except MigrationConflict as conflict:
                    claim = await self._own(claim, conflict)
                else:
                    claim = replace(claim, migration_version=writer.migration_version)
                    break
        return claim

    async def move(self, claim: Claim) -> Claim:
        """Write the claim's state to /migration, again if the response to a write was lost."""
        while True:
            asked: list[Asked] = [
                check_request(CONTROLLER_EPOCH, claim.controller_epoch_version),
                set_request(MIGRATION, claim.znode.build(), claim.migration_version),
            ]
            try:
                results = await retried(self.client, asked)
            except ZookeeperRefused as refused:
                if refused.path != MIGRATION or refused.error != ZookeeperError.BAD_VERSION:
                    raise
                conflict = MigrationConflict(
                    f"{MIGRATION} no longer has version {claim.migration_version}"
                )
                claim = await self._own(claim, conflict)
                continue
            stat = results[1][1]
            assert isinstance(stat, StatResponse), "a setData request returns a Stat"
            return replace(claim, migration_version=stat.stat.version)

    async def _own(self, claim: Claim, conflict: MigrationConflict) -> Claim:
        """Return the claim with the present version of /migration, if this controller wrote it: a
        write succeeded, and its response was lost. No other controller can do so now, because each
        write checks the controller epoch, too.

        Raises the conflict if another controller has written it.
        """
        data, stat = await self.client.get(MIGRATION)
        found, own = MigrationZnode.parse(data or b""), claim.znode
        is_own = (found.kraft_controller_id, found.kraft_controller_epoch) == (
            own.kraft_controller_id,
            own.kraft_controller_epoch,
        )
        if not is_own or stat.version == claim.migration_version:
            raise conflict
        return replace(claim, migration_version=stat.version)

    async def _create_migration(self) -> None:
        try:
            await self.client.create(MIGRATION, MigrationZnode().build())
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NODE_EXISTS:
                raise

    async def _present_controller(self) -> tuple[ControllerZnode, int] | None:
        try:
            data, stat = await self.client.get(CONTROLLER)
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NO_NODE:
                raise
            return None
        return ControllerZnode.parse(data or b""), stat.version

    async def _take(
        self,
        claim: Claim,
        found: tuple[ControllerZnode, int] | None,
        epoch: int,
        epoch_version: int,
    ) -> Claim:
        kraft_id, kraft_epoch = claim.znode.kraft_controller_id, claim.znode.kraft_controller_epoch
        if found is not None and (found[0].kraft_epoch or NO_KRAFT_EPOCH) >= kraft_epoch:
            raise ControllerMoved(
                f"controller {found[0].broker_id} has epoch {found[0].kraft_epoch} of KRaft, "
                f"this one has {kraft_epoch}"
            )
        own = ControllerZnode(
            broker_id=kraft_id,
            timestamp_ms=self._shell.world.clock.wall_ms(),
            kraft_epoch=kraft_epoch,
        )
        asked: list[Asked] = [set_request(CONTROLLER_EPOCH, str(epoch + 1).encode(), epoch_version)]
        if found is not None:
            asked.append((OpCode.DELETE, VersionedPath(path=CONTROLLER, version=found[1])))
        asked.append(create_request(CONTROLLER, own.build()))
        results = await self.client.multi(asked)
        stat = results[0][1]
        assert isinstance(stat, StatResponse), "a setData request returns a Stat"
        return replace(
            claim, controller_epoch=epoch + 1, controller_epoch_version=stat.stat.version
        )


# --------------------------------------------------------------------------------------------------
# Copies ZooKeeper metadata into the metadata log, as one metadata transaction: brokers see all of
# it or nothing
#
# Below 3.6-IV1 there are no metadata transactions, and a controller failure during the copy leaves
# a partial copy.
# Source: org.apache.kafka.controller.QuorumController.MigrationRecordConsumer,
# org.apache.kafka.metadata.migration.BufferingBatchConsumer, KIP-866.

TRANSACTION: Final = "ZK Migration"
BATCH_MIN: Final = 200
"""The minimum number of records per write: zookeeper.metadata.migration.min.batch.size."""


class CopyAborted(Exception):
    """This controller lost leadership; the next active controller will abort the partial copy."""


class CopyingController(Protocol):
    """The active controller, which writes the copy."""

    @property
    def world(self) -> World:
        """Random ids, and the event log."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether this is the active controller, to its own knowledge."""
        ...

    @property
    def metadata_writer(self) -> MetadataWriter:
        """Writes to the metadata log."""
        ...


class ZookeeperCopy:
    """The copy made by one controller; subclasses re-inject historical bugs of Apache Kafka."""

    def __init__(self, controller: CopyingController) -> None:
        self._controller = controller

    def next_producer_id(self, block: ProducerIdBlock) -> int:
        """Return the first id that ZooKeeper has not allocated.

        The whole last block has been allocated (KAFKA-15552).
        """
        return block.next_producer_id

    def is_one(self) -> bool:
        """Return whether the copy is atomic: it is where the log supports transactions
        (KAFKA-17457).
        """
        return self._controller.metadata_writer.state.features.metadata_level.has_transactions

    async def run(self, claim: Claim, znodes: Znodes) -> Claim:
        """Write the copy and return the claim as of its last record.

        Raises CopyAborted; MalformedMessage before anything is written.
        """
        controller, has_transactions = self._controller, self.is_one()
        pieces = list(
            records_of_znodes(
                znodes,
                lambda: random_uuid(controller.world, "access rule id"),
                next_id=self.next_producer_id,
            )
        )
        if has_transactions:
            await self._write([BeginTransactionRecord(name=TRANSACTION)])
        batch: list[Message] = []
        for piece in pieces:
            batch += piece
            if len(batch) >= BATCH_MIN:
                await self._write_piece(batch)
                batch = []
        if batch:
            await self._write_piece(batch)
        ends: list[Message] = [ZkMigrationStateRecord(zk_migration_state=MIGRATION_STATE)]
        if has_transactions:
            ends.append(EndTransactionRecord())
        offsets = await self._write(ends)
        self._emit_copied(pieces, offsets.last_offset)
        return claim.in_step(offsets.last_offset, claim.znode.kraft_controller_epoch)

    async def _write_piece(self, records: Sequence[Message]) -> None:
        offsets = await self._write(records)
        self._controller.world.emit(
            MigrationPieceCopied(record_count=len(records), last_offset=offsets.last_offset)
        )

    def _emit_copied(self, pieces: Sequence[Sequence[Message]], last_offset: int) -> None:
        blocks = [
            record.next_producer_id
            for piece in pieces
            for record in piece
            if isinstance(record, ProducerIdsRecord)
        ]
        world = self._controller.world
        world.emit(MigrationStateChanged(migration_state=MIGRATION_STATE))
        world.emit(
            ZookeeperMetadataCopied(
                record_count=sum(map(len, pieces)),
                last_offset=last_offset,
                next_producer_id=blocks[0] if blocks else None,
            )
        )

    async def _write(self, records: Sequence[Message]) -> AppendedOffsets:
        """Write records in their lowest versions, and return their offsets once they are committed.

        Raises CopyAborted.
        """
        controller = self._controller
        if not controller.is_active:
            raise CopyAborted
        written: asyncio.Future[AppendedOffsets] = asyncio.get_running_loop().create_future()

        def settle(offsets: AppendedOffsets | None) -> None:
            assert offsets is not None, "there are records"
            if not written.done():
                written.set_result(offsets)

        def give_up() -> None:
            if not written.done():
                written.set_exception(CopyAborted())

        controller.metadata_writer.write(
            records, on_committed=settle, on_given_up=give_up, record_version=lambda record: 0
        )
        offsets = await written
        await controller.world.yield_point(YieldPoint.MIGRATION_BATCH_COMMITTED)
        return offsets
