"""A compacted log has the same latest value of every key, and the same state of every producer and
transaction, however the cleaning ends.

Source: kafka.log.{LogCleaner, LogCleanerTest, LogCleanerIntegrationTest}, KIP-534, KIP-98.
"""

from collections.abc import Coroutine
from random import Random
from typing import TypeVar

import pytest

from kraftsim.partitions.log_cleaner import CleaningCancelled, UncleanableLog
from kraftsim.partitions.log_reading import searched
from kraftsim.partitions.rules_cleaning import OffsetMap
from kraftsim.world.simulated import Simulation
from protocol.records.batches import RecordBatch
from tests.node.compaction_harness import KeyedLog, Observed, Unhurried, observed, opened

R = TypeVar("R")


def run(sim: Simulation, work: Coroutine[object, object, R]) -> R:
    done = sim.run_until(sim.spawn("a", work))
    assert done is not None
    return done


async def written(sim: Simulation, seed: int, steps: int = 120) -> KeyedLog:
    keyed = await opened(sim.world_of("a"), 0)
    keyed.write_workload(Random(seed), steps)
    await keyed.settle()
    return keyed


def simulation(seed: int) -> Simulation:
    sim = Simulation(seed)
    sim.add_host("a")
    return sim


def names(sim: Simulation) -> list[str]:
    return sim.world_of("a").disk.list("t-0")


