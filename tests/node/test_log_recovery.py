"""Durable data is not read again: a log is opened by its indexes, and only segments that may be
torn are verified.

Source: LogLoader.{loadSegmentFiles,recoverLog}, LogSegment.sanityCheck.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_reading import searched
from kraftsim.partitions.rules_log import SegmentSettings
from kraftsim.world.interface import World
from kraftsim.world.simulated import Simulation
from kraftsim.zookeeper.rules_control_requests import derived_topic_id
from protocol.records.batches import split_batches
from tests.node.conftest import MakeWorld
from tests.node.test_log import T, filled, offsets

SETTINGS = SegmentSettings(segment_bytes=2000, index_interval_bytes=150)


def reopened(
    world: World, recovery_point: int | None
) -> tuple[PartitionLog, list[int], list[int], int]:
    """Open the log; return it, the segments found unclean, the replayed batches, and the number of
    truncated bytes.
    """
    log, unclean, handed = PartitionLog(world, "t", 0, SETTINGS), list[int](), list[int]()
    recovered = log.recover(
        lambda batch: handed.append(batch.base_offset),
        verify_from_offset=recovery_point,
        on_unclean=unclean.append,
    )
    return log, unclean, handed, recovered.truncated_bytes


def written(world: World, *, cleanly: bool = True) -> PartitionLog:
    """Write a log of several segments; record n has timestamp T + n."""
    log = PartitionLog(world, "t", 0, SETTINGS)
    log.recover(lambda batch: None)
    filled(log, 60)
    asyncio.run(log.store_epochs())
    if cleanly:
        log.close()
    else:
        log.abort()
    return log


def files(directory: Path, suffix: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(directory.glob(f"*{suffix}"))}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data" / "t-0"


def test_indexes_agree_with_the_log_after_a_clean_stop(
    make_world: MakeWorld, directory: Path
) -> None:
    """Every record is found as before, by offset and by timestamp, and the log continues as if it
    had never been closed.
    """
    written(make_world())
    whole = files(directory, "index")
    again, unclean, handed, truncated_bytes = reopened(make_world(), None)
    assert (unclean, handed, truncated_bytes, again.log_end_offset, again.flushed_offset) == (
        [],
        [],
        0,
        120,
        120,
    )
    for offset in range(120):
        first = offset - offset % 2
        assert offsets(again.read(offset, 1, 120)) == [(first, first + 1)]
        found = searched(again.find_timestamp(T + offset, 120))
        assert found is not None and found.offset == offset
    newest = searched(again.find_max_timestamp(120))
    assert newest is not None and newest.offset == 119
    again.close()
    assert files(directory, "index") == whole
    again, *_ = reopened(make_world(), None)
    filled(again, 40)
    again.close()
    grown = files(directory, "index")
    for name in grown:
        (directory / name).unlink()
    scanned = PartitionLog(make_world(), "t", 0, SETTINGS)
    scanned.recover(lambda batch: None)
    scanned.close()
    assert files(directory, ".index") == {
        name: data for name, data in grown.items() if ".index" in name
    }


def test_only_segments_behind_the_recovery_point_are_verified(
    make_world: MakeWorld, directory: Path
) -> None:
    """A restart does not detect a flipped bit in flushed data, and detects each in unflushed
    data.
    """
    bases = written(make_world(), cleanly=False).base_offsets
    assert len(bases) >= 4
    for base in (bases[0], bases[-2]):
        file = directory / f"{base:020d}.log"
        file.write_bytes(file.read_bytes()[:-1] + b"\1")
    recovery_point = bases[-2] + 1
    log, unclean, handed, truncated_bytes = reopened(make_world(), recovery_point)
    assert unclean == [bases[-2]]
    assert handed == list(range(bases[-2], bases[-1] - 2, 2))
    assert truncated_bytes and log.log_end_offset == bases[-1] - 2
    assert log.flushed_offset == recovery_point


@pytest.mark.parametrize("is_cleaned", [True, False])
def test_records_behind_a_gap_are_truncated_unless_cleaning_left_it(
    make_world: MakeWorld, directory: Path, is_cleaned: bool
) -> None:
    """The unflushed end of a segment, several whole batches, is lost, and the next segment is
    there: nothing is torn, but the log is not contiguous.
    """
    bases = written(make_world(), cleanly=False).base_offsets
    file = directory / f"{bases[1]:020d}.log"
    last = list(split_batches(file.read_bytes()))[-1]
    file.write_bytes(file.read_bytes()[: -last.size_bytes])
    log = PartitionLog(make_world(), "t", 0, SETTINGS)
    handed = list[int]()
    recovered = log.recover(
        lambda batch: handed.append(batch.base_offset),
        verify_from_offset=bases[1],
        on_unclean=lambda base: None,
        chained_from=bases[2] if is_cleaned else bases[2] - 1,
    )
    whole = list(range(bases[1], last.base_offset, 2))
    if not is_cleaned:
        assert (log.log_end_offset, handed, log.base_offsets) == (
            last.base_offset,
            whole,
            bases[:2],
        ) and recovered.truncated_bytes
    else:
        assert (log.log_end_offset, handed, log.base_offsets) == (
            120,
            [*whole, *range(bases[2], 120, 2)],
            bases,
        ) and not recovered.truncated_bytes


def test_partition_metadata_is_written_once_the_topic_has_an_id(make_world: MakeWorld) -> None:
    """The placeholder id of a topic without one is never written: the real id comes with a later
    level, and the log is the same.
    """
    log = PartitionLog(make_world(), "t", 0, SETTINGS)
    asyncio.run(log.store_topic_id(derived_topic_id("t")))
    assert log.stored_topic_id() is None
    asyncio.run(log.store_topic_id(bytes(range(16))))
    assert log.stored_topic_id() == bytes(range(16))


def truncate_and_power_off(seed: int, *, settles: bool) -> tuple[list[int], list[int]]:
    """Return the base offsets of a log's segments after a truncation, and those found after a power
    loss.
    """
    with Simulation(seed) as sim:
        sim.add_host("a")

        async def cut(sim: Simulation = sim) -> list[int]:
            log = PartitionLog(sim.world_of("a"), "t", 0, SETTINGS)
            log.recover(lambda batch: None)
            filled(log, 60)
            await log.flush()
            log.truncate_to(log.base_offsets[1] + 2)
            if settles:
                await log.complete_truncation()
            return log.base_offsets

        kept = sim.run_until(sim.spawn("a", cut()))
        sim.kill("a", power_loss=True)
        sim.restart("a")
        found = PartitionLog(sim.world_of("a"), "t", 0, SETTINGS).found_base_offsets()
        assert kept is not None and len(kept) == 2
        return list(kept), list(found)


@pytest.mark.parametrize("seed", range(12))
def test_truncated_segments_stay_deleted_after_a_power_loss(seed: int) -> None:
    """Once the truncation is settled."""
    kept, found = truncate_and_power_off(seed, settles=True)
    assert found == kept


def test_truncated_segments_may_reappear_before_the_truncation_is_settled() -> None:
    """Otherwise the test above would prove nothing."""
    histories = [truncate_and_power_off(seed, settles=False) for seed in range(12)]
    assert any(found != kept for kept, found in histories)


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_truncated_end_of_a_file_does_not_reappear(seed: int, is_flushed: bool) -> None:
    """Records written after the truncation fill the next segment at once: behind the old end they
    would be treated as stale.
    """
    with Simulation(seed) as sim:
        sim.add_host("a")

        async def cut(sim: Simulation = sim) -> int:
            log = PartitionLog(sim.world_of("a"), "t", 0, SETTINGS)
            log.recover(lambda batch: None)
            filled(log, 60)
            await log.flush()
            log.truncate_to(log.base_offsets[1] + 2)
            if is_flushed:
                log.roll_by(SegmentSettings(segment_bytes=100))
                filled(log, 1)
                await log.flush()
                assert len(log.base_offsets) == 3
            else:
                await log.complete_truncation()
            return log.log_end_offset

        end_offset = sim.run_until(sim.spawn("a", cut()))
        sim.kill("a", power_loss=True)
        sim.restart("a")
        log = PartitionLog(sim.world_of("a"), "t", 0, SETTINGS)
        log.recover(lambda batch: None, chained_from=0)
        assert log.log_end_offset == end_offset


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def ahead(file: Path) -> None:
    """Every entry points one byte too far."""
    content = bytearray(file.read_bytes())
    for end in range(8, len(content) + 1, 8):
        content[end - 4 : end] = (int.from_bytes(content[end - 4 : end]) + 1).to_bytes(4)
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "suffix"),
    [
        (damage, suffix)
        for damage in (Path.unlink, truncated, zeroed)
        for suffix in (".index", ".timeindex")
    ]
    + [(ahead, ".index")],
)
@pytest.mark.parametrize("which", [1, -1])
def test_invalid_index_is_rebuilt(
    make_world: MakeWorld, directory: Path, damage: Callable[[Path], None], suffix: str, which: int
) -> None:
    """An index that is missing, torn, inconsistent (an unfinished one of Apache Kafka), or beside
    its log.
    """
    base = written(make_world()).base_offsets[which]
    whole = files(directory, "index")
    damage(directory / f"{base:020d}{suffix}")
    again, unclean, _, truncated_bytes = reopened(make_world(), None)
    assert (unclean, truncated_bytes, again.log_end_offset) == ([], 0, 120)
    for offset in range(120):
        assert offsets(again.read(offset, 1, 120)) == [
            (offset - offset % 2, offset - offset % 2 + 1)
        ]
        found = searched(again.find_timestamp(T + offset, 120))
        assert found is not None and found.offset == offset
    again.close()
    assert files(directory, "index") == whole


def test_without_the_epoch_checkpoint_the_whole_log_is_read(
    make_world: MakeWorld, directory: Path
) -> None:
    """The epochs of a segment's records are known nowhere else."""
    bases = written(make_world()).base_offsets
    (directory / "leader-epoch-checkpoint").unlink()
    log, unclean, handed, _ = reopened(make_world(), 120)
    assert (unclean, handed) == (bases, list(range(0, 120, 2)))
    assert [(start.leader_epoch, start.start_offset) for start in log.epochs.starts] == [(0, 0)]
