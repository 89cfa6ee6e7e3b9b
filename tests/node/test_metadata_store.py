"""What a replica's disk promises: whatever was flushed, voted, snapshotted or cut is found so, wherever in it the power fails.

Histories are drawn from a seed: batches, flushes, cuts, snapshots of its own and of others, votes; the power goes at the nth operation on the disk.
Source: kafka.raft.KafkaMetadataLog, KIP-595, KIP-630.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from kraftsim.core.raft.raft_log import SnapshotId
from kraftsim.core.raft.voter_set import VoterSet
from kraftsim.node.config import NodeConfig
from kraftsim.node.config_keys import ConfigError
from kraftsim.node.raft.metadata_store import MetadataStore, Recovered
from kraftsim.node.raft.snapshot_files import (
    DamagedSnapshot,
    SnapshotFiles,
    path_of,
    snapshot_batches,
)
from kraftsim.world.interface import File
from kraftsim.world.simulated import Simulation
from protocol.batches import RecordBatch, build_batch, split_batches
from protocol.disk.quorum_state import QuorumState
from protocol.records import Record
from tests.node.conftest import MakeWorld
from tests.node.controllers import controller_config

HOST = "controller-101"
ALL = 1 << 30
LIVES = 6
SEEDS = range(60)
CONFIG = controller_config(HOST, 9193, metadata_log_segment_bytes="400", log_flush_offset_checkpoint_interval_ms="0")


@dataclass(slots=True)
class Log:
    """A log as it should be: its batches by first offset, each with its checksum and epoch."""

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
    """A store and what it must remember.

    `might_be`: logs that were cut. A power loss may bring one back as far as nothing was flushed that contradicts it: its records were good ones of
    their epochs, and the next leader cuts them again.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log = Log()
        self.might_be: list[Log] = []
        self.flushed = 0
        self.votes: list[QuorumState | None] = [None]
        self.snapshots: list[SnapshotId] = []
        self.perhaps: list[SnapshotId] = []
        """Snapshots that are about to be there."""
        self.epoch = 1
        self.store: MetadataStore

    async def live(self, simulation: Simulation) -> None:
        """Come up, see that everything is there, and go on until the power fails."""
        self.store = MetadataStore(simulation.world_of(HOST), CONFIG, has_recovery_point=True)
        self.take_up(await self.store.load(VoterSet()))
        for _ in range(self.random.randint(5, 40)):
            await self.random.choice(self.deeds())()

    def deeds(self) -> list[Callable[[], Awaitable[object]]]:
        return [self.append, self.append, self.append, self.flush, self.flush, self.cut, self.vote, self.write_snapshot, self.install_snapshot]

    # Deeds, each of which the power may end ----------------------------------------------------------------------------------------------------

    async def append(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            offset, count = self.log.end_offset, self.random.randint(1, 3)
            value = self.random.randbytes(self.random.randint(1, 60))
            batch = RecordBatch(build_batch([Record(value=value)] * count, base_offset=offset, leader_epoch=self.epoch))
            self.log.rows[offset] = (batch.crc, self.epoch)
            self.log.end_offset = offset + count
            self.store.append(bytes(batch.buffer))
            assert self.store.log_end_offset == self.log.end_offset

    async def flush(self) -> None:
        """Others may be written meanwhile; what it says is flushed is held to that."""
        end_offset, flushing = self.log.end_offset, asyncio.create_task(self.store.flush())
        for _ in range(self.random.randint(0, 2)):
            await asyncio.sleep(0)
            await self.append()
        self.flushed = await flushing
        assert self.flushed >= end_offset, "everything that was written is flushed"

    async def cut(self) -> None:
        """Back to a batch that nobody has committed; others come in its place, of a later epoch."""
        covered = self.snapshots[-1].end_offset if self.snapshots else 0
        offsets = [offset for offset in self.log.rows if offset >= max(covered, self.log.start_offset)]
        if not offsets:
            return
        end_offset = self.random.choice(offsets)
        self.might_be.append(self.log)
        self.log, self.flushed, self.epoch = self.log.cut(end_offset), min(self.flushed, end_offset), self.epoch + 1
        await self.store.truncate_to(end_offset)
        assert self.store.log_end_offset == end_offset

    async def vote(self) -> None:
        self.epoch += self.random.randint(0, 1)
        state = QuorumState(leader_epoch=self.epoch, voted_id=self.random.randint(101, 103))
        self.votes.append(state)
        await self.store.store_quorum_state(state, 0)
        self.votes = [state]

    async def write_snapshot(self) -> None:
        """Of what is flushed; then the log gives way as far as it can."""
        ends = [offset for offset in self.log.rows if self.log.start_offset < offset <= self.flushed]
        if not ends or (self.snapshots and ends[-1] <= self.snapshots[-1].end_offset):
            return
        end_offset = ends[-1]
        epoch = max(epoch for offset, (_, epoch) in self.log.rows.items() if offset < end_offset)
        snapshot = SnapshotId(end_offset, epoch)
        self.perhaps.append(snapshot)
        self.store.begin_counting()
        await self.store.snapshots.write(snapshot, [[Record(value=str(end_offset).encode())]], timestamp=end_offset)
        older, self.snapshots = self.snapshots, [*self.snapshots, snapshot]
        self.perhaps.clear()
        if self.random.random() < 0.5:
            self.perhaps, self.snapshots = list(older), [snapshot]
            await self.store.delete_before(snapshot, older)
            for gone in older:
                self.store.snapshots.delete(gone)
            self.perhaps.clear()

    async def install_snapshot(self) -> None:
        """Fetch one of another replica, in pieces, perhaps after another one that was begun; it takes the place of the log."""
        self.epoch += 1
        snapshot = SnapshotId(self.log.end_offset + self.random.randint(1, 50), self.epoch)
        records = [[Record(value=str(snapshot.end_offset).encode())]]
        content = b"".join(snapshot_batches(snapshot.epoch, records, timestamp=7, kraft_version=0, voters=None))
        if self.random.random() < 0.5:
            self.store.snapshots.write_piece(SnapshotId(snapshot.end_offset - 1, self.epoch), 0, content[:30])
        for _ in range(self.random.randint(1, 2)):
            for position in range(0, len(content), 50):
                self.store.snapshots.write_piece(snapshot, position, content[position : position + 50])
        self.perhaps.append(snapshot)
        await self.store.install(snapshot)
        self.perhaps.clear()
        self.snapshots.append(snapshot)
        self.log = Log({}, snapshot.end_offset, snapshot.end_offset)
        self.flushed = snapshot.end_offset

    # What must be found ---------------------------------------------------------------------------------------------------------------------

    def take_up(self, found: Recovered) -> None:
        """Compare what came back with what must, and go on with it."""
        latest = self._check_snapshots(found)
        assert found.quorum_state in self.votes, "a vote is forgotten, or was never given"
        self.votes = [found.quorum_state]
        log = found.log
        assert (log.end_offset, log.start_offset) == (self.store.log_end_offset, self.store._log.log_start_offset)
        batches = self._read(log.start_offset, log.end_offset)
        rows = {batch.base_offset: (batch.crc, batch.partition_leader_epoch) for batch in batches}
        self._check_whole(batches, log.start_offset, log.end_offset)
        assert log.start_offset <= (latest.end_offset if latest else 0), "the log begins behind its snapshot"
        if not latest or latest.end_offset < log.end_offset or not rows:
            assert log.end_offset >= self.flushed, f"what was flushed up to {self.flushed} ends at {log.end_offset}"
        assert any(self._begins(each, rows, log.end_offset) for each in (self.log, *self.might_be)), "these are not the records that were written"
        assert log.end_of_epoch(log.last_epoch).end_offset == log.end_offset
        assert all(log.epochs.epoch_at(offset) == epoch for offset, (_, epoch) in rows.items()), "epochs are told otherwise than they are written"
        self.log = Log(rows, log.end_offset, log.start_offset)
        self.flushed = log.end_offset
        self.epoch = max(self.epoch, log.last_epoch)

    def _check_snapshots(self, found: Recovered) -> SnapshotId | None:
        """Those that were finished are there and can be read, unless the log begins behind them; one that was about to be may be."""
        there = set(found.log.snapshots)
        assert all(each.end_offset >= found.log.start_offset for each in there), "a snapshot ends before the log begins"
        needed = {each for each in self.snapshots if each.end_offset >= found.log.start_offset}
        assert needed <= there <= {*self.snapshots, *self.perhaps}, f"{there} is there, and should be {self.snapshots}"
        for each in there:
            records = [record.value for batch in self.store.snapshots.read(each) if not batch.is_control for record in batch.records()]
            assert records == [str(each.end_offset).encode()], "a snapshot says something else"
        self.snapshots, self.perhaps = sorted(there), []
        latest = found.log.latest_snapshot
        if latest is not None and latest.end_offset > self.log.end_offset:
            self.log, self.flushed = Log({}, latest.end_offset, latest.end_offset), latest.end_offset
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
            assert batch.base_offset == expected and batch.crc_is_valid(), f"a hole in the log at {expected}"
            expected = batch.next_offset
        assert expected == end_offset

    def _begins(self, log: Log, rows: dict[int, tuple[int, int]], end_offset: int) -> bool:
        """Whether a log begins with these rows, and what is flushed of the present one is the same in it."""
        flushed = (offset for offset in rows if offset < self.flushed)
        is_same = all(log.rows.get(offset) == row for offset, row in rows.items())
        return end_offset <= log.end_offset and is_same and all(self.log.rows.get(offset) == rows[offset] for offset in flushed)


def play(seed: int, config: NodeConfig = CONFIG) -> Replica:
    """Let a replica live several lives, each ended by a loss of power at some operation of its disk."""
    replica, chance = Replica(seed), Random(f"{seed}/power")
    is_last = False

    def fail(occasion: object) -> None:
        if not is_last:
            simulation.kill(HOST, power_loss=True)

    with Simulation(seed) as simulation:
        simulation.add_host(HOST)
        for _ in range(LIVES):
            host = simulation.host(HOST)
            simulation.triggers.on_disk(
                fail,
                operation=chance.choice(("write", "flush", "flush", "rename")),
                host=HOST,
                nth=chance.randint(1, 25),
                moment=chance.choice(("before", "after")),
            )
            life = simulation.spawn(HOST, replica.live(simulation))
            simulation.run_until(lambda life=life, host=host: life.done() or not host.is_alive)
            if life.done():
                life.result()
            simulation.kill(HOST, power_loss=True)
            simulation.restart(HOST)
        is_last = True
        simulation.run_until(simulation.spawn(HOST, replica.live(simulation)))
    return replica


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_disk_was_told_to_keep_is_there_wherever_the_power_fails(seed: int) -> None:
    """Flushed records, votes, snapshots; no hole, no record that was never written, and never a refusal to start."""
    play(seed)


@pytest.mark.parametrize(("damaged", "comes_up"), [(0, False), (5, False), (8, True)])
def test_a_log_that_lacks_what_was_flushed_is_refused_and_a_tail_that_was_not_is_cut(
    make_world: MakeWorld, tmp_path: Path, damaged: int, comes_up: bool
) -> None:
    """What was flushed may have been acknowledged: without it a voter must not vote. Batches of ten; six of them are flushed."""

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
    positions = {batch.base_offset: (file, batch.position) for file in files for batch in split_batches(file.read_bytes())}
    file, position = positions[damaged]
    content = bytearray(file.read_bytes())
    content[position + 70] ^= 1
    file.write_bytes(content)
    store = MetadataStore(make_world(), CONFIG, has_recovery_point=True)
    if comes_up:
        assert asyncio.run(store.load(VoterSet())).log.end_offset == damaged
    else:
        with pytest.raises(ConfigError, match="records that were committed may be gone"):
            asyncio.run(store.load(VoterSet()))


def test_a_snapshot_gets_its_name_when_it_is_whole(make_world: MakeWorld) -> None:
    """On a real disk, where a file that was given back cannot be flushed; what was never finished is gone with the next look."""
    disk = make_world().disk
    files = SnapshotFiles(disk)
    asyncio.run(files.write(SnapshotId(3, 1), [[Record(value=b"a")], [Record(value=b"b")]], timestamp=7))
    files.write_piece(SnapshotId(9, 1), 0, b"half of it")
    assert files.found() == SnapshotFiles(disk).found() == [SnapshotId(3, 1)]
    assert files.timestamp_of(SnapshotId(3, 1)) == 7
    assert [record.value for batch in files.read(SnapshotId(3, 1)) if not batch.is_control for record in batch.records()] == [b"a", b"b"]
    files.close()


SNAPSHOT = SnapshotId(3, 1)
BASE_OFFSET, LEADER_EPOCH = range(8), range(12, 16)
"""The bytes of a batch that its checksum does not cover, and that a reader of snapshots has no use for."""


def written_snapshot(make_world: MakeWorld, tmp_path: Path) -> tuple[SnapshotFiles, Path]:
    """Write a snapshot of two batches on a real disk; return the files and the path of it."""
    files = SnapshotFiles(make_world().disk)
    asyncio.run(files.write(SNAPSHOT, [[Record(value=b"a")], [Record(value=b"b")]], timestamp=7))
    [path] = (tmp_path / "data").rglob("*.checkpoint")
    return files, path


def test_a_snapshot_that_ends_too_early_is_refused(make_world: MakeWorld, tmp_path: Path) -> None:
    """Wherever it was cut, between two batches, too: without its footer it is not whole."""
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


def test_a_snapshot_with_a_flipped_bit_is_refused(make_world: MakeWorld, tmp_path: Path) -> None:
    """Bit rot: every byte that says something is covered by a checksum, or by how batches follow."""
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
def test_a_replica_does_not_come_up_on_a_damaged_snapshot(make_world: MakeWorld, tmp_path: Path, is_torn: bool) -> None:
    """It would serve metadata that lack what the snapshot had."""
    _, path = written_snapshot(make_world, tmp_path)
    data = path.read_bytes()
    footer = [batch.position for batch in split_batches(data)][-1]
    path.write_bytes(data[:footer] if is_torn else data[:-1] + bytes([data[-1] ^ 1]))
    store = MetadataStore(make_world(), CONFIG, has_recovery_point=True)
    with pytest.raises(ConfigError, match="is damaged"):
        asyncio.run(store.load(VoterSet()))


def test_a_snapshot_that_has_its_name_is_not_kept_open(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica writes them for years: each would keep a descriptor, and its blocks when deleted."""
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