@pytest.mark.parametrize("seed", range(12))
def test_compacted_log_has_the_same_latest_values(seed: int) -> None:
    """Cleaned once, again with newer records, and a third time when tombstones and markers may be
    removed: each log is smaller and equivalent.
    """
    with simulation(seed) as sim:

        async def exercise() -> list[int]:
            keyed = await written(sim, seed)
            before = observed(keyed.log)
            sizes = [keyed.log.size_bytes]
            first = await keyed.clean()
            assert observed(keyed.log) == before
            sizes.append(keyed.log.size_bytes)
            draw = Random(seed + 1000)
            for producer_id in (10, 11, 12):
                keyed.marker(producer_id, commits=producer_id == 11)
            keyed.write_workload(draw, 60)
            await keyed.settle()
            longer = observed(keyed.log)
            second = await keyed.clean(checkpoint=first.next_dirty_offset)
            assert observed(keyed.log) == longer
            later = keyed.now_ms + 10_000
            third = await keyed.clean(checkpoint=second.next_dirty_offset, now_ms=later)
            sizes.append(keyed.log.size_bytes)
            assert (
                observed(keyed.log) == longer
                and third.counts.kept_records <= second.counts.kept_records
            )
            again = await opened(sim.world_of("a"), 0)
            assert observed(again.log) == longer
            assert [each.size_bytes for each in again.log.segments] == [
                each.size_bytes for each in keyed.log.segments
            ]
            assert again.log.base_offsets == keyed.log.base_offsets
            return sizes

        whole, once, _ = run(sim, exercise())
        assert once < whole
        assert not [name for name in names(sim) if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_every_offset_is_found_in_the_cleaned_log() -> None:
    """A read at a removed offset returns the next batch; a search by timestamp finds what a scan
    finds.
    """
    with simulation(3) as sim:

        async def exercise() -> int:
            keyed = await written(sim, 3, 200)
            await keyed.clean()
            log, batches = keyed.log, list[RecordBatch]()
            log.replay(batches.append)
            for offset in range(log.log_end_offset):
                found = RecordBatch(log.read(offset, 1, log.log_end_offset))
                assert found.base_offset == next(
                    each.base_offset for each in batches if each.last_offset >= offset
                ), f"offset {offset}"
            for batch in batches:
                for record in batch.records():
                    found_record = searched(
                        log.find_timestamp(record.timestamp, log.log_end_offset)
                    )
                    assert found_record is None or found_record.timestamp >= record.timestamp
            return len(batches)

        assert run(sim, exercise()) > 20


def test_full_offset_map_ends_the_cleaning_early() -> None:
    """The next cleaning continues from there: together they leave what one with a large map would
    leave.
    """
    with simulation(5) as sim, simulation(5) as other:

        async def exercise() -> tuple[int, Observed, Observed]:
            keyed = await written(sim, 5)
            before, checkpoint, passes = observed(keyed.log), None, 0
            while True:
                done = await keyed.clean(checkpoint=checkpoint, offsets=OffsetMap(160 * 5, 1.0))
                assert observed(keyed.log) == before
                passes += 1
                if done.next_dirty_offset == keyed.dirty(checkpoint).end_offset:
                    return passes, before, observed(keyed.log)
                assert checkpoint is None or done.next_dirty_offset > checkpoint
                checkpoint = done.next_dirty_offset

        async def at_once() -> Observed:
            keyed = await written(other, 5)
            await keyed.clean()
            return observed(keyed.log)

        passes, before, after = run(sim, exercise())
        assert passes > 3 and before == after == run(other, at_once())


def test_cancelled_cleaning_leaves_nothing_behind() -> None:
    """Wherever it is when another operation needs the log."""
    with simulation(6) as sim:

        async def exercise() -> int:
            keyed = await written(sim, 6)
            before = observed(keyed.log)
            for step in range(10_000):
                left = step

                def call_off() -> None:
                    nonlocal left
                    if left == 0:
                        raise CleaningCancelled
                    left -= 1

                try:
                    await keyed.clean(pace=Unhurried(call_off))
                except CleaningCancelled:
                    assert not [name for name in names(sim) if name.endswith((".cleaned", ".swap"))]
                    assert observed(keyed.log) == before
                else:
                    return step
            return 0

        assert run(sim, exercise()) > 50


def test_corrupted_batch_is_not_cleaned() -> None:
    """No segment is swapped: the records before the corruption may be the only ones left."""
    with simulation(7) as sim:

        async def exercise() -> str:
            keyed = await written(sim, 7)
            name = next(path for path in names(sim) if path.endswith(".log"))
            inode = sim.host("a").durable.names[f"t-0/{name}"]
            inode.cache[45] ^= 1  # in the first header, where the checksum covers it
            before = {path: len(sim.world_of("a").disk.read(f"t-0/{path}")) for path in names(sim)}
            with pytest.raises(UncleanableLog, match="checksum") as trouble:
                await keyed.clean()
            assert {
                path: len(sim.world_of("a").disk.read(f"t-0/{path}")) for path in names(sim)
            } == before
            return str(trouble.value)

        assert "segment 0" in run(sim, exercise())


class Crash:
    """Ends the process at its nth disk operation."""

    def __init__(self, sim: Simulation, at: int, *, power_loss: bool) -> None:
        self.seen = 0
        self._sim = sim
        self._at = at
        self._power_loss = power_loss

    def watch(self, operation: str, kind: object, moment: str) -> None:
        self.seen += 1
        if self.seen == self._at:
            self._sim.kill("a", power_loss=self._power_loss)


def crashed(seed: int, at: int, *, power_loss: bool) -> bool | None:
    """Crash at the nth step of a cleaning and inspect the result; return whether a swap was in
    progress, None if it ended before that step.
    """
    with simulation(seed * 10_000 + at) as sim:
        crash = Crash(sim, at, power_loss=power_loss)

        async def begin() -> tuple[KeyedLog, Observed]:
            keyed = await written(sim, seed, 60)
            return keyed, observed(keyed.log)

        keyed, before = run(sim, begin())
        sim.host("a").durable.watch = crash.watch
        cleaning = sim.spawn("a", keyed.clean())
        sim.run_until(lambda: cleaning.done() or not sim.host("a").is_alive)
        if sim.host("a").is_alive:
            assert crash.seen < at
            return None
        sim.restart("a")
        sim.host("a").durable.watch = None
        was_under_way = any(name.endswith((".cleaned", ".swap")) for name in names(sim))

        async def look() -> Observed:
            return observed((await opened(sim.world_of("a"), before.end_offset)).log)

        assert run(sim, look()) == before, f"seed {seed}, crash {at}"
        assert not [name for name in names(sim) if name.endswith((".cleaned", ".swap", ".deleted"))]
        return was_under_way


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("power_loss", [False, True])
def test_crash_at_any_point_loses_nothing(seed: int, power_loss: bool) -> None:
    """The log found at the next start is valid, complete, and without leftovers of the cleaning."""
    outcomes: list[bool] = []
    while (outcome := crashed(seed, len(outcomes) + 1, power_loss=power_loss)) is not None:
        outcomes.append(outcome)
    assert len(outcomes) > 30 and sum(outcomes) > 10
