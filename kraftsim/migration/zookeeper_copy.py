"""Copies ZooKeeper metadata into the metadata log, as one metadata transaction: brokers see all of
it or nothing.

Below 3.6-IV1 there are no metadata transactions, and a controller failure during the copy leaves a
partial copy.
Source: org.apache.kafka.controller.QuorumController.MigrationRecordConsumer,
org.apache.kafka.metadata.migration.BufferingBatchConsumer, KIP-866.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from kraftsim.metadata.metadata_writer import AppendedOffsets, MetadataWriter
from kraftsim.migration.events import (
    MigrationPieceCopied,
    MigrationStateChanged,
    ZookeeperMetadataCopied,
)
from kraftsim.migration.rules_driver import Claim
from kraftsim.producer_ids.rules_blocks import ProducerIdBlock
from kraftsim.server.identity import random_uuid
from kraftsim.world.interface import World
from kraftsim.zookeeper.rules_znodes import Znodes, records_of_znodes
from protocol.metadata.controller import (
    BeginTransactionRecord,
    EndTransactionRecord,
    ProducerIdsRecord,
)
from protocol.metadata.settings import MIGRATION, ZkMigrationStateRecord
from protocol.schema import Message

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
        ends: list[Message] = [ZkMigrationStateRecord(zk_migration_state=MIGRATION)]
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
        world.emit(MigrationStateChanged(migration_state=MIGRATION))
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
        await controller.world.yield_point("a piece of the copy is committed")
        return offsets
