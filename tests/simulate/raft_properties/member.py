"""A node with only a replica of the metadata log: a counter in it, which the leader increments, one
record each.

The replica, its disk, its connections and its request handlers are those of controllers and
brokers. The counter is the next producer id.
Source: org.apache.kafka.raft.ReplicatedCounter.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import cast

from kraftsim.metadata.rules_features import bootstrap_at
from kraftsim.raft.controller_handlers import quorum
from kraftsim.raft.quorum_requests import WaitingFetches
from kraftsim.raft.quorum_settings import raft_settings
from kraftsim.raft.raft_node import RaftNode
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.rules_voters import Address, VoterNode
from kraftsim.server.api_offer import ApiOffer, FinalizedFeatures, spoken_versions
from kraftsim.server.call import Handler
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller_handlers import k18_api_versions
from kraftsim.server.dispatch import Dispatcher
from kraftsim.server.identity import load_identity
from kraftsim.server.listeners import Listeners
from kraftsim.server.parts import Parts
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import World
from protocol.metadata.controller import ProducerIdsRecord
from protocol.metadata.registry import build_record, parse_record
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record
from protocol.schema import Message

HANDLERS = (
    quorum.FETCH,
    k18_api_versions.HANDLER,
    quorum.VOTE,
    quorum.BEGIN_QUORUM_EPOCH,
    quorum.END_QUORUM_EPOCH,
    quorum.FETCH_SNAPSHOT,
)


class Member:
    """One voter or observer. `start`, then `stop`, or the end of its process."""

    raft: RaftNode
    fetches: WaitingFetches

    def __init__(self, world: World, config: NodeConfig, parts: Parts) -> None:
        self.world, self.config, self._parts = world, config, parts
        self.is_voter = config.process_roles == ("controller",)
        self.shell = NodeShell(world, config, self._on_death)
        self.offer = ApiOffer(
            parts.release.controller_apis,
            [handler.key for handler in HANDLERS],
            parts.release.supported_features,
        )
        self.is_up = False
        self.is_writable = False
        self.value = 0
        """The value of the counter: as committed, or, on the leader, as written."""
        self.loads = 0
        """How many snapshots were loaded since another leader was known."""
        self._written: list[tuple[int, int]] = []
        """(offset, value) of the records written in this epoch as leader."""
        self._has_metadata = False
        self._listeners = Listeners(self.shell)

    async def start(self) -> None:
        """Load the log and join the quorum."""
        own_versions = spoken_versions(self._parts.release.controller_apis)
        self.raft = RaftNode(
            self.shell,
            directory_id=await load_identity(self.world, self.config),
            own_versions=own_versions,
            settings=raft_settings(
                self.config, has_pre_vote=self._parts.has_pre_vote, always_flushes=self.is_voter
            ),
            listener=self,
            duties=self if self.is_voter else None,
            leadership=self._parts.leadership,
            new_quorum=self._parts.quorum,
        )
        await self.raft.load()
        self.snapshots = self._parts.snapshotting(self.shell, self.raft, self._parts.metadata_image)
        self.raft.on_grown = self.snapshots.on_grown
        self.fetches = WaitingFetches(self.raft, self.shell.world)
        self.raft.begin()
        self.is_up = True
        if self.is_voter:
            handlers = cast("tuple[Handler[Member], ...]", HANDLERS)
            await self._listeners.open(
                self.config.listeners, Dispatcher(self, handlers, self.offer)
            )
            self.raft.own_endpoints["CONTROLLER"] = Address(
                self.config.listeners[0].host, self.config.listeners[0].port
            )
        self.raft.run()
        self.shell.tasks.spawn(self.snapshots.run(), "write-snapshots")

    async def stop(self) -> None:
        """Resign, and stop."""
        await self.raft.flush()
        await self.raft.transfer_leadership()
        self.is_up = self.is_writable = False
        self.fetches.close()
        await self._listeners.close()
        await self.raft.stop()
        await self.shell.tasks.join()
        self.raft.close()

    def finalized_features(self) -> FinalizedFeatures:
        """There are no features here."""
        return FinalizedFeatures({}, -1)

    def increment(self) -> None:
        """Increment the counter, on the leader."""
        if self.is_writable and self.raft.is_active:
            self._write(ProducerIdsRecord(next_producer_id=self.value + 1))

    # Callbacks of the quorum
    # ----------------------------------------------------------------------------------------------

    async def on_committed(self, batches: Sequence[RecordBatch]) -> None:
        """Follow the counter; it increases by one with each record."""
        for batch in batches:
            for record in () if batch.is_control else batch.records():
                self._has_metadata = True
                value = counted(cast(bytes, record.value))
                if value is not None and record.offset >= self._known_until:
                    assert value == self.value + 1, (
                        f"the counter goes from {self.value} to {value} at offset {record.offset}"
                    )
                    self.value = value

    _known_until = 0

    async def on_snapshot(self, snapshot: SnapshotId, batches: Iterator[RecordBatch]) -> None:
        """Reset to the contents of a snapshot."""
        assert not self.is_writable, "a leader already has all committed records"
        self.value, self._has_metadata, self._known_until = 0, True, snapshot.end_offset
        self.loads += 1
        for batch in batches:
            for record in () if batch.is_control else batch.records():
                self.value = counted(cast(bytes, record.value)) or self.value

    def on_leader(self, leader_epoch: int, leader: VoterNode | None) -> None:
        """There is another leader, or none."""
        self.loads = 0

    def on_lead(self, leader_epoch: int) -> None:
        """Start counting."""
        self.is_writable, self._written = True, []
        if not self._has_metadata:
            for record in bootstrap_at(self._parts.release.metadata_version).records:
                self._write(record)
            self._has_metadata = True

    def on_stop_leading(self, leader_epoch: int, reason: str, high_watermark: int) -> None:
        """Revert to the committed value."""
        self.is_writable = False
        kept = [value for offset, value in self._written if offset < high_watermark]
        undone = len(self._written) - len(kept)
        self.value = kept[-1] if kept else self.value - undone

    def on_high_watermark(self, high_watermark: int) -> None:
        """Written records already count."""

    def on_readable(self, *, is_committed: bool) -> None:
        """More records are readable."""
        self.fetches.on_readable(is_committed=is_committed)

    def on_lost(self, reason: str, high_watermark: int) -> None:
        """No disk fails here."""

    def _write(self, record: Message) -> None:
        offset, timestamp = self.raft.log_end_offset, self.world.clock.wall_ms()
        written = Record(timestamp=timestamp, value=build_record(record, 0))
        self.raft.append(
            build_batch([written], base_offset=offset, leader_epoch=self.raft.leader_epoch),
            1,
            type(record).__name__,
        )
        if isinstance(record, ProducerIdsRecord):
            self.value = record.next_producer_id
            self._written.append((offset, self.value))
        self.raft.on_written()

    def _on_death(self) -> None:
        self.is_up = self.is_writable = False
        self._listeners.abort()
        self.raft.abort()


def counted(value: bytes) -> int | None:
    """Return the counter value of a record; None for any other record."""
    record = parse_record(value)
    return record.next_producer_id if isinstance(record, ProducerIdsRecord) else None


async def live(member: Member) -> None:
    """Run the process of a member: start, and raise its fatal error."""
    await member.start()
    raise await member.shell.failed()


async def end(member: Member) -> None:
    """End the process of a member."""
    await member.stop()
    await asyncio.sleep(0)
