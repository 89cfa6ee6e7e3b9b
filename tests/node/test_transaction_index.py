"""Aborted transactions are indexed beside the segments of their markers, through all failures of
the broker.

Source: KIP-98, TransactionIndex, LogSegment.{recover,collectAbortedTxns}.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftsim.events.event import Event
from kraftsim.metadata.topic_settings import TopicSettings
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_directory import LogDirectory
from kraftsim.partitions.partition_opening import recover_partition
from kraftsim.partitions.rules_append import AppendRules
from kraftsim.partitions.rules_follower import Accept
from kraftsim.partitions.rules_log import LeaderEpochs, RetentionRules, SegmentSettings
from kraftsim.partitions.rules_replica import PartitionReplica
from kraftsim.producer_state.rules_entries import ProducerStatePolicy, snapshot_rows
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.world.interface import World
from protocol.messages.k01_fetch import (
    READ_COMMITTED,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from protocol.records.batches import RecordBatch
from protocol.storage.indexes import parse_transaction_index
from tests.core.batches import make_batch, make_marker
from tests.node.brokers import Client, running_cluster
from tests.node.conftest import MakeWorld

SMALL = SegmentSettings(segment_bytes=1200, index_interval_bytes=100)
SETTINGS = TopicSettings(
    rules=AppendRules(), segments=SMALL, retention=RetentionRules(), flush_messages=1 << 60
)


class Transactions:
    """A log with transactions, its state and its snapshots."""

    def __init__(self, world: World, recovery_point: int | None = None) -> None:
        self.now_ms = world.clock.wall_ms()
        self.state = ProducerStateManager(ProducerStatePolicy(verifies_transactions=False))
        self.log = PartitionLog(world, "t", 0, SMALL, on_rolled=self._take_snapshot)
        self.snapshots = recover_partition(
            world, self.log, self.state, recovery_point=recovery_point, log_start_offset=0
        )

    def _take_snapshot(self) -> None:
        self.snapshots.take(self.state, self.log.base_offsets[-1])

    def add(self, batch: RecordBatch) -> None:
        offset = self.log.log_end_offset
        self.log.append(
            batch.with_base_offset(offset, 0),
            first_offset=offset,
            last_offset=offset + batch.last_offset_delta,
            size_bytes=batch.size_bytes,
            max_timestamp=batch.max_timestamp,
            leader_epoch=0,
        )
        aborted = self.state.apply(batch, offset)
        if aborted is not None:
            self.log.add_aborted(aborted)

    def write_all(self) -> "Transactions":
        """Two producers with overlapping transactions: those of 7 are always aborted, those of 8
        every other time; 9 leaves an empty one.
        """
        for turn in range(12):
            for producer_id in (7, 8):
                self.add(
                    make_batch(
                        turn, producer_id=producer_id, timestamp=self.now_ms, transactional=True
                    )
                )
            self.add(make_marker(commits=False, producer_id=9, timestamp=self.now_ms))
            self.add(make_marker(commits=False, producer_id=7, timestamp=self.now_ms))
            self.add(make_marker(commits=turn % 2 == 0, producer_id=8, timestamp=self.now_ms))
        return self

    def stop(self, *, cleanly: bool) -> None:
        asyncio.run(self.log.store_epochs())
        if cleanly:
            self.snapshots.take(self.state, self.log.log_end_offset)
            self.log.close()
        else:
            self.log.abort()

    def index_entries(self) -> list[tuple[int, int, int, int]]:
        """Return (producer id, first offset, marker, last stable offset) of every aborted
        transaction.
        """
        found = self.log.aborted_between(0, self.log.log_end_offset)
        return [
            (each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
            for each in found
        ]


EXPECTED = [
    entry
    for turn in range(12)
    for entry in [
        (7, 5 * turn, 5 * turn + 3, 5 * turn + 1),
        *([(8, 5 * turn + 1, 5 * turn + 4, 5 * turn + 5)] if turn % 2 else []),
    ]
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data" / "t-0"


def index_files(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(directory.glob("*.txnindex"))}


def test_each_aborted_transaction_is_indexed_in_its_markers_segment(
    make_world: MakeWorld, directory: Path
) -> None:
    """With the last stable offset at that time; not one without records, nor a committed one."""
    written = Transactions(make_world()).write_all()
    assert written.index_entries() == EXPECTED
    bases = written.log.base_offsets
    assert len(bases) >= 4
    for base, following in zip(bases, [*bases[1:], written.log.log_end_offset], strict=True):
        entries = parse_transaction_index(index_files(directory).get(f"{base:020d}.txnindex", b""))
        assert [each.last_offset for each in entries] == [
            marker for _, _, marker, _ in EXPECTED if base <= marker < following
        ]


@pytest.mark.parametrize(
    ("first", "end"),
    [
        (0, 60),
        (0, 1),
        (0, 2),
        (3, 4),
        (4, 5),
        (5, 6),
        (6, 10),
        (7, 31),
        (59, 60),
        (60, 60),
        (13, 14),
    ],
)
def test_fetch_returns_the_aborted_transactions_in_its_range(
    make_world: MakeWorld, first: int, end: int
) -> None:
    """Those that end at its first offset or later and begin before its end; entries behind
    everything it read may be omitted.
    """
    written = Transactions(make_world()).write_all()
    found = [
        (each.producer_id, each.first_offset) for each in written.log.aborted_between(first, end)
    ]
    assert found == [
        (producer_id, start)
        for producer_id, start, marker, _ in EXPECTED
        if marker >= first and start < end
    ]


def lost(directory: Path) -> None:
    for file in directory.glob("*.txnindex"):
        file.unlink()


def untouched(directory: Path) -> None:
    """Leave everything as it is."""


@pytest.mark.parametrize("damage", [lost, untouched])
def test_crash_changes_nothing(
    make_world: MakeWorld, directory: Path, damage: Callable[[Path], None]
) -> None:
    """Unflushed entries are rebuilt from the log; the producer state is byte-identical except for
    the older batches.
    """
    written = Transactions(make_world()).write_all()
    before, known = index_files(directory), list(snapshot_rows(written.state.entries.values()))
    written.stop(cleanly=False)
    damage(directory)
    again = Transactions(make_world(), recovery_point=0)
    assert (again.index_entries(), index_files(directory)) == (EXPECTED, before)
    assert sorted(snapshot_rows(again.state.entries.values())) == sorted(known)


def truncated(directory: Path) -> None:
    file = sorted(directory.glob("*.txnindex"))[1]
    file.write_bytes(file.read_bytes()[:-1])


def zeroed(directory: Path) -> None:
    file = sorted(directory.glob("*.txnindex"))[-1]
    file.write_bytes(bytes(len(file.read_bytes())))


def of_the_future(directory: Path) -> None:
    file = sorted(directory.glob("*.txnindex"))[0]
    file.write_bytes(b"\x7f" + file.read_bytes()[1:])


@pytest.mark.parametrize("damage", [truncated, zeroed, of_the_future])
@pytest.mark.parametrize("cleanly", [True, False])
def test_corrupted_index_is_rebuilt(
    make_world: MakeWorld, directory: Path, damage: Callable[[Path], None], cleanly: bool
) -> None:
    """Even after a clean stop: readers of committed data must not see aborted records.   Source:
    TransactionIndex.sanityCheck, LogLoader.
    """
    written = Transactions(make_world()).write_all()
    before = index_files(directory)
    known = sorted(snapshot_rows(written.state.entries.values()))
    written.stop(cleanly=cleanly)
    damage(directory)
    again = Transactions(
        make_world(), recovery_point=None if cleanly else written.log.log_end_offset
    )
    assert (again.index_entries(), index_files(directory)) == (EXPECTED, before)
    assert sorted(snapshot_rows(again.state.entries.values())) == known


def test_clean_stop_changes_nothing(make_world: MakeWorld, directory: Path) -> None:
    """And later entries are appended."""
    written = Transactions(make_world()).write_all()
    written.add(make_batch(12, producer_id=7, timestamp=written.now_ms, transactional=True))
    written.stop(cleanly=True)
    again = Transactions(make_world())
    assert again.index_entries() == EXPECTED and again.state.first_unstable_offset == 60
    again.add(make_marker(commits=False, producer_id=7, timestamp=again.now_ms))
    assert again.index_entries() == [*EXPECTED, (7, 60, 61, 62)]


@pytest.mark.parametrize("end_offset", [59, 58, 34, 33, 4, 3])
def test_truncation_removes_the_transactions_of_truncated_markers(
    make_world: MakeWorld, end_offset: int
) -> None:
    """They are open again, as far as their records remain."""
    written = Transactions(make_world()).write_all()
    written.log.truncate_to(end_offset)
    written.snapshots.rebuild(written.state, written.log)
    assert written.index_entries() == [entry for entry in EXPECTED if entry[2] < end_offset]
    written.state.on_high_watermark(end_offset)
    turn = end_offset // 5
    opened = [
        start
        for start, marker in ((5 * turn, 5 * turn + 3), (5 * turn + 1, 5 * turn + 4))
        if start < end_offset <= marker
    ]
    assert written.state.first_unstable_offset == min(opened, default=None)


def written_as(log: PartitionLog, first_offset: int, end_offset: int) -> bytes:
    """Return the bytes of a range of a log."""
    data = b""
    while first_offset < end_offset:
        data += bytes(log.read(first_offset, 1 << 20, end_offset))
        first_offset = log.read_end_offset
    return data


def test_follower_has_the_leaders_state_at_the_same_offset(
    make_world: MakeWorld, directory: Path
) -> None:
    """Producers with all their batches, coordinators, open transactions, and the index of the
    aborted ones.
    """
    leader = Transactions(make_world()).write_all()
    leader.add(make_batch(12, producer_id=7, timestamp=leader.now_ms, transactional=True))
    leader.add(make_batch(0, producer_id=10, timestamp=leader.now_ms))
    world = make_world().elsewhere(str(directory.parent.parent / "follower"))
    follower = Transactions(world)
    emitted: list[Event] = []
    replica = PartitionReplica(
        topic="t",
        partition=0,
        replica_id=2,
        log_start_offset=0,
        log_end_offset=0,
        epochs=LeaderEpochs(),
        producer_state=follower.state,
        rules=AppendRules(),
        emit=emitted.append,
    )
    hosted = HostedPartition(
        bytes(16),
        follower.log,
        replica,
        SETTINGS,
        follower.snapshots,
        LogDirectory("/", world, bytes(16)),
    )
    for first, end in ((0, 17), (17, 18), (18, 44), (44, 62)):
        hosted.copy(
            written_as(leader.log, first, end), Accept(log_start_offset=0, high_watermark=0)
        )
        known = ProducerStateManager(ProducerStatePolicy())
        leader.log.replay(known.replay, end_offset=end)
        assert everything(follower.state) == everything(known)
    assert everything(follower.state) == everything(leader.state), (
        "the replayed state is the appended one"
    )
    assert follower.index_entries() == EXPECTED and replica.last_stable_offset == 0
    hosted.copy(b"", Accept(log_start_offset=0, high_watermark=62))
    assert replica.last_stable_offset == 60, "the open transaction"


def everything(state: ProducerStateManager) -> dict[int, list[int | None]]:
    """Return the complete state of each producer."""
    return {
        producer_id: [
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.first_transaction_offset,
            *(
                value
                for each in entry.retained
                for value in (
                    each.first_sequence,
                    each.last_sequence,
                    each.first_offset,
                    each.last_offset,
                )
            ),
        ]
        for producer_id, entry in sorted(state.entries.items())
    }


def test_committed_fetch_lists_aborted_transactions(make_world: MakeWorld) -> None:
    """Those that overlap the returned range; none without records; nothing for read_uncommitted."""
    written = Transactions(make_world()).write_all()
    records = written_as(written.log, 0, 60)
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            hosted = cluster.brokers["broker-1"].partitions.find("t", 0)
            assert hosted is not None
            hosted.copy(records, Accept(log_start_offset=0, high_watermark=60))

            async def listed(offset: int, max_bytes: int) -> list[tuple[int, int]] | None:
                partition = FetchPartition(
                    partition=0, fetch_offset=offset, partition_max_bytes=max_bytes
                )
                topic = FetchTopic(topic="t", partitions=[partition])
                answer = await client.ask(
                    FetchRequest(max_wait_ms=0, isolation_level=READ_COMMITTED, topics=[topic]), 12
                )
                assert isinstance(answer, FetchResponse)
                aborted = answer.responses[0].partitions[0].aborted_transactions
                return (
                    None
                    if aborted is None
                    else [(each.producer_id, each.first_offset) for each in aborted]
                )

            assert await listed(0, 1 << 20) == [
                (producer_id, first) for producer_id, first, _, _ in EXPECTED
            ]
            assert await listed(0, 1) == [(7, 0)]
            assert await listed(4, 1) == []
            assert await listed(6, 1) == [(7, 5), (8, 6)]
            assert await listed(60, 1 << 20) == []
            assert (await client.fetch(0)).aborted_transactions is None

        cluster.run(work)
