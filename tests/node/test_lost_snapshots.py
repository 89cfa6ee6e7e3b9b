"""Producer snapshots by release, and logs that have lost them: what is replayed, by which rule, and
which producers that forgets (KAFKA-15195).

`READ` has what each start must replay; the rule that replays no more than producer.id.expiration.ms
is compared with the shipped one.
"""

import asyncio
from pathlib import Path
from random import Random

import pytest

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.partition_opening import recover_partition
from kraftsim.partitions.producer_snapshots import BoundedReplay, NewestSnapshots, ProducerSnapshots
from kraftsim.partitions.rules_log import SegmentSettings
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.world.interface import World
from protocol.records.batches import RecordBatch
from tests.node.conftest import MakeWorld, data_batch
from tools.claims.recording import Figures

HOUR_MS = 3_600_000
EXPIRATION_MS = 24 * HOUR_MS
LOGS = 20
SMALL = SegmentSettings(segment_bytes=1000, index_interval_bytes=100)


class CountsReplayed(ProducerStateManager):
    """Counts the replayed batches."""

    count = 0

    def replay(self, batch: RecordBatch) -> None:
        type(self).count += 1
        super().replay(batch)


class Log:
    """A log and its state, opened by a rule."""

    def __init__(
        self,
        world: World,
        kind: type[ProducerSnapshots] = ProducerSnapshots,
        *,
        recovery_point: int | None = None,
    ) -> None:
        CountsReplayed.count = 0
        self.world = world
        self.state = CountsReplayed(
            ProducerStatePolicy(expiration_ms=EXPIRATION_MS, verifies_transactions=False)
        )
        self.log = PartitionLog(world, "t", 0, SMALL, on_rolled=self._take_snapshot)
        self.snapshots = recover_partition(
            world,
            self.log,
            self.state,
            recovery_point=recovery_point,
            log_start_offset=0,
            snapshots_of=kind,
        )
        self.replayed = CountsReplayed.count

    def _take_snapshot(self) -> None:
        self.snapshots.take(self.state, self.log.base_offsets[-1])

    def write(
        self, producer_id: int, sequence: int, timestamp_ms: int, *, transactional: bool = False
    ) -> None:
        """Append a batch of one record."""
        offset = self.log.log_end_offset
        batch = data_batch(
            timestamp=timestamp_ms,
            first=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )
        self.log.append(
            batch.with_base_offset(offset, 0),
            first_offset=offset,
            last_offset=offset,
            size_bytes=batch.size_bytes,
            max_timestamp=timestamp_ms,
            leader_epoch=0,
        )
        self.state.apply(batch, offset)

    def fill(self, count: int) -> "Log":
        """Let three producers alternate."""
        now_ms = self.world.clock.wall_ms()
        for index in range(count):
            self.write(index % 3, index // 3, now_ms)
        return self

    def stop(self, *, cleanly: bool = True) -> "Log":
        """Stop cleanly, or like a killed process."""
        if cleanly:
            self.snapshots.take(self.state, self.log.log_end_offset)
            self.log.close()
        else:
            self.log.abort()
        asyncio.run(self.log.store_epochs())
        return self

    def known(self) -> dict[int, int]:
        """Return the last sequence of each producer that has not expired."""
        self.state.expire(self.world.clock.wall_ms())
        return {
            producer_id: entry.last_sequence
            for producer_id, entry in sorted(self.state.entries.items())
        }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data" / "t-0"


def snapshot_files(directory: Path) -> list[int]:
    return sorted(int(file.name[:20]) for file in directory.glob("*.snapshot"))


@pytest.mark.parametrize(("kind", "kept"), [(NewestSnapshots, 2), (ProducerSnapshots, 10)])
def test_snapshot_is_written_at_each_roll_and_two_are_kept_before_2_8(
    make_world: MakeWorld,
    directory: Path,
    kind: type[ProducerSnapshots],
    kept: int,
    figures: Figures,
) -> None:
    """TS-05: 2.8 started to keep all of them (KAFKA-9393)."""
    opened = Log(make_world(), kind)
    while len(opened.log.base_offsets) < 11:
        opened.fill(1)
    assert snapshot_files(directory) == opened.log.base_offsets[1:][-kept:]
    figures(
        rolls=len(opened.log.base_offsets) - 1,
        **{f"files_{kind.__name__}": len(snapshot_files(directory))},
    )


READ = {
    ("all", True): (0, {0: 13, 1: 12, 2: 12}),
    ("newest", True): (0, {0: 13, 1: 12, 2: 12}),
    ("none", True): (0, {}),
    ("all", False): (4, {0: 13, 1: 12, 2: 12}),
    ("newest", False): (4, {0: 13, 1: 12, 2: 12}),
    ("none", False): (40, {0: 13, 1: 12, 2: 12}),
}
"""Which snapshots there are, and whether the broker stopped cleanly: how many of 40 batches are
replayed, and the known producers.
"""


@pytest.mark.parametrize(("there", "cleanly"), READ)
def test_snapshots_shorten_a_start_and_without_any_producers_are_lost(
    make_world: MakeWorld, directory: Path, there: str, cleanly: bool, figures: Figures
) -> None:
    """TS-07: after a clean stop."""
    filled = Log(make_world()).fill(40)
    batches = filled.log.log_end_offset
    before = filled.stop(cleanly=cleanly)
    offsets = snapshot_files(directory)
    gone = {"all": [], "newest": offsets[:-2], "none": offsets}[there]
    for offset in gone:
        (directory / f"{offset:020d}.snapshot").unlink()
    again = Log(make_world(), recovery_point=None if cleanly else before.log.base_offsets[-1])
    assert (again.replayed, again.known()) == READ[there, cleanly]
    figures(
        batches=batches,
        **{
            f"replayed_{there}_{'clean' if cleanly else 'killed'}": again.replayed,
            f"known_{there}_{'clean' if cleanly else 'killed'}": len(again.known()),
        },
    )


def lose_snapshots(directory: Path) -> None:
    for offset in snapshot_files(directory):
        (directory / f"{offset:020d}.snapshot").unlink()


def read_back(
    make_world: MakeWorld, directory: Path, seed: int, *, cleanly: bool
) -> tuple[int, int]:
    """Run one log, compare both rules, and return how many batches the bounded one read, and of how
    many.
    """
    draw = Random(seed)
    world = make_world()
    now_ms = world.clock.wall_ms()
    opened, sequences = Log(world), dict.fromkeys(range(12), 0)
    for index in range(60):
        producer_id = draw.randrange(max(0, index // 6 - 2), index // 6 + 2)
        age_ms = (60 - index) * HOUR_MS + draw.choice((0,) * 30 + (30 * HOUR_MS, -70 * HOUR_MS))
        opened.write(producer_id, sequences[producer_id], now_ms - age_ms)
        sequences[producer_id] += 1
    batches = opened.log.log_end_offset
    opened.stop(cleanly=cleanly)
    lose_snapshots(directory)
    point = None if cleanly else opened.log.base_offsets[-1]
    bounded = Log(make_world(), BoundedReplay, recovery_point=point)
    bounded.stop(cleanly=False)
    lose_snapshots(directory)
    whole = Log(make_world(), recovery_point=0)
    assert bounded.known() == whole.known() != {}
    whole.stop()
    for file in directory.iterdir():
        file.unlink()
    return bounded.replayed, batches


@pytest.mark.parametrize("cleanly", [True, False])
def test_bounded_replay_knows_the_producers_of_the_whole_log(
    make_world: MakeWorld, directory: Path, cleanly: bool, figures: Figures
) -> None:
    """TS-13, over 20 logs: most producers are idle for a while, timestamps go forward, back, and
    ahead of the clock.
    """
    logs = [read_back(make_world, directory, seed, cleanly=cleanly) for seed in range(LOGS)]
    read, batches = (sum(counts) for counts in zip(*logs, strict=True))
    assert read < batches * 0.9, "otherwise nothing was saved"
    figures(
        logs=len(logs),
        batches=batches,
        **{"read_after_clean_stops" if cleanly else "read_after_kills": read},
    )


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("seed", range(LOGS, LOGS + 2))
def test_bounded_replay_knows_the_producers_of_any_log(
    make_world: MakeWorld, directory: Path, seed: int, cleanly: bool
) -> None:
    """The same, one log per run, for `make more-seeds`."""
    assert read_back(make_world, directory, seed, cleanly=cleanly)[0] > 0


def test_producer_with_a_longer_open_transaction_is_forgotten(
    make_world: MakeWorld, directory: Path
) -> None:
    """It does not expire, and the segments where it begins are not read: the bound of the proposal
    does not hold for it.
    """
    world = make_world()
    now_ms = world.clock.wall_ms()
    opened = Log(world)
    opened.write(1, 0, now_ms - 2 * EXPIRATION_MS, transactional=True)
    for index in range(40):
        opened.write(2, index, now_ms - 2 * EXPIRATION_MS if index < 20 else now_ms)
    assert sorted(opened.known()) == [1, 2]
    opened.stop()
    lose_snapshots(directory)
    assert sorted(Log(make_world(), BoundedReplay).stop(cleanly=False).known()) == [2]


def test_empty_snapshot_has_ten_bytes_and_is_kept_at_a_segment_start(
    make_world: MakeWorld, directory: Path, figures: Figures
) -> None:
    """TS-15: one that is not aligned with a segment is deleted when the log is loaded."""
    opened = Log(make_world()).fill(40)
    base = opened.log.base_offsets[1]
    opened.snapshots.remove_at([base])
    opened.snapshots.add(opened.state.empty_copy(), base)
    stray = base + 1
    (directory / f"{stray:020d}.snapshot").write_bytes(
        (directory / f"{base:020d}.snapshot").read_bytes()
    )
    opened.stop()
    size = (directory / f"{base:020d}.snapshot").stat().st_size
    assert size == 10
    again = Log(make_world())
    assert base in again.snapshots.offsets and stray not in snapshot_files(directory)
    assert again.known() == {0: 13, 1: 12, 2: 12}, "a newer one has the known producers"
    figures(
        empty_bytes=size,
        stray_is_kept=stray in snapshot_files(directory),
        aligned_is_kept=base in again.snapshots.offsets,
    )
