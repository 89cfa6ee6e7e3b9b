"""Producer state survives its broker: snapshots beside the segments, and the batches after the
newest one.

Source: ProducerStateManager, UnifiedLog.rebuildProducerState, KAFKA-9393.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.partition_opening import recover_partition
from kraftsim.partitions.rules_log import SegmentSettings
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.world.interface import World
from protocol.records.batches import RecordBatch
from protocol.storage.producer_snapshot import build_producer_snapshot, parse_producer_snapshot
from tests.node.conftest import MakeWorld, data_batch
from tools.claims.recording import Figures

SMALL = SegmentSettings(segment_bytes=1000, index_interval_bytes=100)
IDS = (7, 8, 9)


class Written:
    """A log with three alternating producers, and their state; a snapshot is written at each
    segment start, as in HostedPartition.
    """

    def __init__(self, world: World, *, recovery_point: int | None = None) -> None:
        self.now_ms = world.clock.wall_ms()
        self.state = ProducerStateManager(ProducerStatePolicy())
        self.log = PartitionLog(world, "t", 0, SMALL, on_rolled=self._take_snapshot)
        self.snapshots = recover_partition(
            world, self.log, self.state, recovery_point=recovery_point, log_start_offset=0
        )

    def _take_snapshot(self) -> None:
        self.snapshots.take(self.state, self.log.base_offsets[-1])

    def fill(self, count: int) -> "Written":
        """Append so many batches of one record, with increasing sequences for each producer."""
        for _ in range(count):
            offset = self.log.log_end_offset
            batch = data_batch(
                timestamp=self.now_ms,
                first=offset,
                producer_id=IDS[offset % 3],
                producer_epoch=0,
                base_sequence=offset // 3,
            )
            self.log.append(
                batch.with_base_offset(offset, 0),
                first_offset=offset,
                last_offset=offset,
                size_bytes=batch.size_bytes,
                max_timestamp=batch.max_timestamp,
                leader_epoch=0,
            )
            self.state.apply(batch, offset)
        return self

    def close(self) -> "Written":
        """Stop cleanly."""
        self.snapshots.take(self.state, self.log.log_end_offset)
        self.log.close()
        asyncio.run(self.log.store_epochs())
        return self

    def crash(self) -> "Written":
        """Stop like a killed process; everything except the last segment was flushed."""
        self.log.abort()
        asyncio.run(self.log.store_epochs())
        return self

    def last_sequences(self) -> dict[int, int]:
        """Return the last sequence of each producer."""
        return {
            producer_id: entry.last_sequence
            for producer_id, entry in sorted(self.state.entries.items())
        }

    def depths(self) -> list[int]:
        """Return the number of remembered batches of each producer."""
        return [len(entry.retained) for _, entry in sorted(self.state.entries.items())]


def snapshot_files(directory: Path) -> list[int]:
    return sorted(int(file.name[:20]) for file in directory.glob("*.snapshot"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data" / "t-0"


def test_segment_start_and_clean_stop_write_a_snapshot(
    make_world: MakeWorld, directory: Path, figures: Figures
) -> None:
    """Kafka's file format: the last batch of each producer before the offset in the name."""
    written = Written(make_world()).fill(40)
    end_offset = written.log.log_end_offset
    bases = written.close().log.base_offsets
    assert len(bases) > 3 and snapshot_files(directory) == [*bases[1:], 40]
    for offset in snapshot_files(directory):
        entries = parse_producer_snapshot((directory / f"{offset:020d}.snapshot").read_bytes())
        assert {each.producer_id: each.last_offset for each in entries} == {
            IDS[last % 3]: last for last in range(offset - 3, offset)
        }
    figures(
        end_offset=end_offset,
        newest_file=snapshot_files(directory)[-1],
        segments=len(bases),
        files=len(snapshot_files(directory)),
    )


def test_after_a_clean_stop_only_each_producers_last_batch_is_known(make_world: MakeWorld) -> None:
    """The snapshot at the log end offset has no more; nothing is replayed."""
    before = Written(make_world()).fill(40).close()
    again = Written(make_world())
    assert before.depths() == [5, 5, 5] and again.depths() == [1, 1, 1]
    assert again.last_sequences() == before.last_sequences()


def test_after_a_crash_batches_behind_the_newest_snapshot_are_replayed(
    make_world: MakeWorld, directory: Path
) -> None:
    """The state is that of the log end, and a snapshot there saves the next start the work."""
    before = Written(make_world()).fill(40).crash()
    bases = before.log.base_offsets
    again = Written(make_world(), recovery_point=bases[-1])
    assert again.last_sequences() == before.last_sequences()
    behind = 40 - bases[-1]
    assert sum(again.depths()) == behind + 3
    assert snapshot_files(directory) == [*bases[1:], 40]


