"""The durability contract of a replica's disk: everything flushed, voted, snapshotted or truncated
is restored after a power loss at any point.

Histories come from a seed: batches, flushes, truncations, own and fetched snapshots, votes; power
fails at the nth disk operation.
Source: kafka.raft.KafkaMetadataLog, KIP-595, KIP-630.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import pytest

from kraftsim.raft.metadata_store import (
    DamagedSnapshot,
    MetadataStore,
    RecoveredStore,
    SnapshotFiles,
    path_of,
    snapshot_batches,
)
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.rules_voters import VoterSet
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.world.interface import File
from kraftsim.world.simulated import Host, Simulation
from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.record import Record
from protocol.storage.quorum_state import QuorumState
from tests.node.conftest import MakeWorld
from tests.node.controllers import controller_config

HOST = "controller-101"
ALL = 1 << 30
INCARNATIONS = 6
SEEDS = range(60)
CONFIG = controller_config(
    HOST, 9193, metadata_log_segment_bytes="400", log_flush_offset_checkpoint_interval_ms="0"
)


@dataclass(slots=True)
class Log:
    """The expected log: its batches by first offset, each with its checksum and epoch."""

    rows: dict[int, tuple[int, int]] = field(default_factory=dict)
    end_offset: int = 0
    start_offset: int = 0

    def cut(self, end_offset: int) -> "Log":
        rows = {offset: row for offset, row in self.rows.items() if offset < end_offset}
        return Log(rows, min(self.end_offset, end_offset), self.start_offset)

    @property
    def last_epoch(self) -> int:
        return max((epoch for _, epoch in self.rows.values()), default=0)


class Replica:
    """A store and its expected contents.

    `might_be`: truncated logs. A power loss may restore one as far as nothing conflicting was
    flushed: its records were valid ones of their epochs, and the next leader truncates them again.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log = Log()
        self.might_be: list[Log] = []
        self.flushed = 0
        self.votes: list[QuorumState | None] = [None]
        self.snapshots: list[SnapshotId] = []
        self.perhaps: list[SnapshotId] = []
        """Snapshots that are being written."""
        self.epoch = 1
        self.store: MetadataStore

    async def live(self, simulation: Simulation) -> None:
        """Start, check that everything is there, and continue until the power fails."""
        self.store = MetadataStore(simulation.world_of(HOST), CONFIG, has_recovery_point=True)
        self.take_up(await self.store.load(VoterSet()))
        for _ in range(self.random.randint(5, 40)):
            await self.random.choice(self.deeds())()

    def deeds(self) -> list[Callable[[], Awaitable[object]]]:
        return [
            self.append,
            self.append,
            self.append,
            self.flush,
            self.flush,
            self.cut,
            self.vote,
            self.write_snapshot,
            self.install_snapshot,
        ]

    # Operations that a power loss may interrupt
    # ----------------------------------------------------------------------------------------------

    async def append(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            offset, count = self.log.end_offset, self.random.randint(1, 3)
            value = self.random.randbytes(self.random.randint(1, 60))
            batch = RecordBatch(
                build_batch(
                    [Record(value=value)] * count, base_offset=offset, leader_epoch=self.epoch
                )
            )
            self.log.rows[offset] = (batch.crc, self.epoch)
            self.log.end_offset = offset + count
            self.store.append(bytes(batch.buffer))
            assert self.store.log_end_offset == self.log.end_offset

    async def flush(self) -> None:
        """Other records may be written meanwhile; the reported durable offset is checked."""
        end_offset, flushing = self.log.end_offset, asyncio.create_task(self.store.flush())
        for _ in range(self.random.randint(0, 2)):
            await asyncio.sleep(0)
            await self.append()
        self.flushed = await flushing
        assert self.flushed >= end_offset, "everything that was written is flushed"

    async def cut(self) -> None:
        """Truncate to an uncommitted batch; others of a later epoch replace it."""
        covered = self.snapshots[-1].end_offset if self.snapshots else 0
        offsets = [
            offset for offset in self.log.rows if offset >= max(covered, self.log.start_offset)
        ]
        if not offsets:
            return
        end_offset = self.random.choice(offsets)
        self.might_be.append(self.log)
        self.log, self.flushed, self.epoch = (
            self.log.cut(end_offset),
            min(self.flushed, end_offset),
            self.epoch + 1,
        )
        await self.store.truncate_to(end_offset)
        assert self.store.log_end_offset == end_offset

    async def vote(self) -> None:
        self.epoch += self.random.randint(0, 1)
        state = QuorumState(leader_epoch=self.epoch, voted_id=self.random.randint(101, 103))
        self.votes.append(state)
        await self.store.store_quorum_state(state, 0)
        self.votes = [state]

    async def write_snapshot(self) -> None:
        """Of flushed records; then the log is deleted as far as possible."""
        ends = [
            offset for offset in self.log.rows if self.log.start_offset < offset <= self.flushed
        ]
        if not ends or (self.snapshots and ends[-1] <= self.snapshots[-1].end_offset):
            return
        end_offset = ends[-1]
        epoch = max(epoch for offset, (_, epoch) in self.log.rows.items() if offset < end_offset)
        snapshot = SnapshotId(end_offset, epoch)
        self.perhaps.append(snapshot)
        self.store.begin_counting()
        await self.store.snapshots.write(
            snapshot, [[Record(value=str(end_offset).encode())]], timestamp=end_offset
        )
        older, self.snapshots = self.snapshots, [*self.snapshots, snapshot]
        self.perhaps.clear()
        if self.random.random() < 0.5:
            self.perhaps, self.snapshots = list(older), [snapshot]
            await self.store.delete_before(snapshot, older)
            for gone in older:
                self.store.snapshots.delete(gone)
            self.perhaps.clear()

    async def install_snapshot(self) -> None:
        """Fetch a snapshot of another replica, in chunks, perhaps after an unfinished one; it
        replaces the log.
        """
        self.epoch += 1
        snapshot = SnapshotId(self.log.end_offset + self.random.randint(1, 50), self.epoch)
        records = [[Record(value=str(snapshot.end_offset).encode())]]
        content = b"".join(
            snapshot_batches(snapshot.epoch, records, timestamp=7, kraft_version=0, voters=None)
        )
        if self.random.random() < 0.5:
            self.store.snapshots.write_piece(
                SnapshotId(snapshot.end_offset - 1, self.epoch), 0, content[:30]
            )
        for _ in range(self.random.randint(1, 2)):
            for position in range(0, len(content), 50):
                self.store.snapshots.write_piece(
                    snapshot, position, content[position : position + 50]
                )
        self.perhaps.append(snapshot)
        await self.store.install(snapshot)
        self.perhaps.clear()
        self.snapshots.append(snapshot)
        self.log = Log({}, snapshot.end_offset, snapshot.end_offset)
        self.flushed = snapshot.end_offset

    # Expected contents
    # ----------------------------------------------------------------------------------------------

    def take_up(self, found: RecoveredStore) -> None:
        """Compare the restored state with the expected one, and continue with it."""
        latest = self._check_snapshots(found)
        assert found.quorum_state in self.votes, "a vote is lost, or was never granted"
        self.votes = [found.quorum_state]
        log = found.log
        assert (log.end_offset, log.start_offset) == (
            self.store.log_end_offset,
            self.store._log.log_start_offset,
        )
        batches = self._read(log.start_offset, log.end_offset)
        rows = {batch.base_offset: (batch.crc, batch.partition_leader_epoch) for batch in batches}
        self._check_whole(batches, log.start_offset, log.end_offset)
        assert log.start_offset <= (latest.end_offset if latest else 0), (
            "the log begins behind its snapshot"
        )
        if not latest or latest.end_offset < log.end_offset or not rows:
            assert log.end_offset >= self.flushed, (
                f"what was flushed up to {self.flushed} ends at {log.end_offset}"
            )
        assert any(
            self._begins(each, rows, log.end_offset) for each in (self.log, *self.might_be)
        ), "these are not the records that were written"
        assert log.end_of_epoch(log.last_epoch).end_offset == log.end_offset
        assert all(log.epochs.epoch_at(offset) == epoch for offset, (_, epoch) in rows.items()), (
            "the epochs differ from those of the records"
        )
        self.log = Log(rows, log.end_offset, log.start_offset)
        self.flushed = log.end_offset
        self.epoch = max(self.epoch, log.last_epoch)

    def _check_snapshots(self, found: RecoveredStore) -> SnapshotId | None:
        """Finished snapshots are there and readable, unless the log begins behind them; one that
        was being written may be there.
        """
        there = set(found.log.snapshots)
        assert all(each.end_offset >= found.log.start_offset for each in there), (
            "a snapshot ends below the log start offset"
        )
        needed = {each for each in self.snapshots if each.end_offset >= found.log.start_offset}
        assert needed <= there <= {*self.snapshots, *self.perhaps}, (
            f"{there} is there, and should be {self.snapshots}"
        )
        for each in there:
            records = [
                record.value
                for batch in self.store.snapshots.read(each)
                if not batch.is_control
                for record in batch.records()
            ]
            assert records == [str(each.end_offset).encode()], "a snapshot has other contents"
        self.snapshots, self.perhaps = sorted(there), []
        latest = found.log.latest_snapshot
        if latest is not None and latest.end_offset > self.log.end_offset:
            self.log, self.flushed = (
                Log({}, latest.end_offset, latest.end_offset),
                latest.end_offset,
            )
        return latest

    def _read(self, first_offset: int, end_offset: int) -> list[RecordBatch]:
        """All batches; a read ends with its segment."""
        batches = list[RecordBatch]()
        while first_offset < end_offset:
            found = list(split_batches(self.store.read(first_offset, ALL, end_offset)))
            assert found, f"nothing is found at {first_offset}"
            batches += found
            first_offset = found[-1].next_offset
        return batches

    def _check_whole(self, batches: list[RecordBatch], first_offset: int, end_offset: int) -> None:
        expected = first_offset
        for batch in batches:
            assert batch.base_offset == expected and batch.crc_is_valid(), (
                f"a hole in the log at {expected}"
            )
            expected = batch.next_offset
        assert expected == end_offset

    def _begins(self, log: Log, rows: dict[int, tuple[int, int]], end_offset: int) -> bool:
        """Whether a log begins with these rows, and agrees with the flushed part of the current
        one.
        """
        flushed = (offset for offset in rows if offset < self.flushed)
        is_same = all(log.rows.get(offset) == row for offset, row in rows.items())
        return (
            end_offset <= log.end_offset
            and is_same
            and all(self.log.rows.get(offset) == rows[offset] for offset in flushed)
        )


def is_over(life: asyncio.Task[None], host: Host) -> bool:
    """Whether an incarnation has ended, by itself or with its host."""
    return life.done() or not host.is_alive


def run(seed: int, config: NodeConfig = CONFIG) -> Replica:
    """Run several incarnations of a replica, each ended by a power loss at some disk operation."""
    replica, rng = Replica(seed), Random(f"{seed}/power")
    is_last = False

    def fail(trigger_context: object) -> None:
        if not is_last:
            simulation.kill(HOST, power_loss=True)

    with Simulation(seed) as simulation:
        simulation.add_host(HOST)
        for _ in range(INCARNATIONS):
            host = simulation.host(HOST)
            simulation.triggers.on_disk(
                fail,
                operation=rng.choice(("write", "flush", "flush", "rename")),
                host=HOST,
                nth=rng.randint(1, 25),
                moment=rng.choice(("before", "after")),
            )
            life = simulation.spawn(HOST, replica.live(simulation))
            simulation.run_until(partial(is_over, life, host))
            if life.done():
                life.result()
            simulation.kill(HOST, power_loss=True)
            simulation.restart(HOST)
        is_last = True
        simulation.run_until(simulation.spawn(HOST, replica.live(simulation)))
    return replica


@pytest.mark.parametrize("seed", SEEDS)
def test_flushed_data_survives_a_power_loss_at_any_point(seed: int) -> None:
    """Flushed records, votes, snapshots; no gap, no record that was never written, and never a
    failure to start.
    """
    run(seed)


@pytest.mark.parametrize(("damaged", "starts"), [(0, False), (5, False), (8, True)])
def test_log_without_its_flushed_records_is_rejected(
    make_world: MakeWorld, tmp_path: Path, damaged: int, starts: bool
) -> None:
    """Flushed records may have been acknowledged: without them a voter must not vote. An unflushed
    tail is truncated. Batches of ten; six of them are flushed.
    """

    async def write() -> None:
        store = MetadataStore(make_world(), CONFIG, has_recovery_point=True)
        await store.load(VoterSet())
        for offset in range(10):
            store.append(build_batch([Record(value=b"x" * 10)], base_offset=offset, leader_epoch=1))
            if offset == 5:
                await store.flush()
        store.abort()

    asyncio.run(write())
    files = sorted((tmp_path / "data").rglob("*.log"))
    positions = {
        batch.base_offset: (file, batch.position)
        for file in files
        for batch in split_batches(file.read_bytes())
    }
    file, position = positions[damaged]
    content = bytearray(file.read_bytes())
    content[position + 70] ^= 1
    file.write_bytes(content)
    store = MetadataStore(make_world(), CONFIG, has_recovery_point=True)
    if starts:
        assert asyncio.run(store.load(VoterSet())).log.end_offset == damaged
    else:
        with pytest.raises(ConfigError, match="records that were committed may be gone"):
            asyncio.run(store.load(VoterSet()))


def test_snapshot_gets_its_name_when_it_is_complete(make_world: MakeWorld) -> None:
    """On a real disk, where a closed file cannot be flushed; an unfinished one is deleted at the
    next scan.
    """
    disk = make_world().disk
    files = SnapshotFiles(disk)
    asyncio.run(
        files.write(SnapshotId(3, 1), [[Record(value=b"a")], [Record(value=b"b")]], timestamp=7)
    )
    files.write_piece(SnapshotId(9, 1), 0, b"half of it")
    assert files.found() == SnapshotFiles(disk).found() == [SnapshotId(3, 1)]
    assert files.timestamp_of(SnapshotId(3, 1)) == 7
    assert [
        record.value
        for batch in files.read(SnapshotId(3, 1))
        if not batch.is_control
        for record in batch.records()
    ] == [b"a", b"b"]
    files.close()


SNAPSHOT = SnapshotId(3, 1)
BASE_OFFSET, LEADER_EPOCH = range(8), range(12, 16)
"""The bytes of a batch that its checksum does not cover, and that a snapshot reader ignores."""


def written_snapshot(make_world: MakeWorld, tmp_path: Path) -> tuple[SnapshotFiles, Path]:
    """Write a snapshot of two batches on a real disk; return the files and its path."""
    files = SnapshotFiles(make_world().disk)
    asyncio.run(files.write(SNAPSHOT, [[Record(value=b"a")], [Record(value=b"b")]], timestamp=7))
    [path] = (tmp_path / "data").rglob("*.checkpoint")
    return files, path


def test_truncated_snapshot_is_rejected(make_world: MakeWorld, tmp_path: Path) -> None:
    """At any length, also between two batches: without its footer it is incomplete."""
    files, path = written_snapshot(make_world, tmp_path)
    data = path.read_bytes()
    ends = [batch.position for batch in split_batches(data)]
    assert len(ends) == 4, "header, two batches, footer"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(DamagedSnapshot):
            files.check(SNAPSHOT)
    path.write_bytes(data)
    files.check(SNAPSHOT)


def test_snapshot_with_a_flipped_bit_is_rejected(make_world: MakeWorld, tmp_path: Path) -> None:
    """Bit rot: every meaningful byte is covered by a checksum, or by the order of the batches."""
    files, path = written_snapshot(make_world, tmp_path)
    data = path.read_bytes()
    starts = [batch.position for batch in split_batches(data)]
    unused = {start + byte for start in starts for byte in (*BASE_OFFSET, *LEADER_EPOCH)}
    for position in (each for each in range(len(data)) if each not in unused):
        damaged = bytearray(data)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(DamagedSnapshot):
            files.check(SNAPSHOT)


@pytest.mark.parametrize("is_torn", [True, False])
def test_replica_does_not_start_with_a_damaged_snapshot(
    make_world: MakeWorld, tmp_path: Path, is_torn: bool
) -> None:
    """It would serve incomplete metadata."""
    _, path = written_snapshot(make_world, tmp_path)
    data = path.read_bytes()
    footer = [batch.position for batch in split_batches(data)][-1]
    path.write_bytes(data[:footer] if is_torn else data[:-1] + bytes([data[-1] ^ 1]))
    store = MetadataStore(make_world(), CONFIG, has_recovery_point=True)
    with pytest.raises(ConfigError, match="is damaged"):
        asyncio.run(store.load(VoterSet()))


def test_finished_snapshot_is_not_kept_open(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica writes them for years: each would hold a descriptor, and its disk space when
    deleted.
    """
    disk = make_world().disk
    opened: list[File] = []
    open_file = disk.open

    def noting(path: str) -> File:
        opened.append(open_file(path))
        return opened[-1]

    monkeypatch.setattr(disk, "open", noting)
    files = SnapshotFiles(disk)
    asyncio.run(files.write(SNAPSHOT, [[Record(value=b"a")]], timestamp=7))
    content = disk.read(path_of(SNAPSHOT))
    files.write_piece(SnapshotId(9, 1), 0, content)
    asyncio.run(files.finish_fetched(SnapshotId(9, 1)))
    assert len(opened) == 2
    for each in opened:
        with pytest.raises(OSError, match="the file is closed"):
            each.read(0, 1)
