"""A log has Kafka's format on disk, finds offsets and timestamps, and recovers everything valid
after a crash.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_reading import FoundRecord, searched
from kraftsim.partitions.rules_log import SegmentSettings
from kraftsim.server.events import LogRecovered
from kraftsim.world.interface import World
from protocol.records.batches import RecordBatch, split_batches
from protocol.storage.indexes import parse_offset_index, parse_time_index
from tests.node.conftest import MakeWorld, data_batch

T = 1_700_000_000_000
SMALL = SegmentSettings(segment_bytes=1000, index_interval_bytes=100)


def opened(
    world: World, settings: SegmentSettings | None = None, *, verify_from_offset: int | None = 0
) -> tuple[PartitionLog, list[RecordBatch], LogRecovered]:
    """Open the log t-0 and return what it replayed."""
    log, replayed = PartitionLog(world, "t", 0, settings), list[RecordBatch]()
    recovered = log.recover(replayed.append, verify_from_offset=verify_from_offset)
    return log, replayed, recovered


def append(log: PartitionLog, batch: RecordBatch, leader_epoch: int = 0) -> None:
    """Append a batch at the end of the log."""
    log.append(
        batch.with_base_offset(log.log_end_offset, leader_epoch),
        first_offset=log.log_end_offset,
        last_offset=log.log_end_offset + batch.last_offset_delta,
        size_bytes=batch.size_bytes,
        max_timestamp=batch.max_timestamp,
        leader_epoch=leader_epoch,
    )


def filled(log: PartitionLog, batch_count: int) -> None:
    """Append batches of two records each; record n has timestamp T + n."""
    for _ in range(batch_count):
        append(log, data_batch(2, timestamp=T + log.log_end_offset, first=log.log_end_offset))


def offsets(data: memoryview) -> list[tuple[int, int]]:
    """Return (first, last) offset of the batches in data."""
    return [(batch.base_offset, batch.last_offset) for batch in split_batches(data)]


def test_appended_records_are_read_back_in_whole_batches(make_world: MakeWorld) -> None:
    """A read begins with the batch that contains the offset, ends below the end offset, and
    respects max_bytes except for the first batch.
    """
    log, _, _ = opened(make_world())
    filled(log, 5)
    size_bytes = data_batch(2).size_bytes
    assert offsets(log.read(0, 10_000, 10)) == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert offsets(log.read(3, 10_000, 10)) == [(2, 3), (4, 5), (6, 7), (8, 9)]
    assert offsets(log.read(4, 10_000, 8)) == [(4, 5), (6, 7)]
    assert offsets(log.read(4, 2 * size_bytes + 1, 10)) == [(4, 5), (6, 7)]
    assert offsets(log.read(4, 1, 10)) == [(4, 5)]
    assert offsets(log.read(4, 1, 10, at_least_one=False)) == []
    assert offsets(log.read(4, 0, 10)) == [(4, 5)]
    assert offsets(log.read(10, 10_000, 10)) == []


def test_segments_roll_and_every_offset_is_found(make_world: MakeWorld) -> None:
    """Segments are named by their base offset; complete ones have sparse indexes (Kafka's
    format).
    """
    world = make_world()
    log, _, _ = opened(world, SMALL)
    filled(log, 40)
    names = world.disk.list("t-0")
    bases = [int(name[:20]) for name in names if name.endswith(".log")]
    assert len(bases) > 3 and bases[0] == 0
    assert [name for name in names if name.endswith(".index")] == [
        f"{base:020d}.index" for base in bases[:-1]
    ]
    for offset in range(80):
        first = offset - offset % 2
        assert offsets(log.read(offset, 1, 80)) == [(first, first + 1)]
    index = parse_offset_index(bases[1], world.disk.read(f"t-0/{bases[1]:020d}.index"))
    assert all(bases[1] < entry.offset < bases[2] for entry in index) and index
    times = parse_time_index(bases[1], world.disk.read(f"t-0/{bases[1]:020d}.timeindex"))
    assert times[-1].timestamp == T + bases[2] - 1 and times[-1].offset == bases[2] - 1


@pytest.mark.parametrize("settings", [None, SMALL])
def test_records_are_found_by_timestamp(
    make_world: MakeWorld, settings: SegmentSettings | None
) -> None:
    """ListOffsets: the first record with this timestamp or a greater one, below what the reader may
    see.
    """
    log, _, _ = opened(make_world(), settings)
    filled(log, 40)
    assert searched(log.find_timestamp(0, 80)) == FoundRecord(offset=0, timestamp=T, leader_epoch=0)
    for offset in range(80):
        assert searched(log.find_timestamp(T + offset, 80)) == FoundRecord(
            offset=offset, timestamp=T + offset, leader_epoch=0
        )
    assert searched(log.find_timestamp(T + 79, 79)) is None
    assert searched(log.find_timestamp(T + 80, 80)) is None
    assert searched(log.find_max_timestamp(80)) == FoundRecord(
        offset=79, timestamp=T + 79, leader_epoch=0
    )
    assert searched(log.find_max_timestamp(79)) is None


@pytest.mark.parametrize("settings", [None, SMALL])
def test_log_is_restored_completely(
    make_world: MakeWorld, settings: SegmentSettings | None
) -> None:
    """Every batch is replayed once, in order, with its leader epoch; then appends continue."""
    log, _, _ = opened(make_world(), settings)
    filled(log, 30)
    append(log, data_batch(3), leader_epoch=4)
    log.close()
    again, replayed, recovered = opened(make_world(), settings, verify_from_offset=None)
    assert [batch.base_offset for batch in replayed] == [*range(0, 60, 2), 60]
    assert (recovered.next_offset, recovered.truncated_bytes, recovered.clean) == (63, 0, True)
    assert [(start.leader_epoch, start.start_offset) for start in again.epochs.starts] == [
        (0, 0),
        (4, 60),
    ]
    assert again.flushed_offset == 63
    append(again, data_batch(1), leader_epoch=4)
    assert offsets(again.read(63, 1, 64)) == [(63, 63)]


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (lambda data: data[:-1], 9),  # torn in the records
        (lambda data: data[:-70], 9),  # torn in the header
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), 9),  # one bit
        (lambda data: data + b"\0" * 300, 10),  # zeros, as a file system leaves them
        (lambda data: data + data[-100:], 10),  # an old batch's tail
        (lambda data: data + data[:150], 10),  # a whole batch with an earlier offset
        (lambda data: data + b"\x7f" * 100, 10),  # a batch with a size of two gigabytes
        (lambda data: b"\xff" * len(data), 0),
    ],
)
def test_damaged_tail_is_truncated_and_reported(
    make_world: MakeWorld, tmp_path: Path, damage: Callable[[bytes], bytes], kept: int
) -> None:
    """LogSegment.recover: the first invalid batch ends the log."""
    world = make_world()
    log, _, _ = opened(world)
    filled(log, 10)
    log.abort()
    file = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    whole = file.read_bytes()
    damaged = damage(whole)
    file.write_bytes(damaged)
    next_world = make_world()
    again, replayed, recovered = opened(next_world)
    size_bytes = len(whole) // 10
    assert len(replayed) == kept
    assert (recovered.next_offset, recovered.truncated_bytes, recovered.clean) == (
        2 * kept,
        len(damaged) - kept * size_bytes,
        False,
    )
    assert next_world.emitted_of(LogRecovered) == [recovered]
    assert file.stat().st_size == kept * size_bytes
    filled(again, 1)
    assert offsets(again.read(2 * kept, 1, 100)) == [(2 * kept, 2 * kept + 1)]


def test_damage_in_the_middle_removes_the_later_segments(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """Records after a gap cannot be trusted: LogLoader.recoverLog deletes them."""
    log, _, _ = opened(make_world(), SMALL)
    filled(log, 40)
    log.abort()
    second = sorted((tmp_path / "data" / "t-0").glob("*.log"))[1]
    data = bytearray(second.read_bytes())
    data[-1] ^= 1
    second.write_bytes(data)
    again, _, recovered = opened(make_world(), SMALL)
    assert len(list((tmp_path / "data" / "t-0").glob("*.log"))) == 2
    assert recovered.next_offset < 40 and recovered.truncated_bytes > 1000
    filled(again, 10)
    assert offsets(again.read(recovered.next_offset, 1, 100)) == [
        (recovered.next_offset, recovered.next_offset + 1)
    ]


def test_checksums_before_the_recovery_point_are_not_verified(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """Data flushed before the crash is trusted, so that a start does not read everything twice."""
    log, _, _ = opened(make_world())
    filled(log, 10)
    log.abort()
    file = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    _, replayed, recovered = opened(make_world(), verify_from_offset=10)
    assert (len(replayed), recovered.truncated_bytes) == (10, 0)


@pytest.mark.parametrize("settings", [None, SMALL])
@pytest.mark.parametrize(
    ("offset", "end_offset"), [(80, 80), (79, 78), (78, 78), (40, 40), (41, 40), (1, 0), (0, 0)]
)
def test_log_is_truncated_at_a_batch_boundary(
    make_world: MakeWorld, settings: SegmentSettings | None, offset: int, end_offset: int
) -> None:
    """Batches stay whole: the one that contains the offset is removed, too."""
    log, _, _ = opened(make_world(), settings)
    filled(log, 40)
    log.truncate_to(offset)
    assert log.log_end_offset == end_offset
    filled(log, 1)
    assert offsets(log.read(end_offset, 1, 100)) == [(end_offset, end_offset + 1)]
    log.abort()
    _, replayed, _ = opened(make_world(), settings)
    assert [batch.base_offset for batch in replayed] == list(range(0, end_offset + 2, 2))


def test_truncation_at_the_log_end_removes_an_epoch_without_records(make_world: MakeWorld) -> None:
    """Its leader wrote nothing: the next one does not know it, and a replica that kept it would be
    truncated there over and over.
    """
    log, _, _ = opened(make_world())
    filled(log, 5)
    log.epochs.assign(3, log.log_end_offset)
    assert log.truncate_to(log.log_end_offset) == 0
    assert log.epochs.latest_epoch == 0


async def test_flush_returns_the_durable_offset(make_world: MakeWorld) -> None:
    """Everything appended before the call; later records need another flush."""
    log, _, _ = opened(make_world(), SMALL)
    filled(log, 40)
    assert log.flushed_offset == 0
    assert await log.flush() == 80
    filled(log, 1)
    assert log.flushed_offset == 80
    assert await log.flush() == 82


async def test_directory_stores_its_topic_id(make_world: MakeWorld) -> None:
    """partition.metadata (KIP-516)."""
    log, _, _ = opened(make_world())
    assert log.stored_topic_id() is None
    await log.store_topic_id(b"0123456789abcdef")
    await log.store_epochs()
    assert log.stored_topic_id() == b"0123456789abcdef"