def damaged(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def of_version_2(file: Path) -> None:
    file.write_bytes(b"\0\2" + file.read_bytes()[2:])


def torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:20])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [damaged, of_version_2, torn, emptied])
def test_corrupted_snapshot_is_deleted_and_the_previous_one_used(
    make_world: MakeWorld, directory: Path, damage: Callable[[Path], None]
) -> None:
    """CorruptSnapshotException: the batches after the previous one are replayed from the log."""
    before = Written(make_world()).fill(40).close()
    newest, older = snapshot_files(directory)[-1], snapshot_files(directory)[-2]
    damage(directory / f"{newest:020d}.snapshot")
    again = Written(make_world())
    assert again.last_sequences() == before.last_sequences()
    assert sum(again.depths()) == 40 - older + 3
    assert parse_producer_snapshot((directory / f"{newest:020d}.snapshot").read_bytes()), (
        "it was written again"
    )


def test_without_any_valid_snapshot_the_whole_log_is_replayed(
    make_world: MakeWorld, directory: Path, figures: Figures
) -> None:
    """Their files are there, so the log is not older than snapshots."""
    before = Written(make_world()).fill(40).close()
    for offset in snapshot_files(directory):
        damaged(directory / f"{offset:020d}.snapshot")
    again = Written(make_world())
    assert (again.last_sequences(), again.depths()) == (before.last_sequences(), [5, 5, 5])
    figures(depth_after_replay=again.depths()[0])
    assert snapshot_files(directory) == [*before.log.base_offsets[-2:], 40]


@pytest.mark.parametrize("was_stopped_cleanly", [True, False])
def test_cleanly_closed_log_without_snapshots_has_no_producers(
    make_world: MakeWorld, directory: Path, was_stopped_cleanly: bool
) -> None:
    """The upgrade from brokers without snapshots: deleting the files of a stopped broker makes it
    forget.

    After a crash the log is read.
    """
    before = Written(make_world()).fill(40).close()
    for offset in snapshot_files(directory):
        (directory / f"{offset:020d}.snapshot").unlink()
    again = Written(make_world(), recovery_point=None if was_stopped_cleanly else 0)
    bases = before.log.base_offsets
    if was_stopped_cleanly:
        assert again.state.entries == {}
        assert snapshot_files(directory) == [*bases[-2:], 40]
        assert (directory / f"{40:020d}.snapshot").stat().st_size == 10
    else:
        assert again.last_sequences() == before.last_sequences()
        assert snapshot_files(directory) == [*bases[1:], 40]


def test_stray_snapshots_are_deleted_except_the_last(
    make_world: MakeWorld, directory: Path
) -> None:
    """removeStraySnapshots: the one of a clean stop is behind the last segment's start; an earlier
    stray is useless.
    """
    bases = Written(make_world()).fill(40).close().log.base_offsets
    for stray in (bases[1] + 1, 39):
        (directory / f"{stray:020d}.snapshot").write_bytes(build_producer_snapshot([]))
    Written(make_world())
    assert snapshot_files(directory) == [*bases[1:], 40]
    (directory / f"{41:020d}.snapshot").write_bytes(build_producer_snapshot([]))
    assert Written(make_world()).last_sequences() == {7: 13, 8: 12, 9: 12}, (
        "a snapshot beyond the log's end is ignored"
    )
    assert 41 not in snapshot_files(directory)


@pytest.mark.parametrize("end_offset", [39, 30, 17, 2])
def test_truncation_reverts_the_producer_state(
    make_world: MakeWorld, directory: Path, end_offset: int
) -> None:
    """truncateAndReload: the state is that of the truncated log."""
    written = Written(make_world()).fill(40)
    assert written.log.truncate_to(end_offset)
    written.snapshots.rebuild(written.state, written.log)
    assert written.last_sequences() == {
        IDS[last % 3]: last // 3 for last in range(max(end_offset - 3, 0), end_offset)
    }
    assert max(snapshot_files(directory)) == end_offset
    written.fill(10)
    assert written.last_sequences() == {
        IDS[last % 3]: last // 3 for last in range(end_offset + 7, end_offset + 10)
    }


def test_replay_respects_its_bounds(make_world: MakeWorld) -> None:
    """Both bounds may lie inside a segment."""
    written = Written(make_world()).fill(40)
    for first, end in ((0, 40), (13, 14), (9, 31), (39, 40), (40, 40), (5, 5)):
        seen: list[RecordBatch] = []
        written.log.replay(seen.append, first_offset=first, end_offset=end)
        assert [batch.base_offset for batch in seen] == list(range(first, end))
