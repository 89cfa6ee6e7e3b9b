"""The simulated disk: what survives a kill and a power loss, and how disks fail."""

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterator
from typing import TypeVar

import pytest

from kraftsim.world.interface import Disk, File
from kraftsim.world.simulated import FileClass, Simulation
from kraftsim.world.simulated.disk_faults import FlushRefusal, Full, Slowness, file_class

T = TypeVar("T")
LOG = "t-0/00000000000000000000.log"


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(5) as simulation:
        simulation.add_host("a")
        yield simulation


def disk_of(sim: Simulation) -> Disk:
    return sim.world_of("a").disk


def run(sim: Simulation, coroutine: Coroutine[object, object, T]) -> T:
    return sim.run_until(sim.spawn("a", coroutine))


def reboot(sim: Simulation, *, power_loss: bool) -> int:
    lost = sim.kill("a", power_loss=power_loss)
    sim.restart("a")
    return lost


def test_file_behaves_as_on_a_real_disk(sim: Simulation) -> None:
    disk = disk_of(sim)
    file = disk.open(LOG)
    assert file.append([b"abc", memoryview(b"de")]) == 0 and file.append([b"fg"]) == 5
    assert file.read(1, 3) == b"bcd" and file.read(5, 100) == b"fg" and file.size_bytes == 7
    file.truncate(3)
    assert disk.read(LOG) == b"abc" and disk.exists(LOG)
    assert (
        disk.list("") == ["t-0"]
        and disk.list("t-0") == ["00000000000000000000.log"]
        and disk.list("x") == []
    )
    assert disk.open(LOG).size_bytes == 3
    disk.remove(LOG)
    for missing in (disk.read, disk.remove):
        with pytest.raises(FileNotFoundError):
            missing(LOG)
    with pytest.raises(ValueError):
        disk.open("../x")


@pytest.mark.parametrize(
    "use",
    [
        lambda file: file.append([b"x"]),
        lambda file: file.read(0, 1),
        lambda file: file.slice(0, 1),
        lambda file: file.size_bytes,
        lambda file: file.truncate(0),
        lambda file: file.flush().send(None),
    ],
    ids=["append", "read", "slice", "size", "truncate", "flush"],
)
def test_closed_file_cannot_be_used(sim: Simulation, use: Callable[[File], object]) -> None:
    """On a real disk its descriptor is gone.

    It is always a bug in kraftsim, not a broken disk, so it ends the run.
    """
    file = disk_of(sim).open(LOG)
    file.append([b"abc"])
    file.close()
    with pytest.raises(AssertionError, match="is closed"):
        use(file)
    assert disk_of(sim).read(LOG) == b"abc"


def test_file_closed_during_a_flush_is_still_flushed(sim: Simulation) -> None:
    async def work() -> None:
        file = disk_of(sim).open(LOG)
        file.append([b"abc"])
        flush = asyncio.ensure_future(file.flush())
        await asyncio.sleep(0)
        file.close()
        await flush
        await disk_of(sim).flush_directory("t-0")

    run(sim, work())
    assert reboot(sim, power_loss=True) == 0
    assert disk_of(sim).read(LOG) == b"abc"


def test_kill_keeps_written_data_flushed_or_not(sim: Simulation) -> None:
    disk_of(sim).open(LOG).append([b"abc"])
    assert reboot(sim, power_loss=False) == 0
    assert disk_of(sim).read(LOG) == b"abc"


def test_power_loss_keeps_flushed_data_and_names(sim: Simulation) -> None:
    async def write() -> None:
        file = disk_of(sim).open(LOG)
        file.append([b"abc"])
        await file.flush()
        await disk_of(sim).flush_directory("t-0")

    run(sim, write())
    assert sim.now_ns > 0, "a flush takes time"
    assert reboot(sim, power_loss=True) == 0
    assert disk_of(sim).read(LOG) == b"abc"


def test_outcomes_of_unflushed_bytes_and_names() -> None:
    """A power loss removes all unflushed data, leaves a torn end or some sectors, or removes
    nothing: each outcome occurs, and never a byte that was not written.
    """
    fates, names = set(), set()
    written = bytes(range(1, 251)) * 10
    for seed in range(60):
        with Simulation(seed) as sim:
            sim.add_host("a")

            async def write(disk: Disk) -> None:
                file = disk.open("named")
                file.append([b"flushed"])
                await file.flush()
                await disk.flush_directory("")
                file.append([written])
                new = disk.open("unnamed")
                new.append([b"x"])
                await new.flush()

            run(sim, write(disk_of(sim)))
            lost = reboot(sim, power_loss=True)
            content = disk_of(sim).read("named")
            names.add(disk_of(sim).exists("unnamed"))
            assert content.startswith(b"flushed")
            kept = content[7:]
            assert len(kept) <= len(written) and all(
                byte in (0, written[i]) for i, byte in enumerate(kept)
            )
            survivors = sum(1 for i, byte in enumerate(kept) if byte == written[i])
            assert lost == len(written) - survivors + (not disk_of(sim).exists("unnamed"))
            fates.add(
                "all lost"
                if not kept
                else "all kept"
                if kept == written
                else "prefix"
                if written.startswith(kept)
                else "sectors"
            )
    assert fates == {"all lost", "all kept", "prefix", "sectors"}
    assert names == {True, False}


def test_unflushed_truncation_may_be_undone() -> None:
    sizes = set()
    for seed in range(20):
        with Simulation(seed) as sim:
            sim.add_host("a")

            async def write(disk: Disk) -> None:
                file = disk.open("f")
                file.append([b"0123456789"])
                await file.flush()
                await disk.flush_directory("")
                file.truncate(4)
                assert file.read(0, 10) == b"0123"

            run(sim, write(disk_of(sim)))
            reboot(sim, power_loss=True)
            sizes.add(disk_of(sim).read("f"))
    assert sizes == {b"0123456789", b"0123"}


def test_replace_leaves_the_old_or_the_new_file_at_any_time() -> None:
    """The crash comes after k nanoseconds, for many k; at the end the new file is certain to be
    there.
    """
    for power_loss in (True, False):
        seen = []
        for step in range(40):
            with Simulation(step) as sim:
                sim.add_host("a")
                run(sim, disk_of(sim).replace("meta/quorum-state", b"old"))
                sim.spawn("a", disk_of(sim).replace("meta/quorum-state", b"new one"))
                sim.run_for(step * 100e-6)
                reboot(sim, power_loss=power_loss)
                seen.append(disk_of(sim).read("meta/quorum-state"))
        assert set(seen) == {b"old", b"new one"}
        assert seen[0] == b"old" and seen[-1] == b"new one"


def test_failed_flush_discards_dirty_data(sim: Simulation) -> None:
    """A second flush succeeds and makes nothing durable (fsyncgate)."""
    faults = sim.host("a").durable.faults
    effects: list[str] = []

    async def write() -> None:
        file = disk_of(sim).open(LOG)
        file.append([b"0123456789"])
        await file.flush()
        await disk_of(sim).flush_directory("t-0")
        faults.refusals.append(FlushRefusal(record_effect=effects.append))
        file.append([b"doomed"])
        with pytest.raises(OSError) as refused:
            await file.flush()
        assert refused.value.errno == errno.EIO
        file.append([b"fine"])
        await file.flush()
        assert file.read(0, 100) == b"0123456789doomedfine"

    run(sim, write())
    assert effects
    assert reboot(sim, power_loss=True) == 6
    assert disk_of(sim).read(LOG) == b"0123456789" + bytes(6) + b"fine"


def test_full_disk_writes_a_part_and_fails(sim: Simulation) -> None:
    file = disk_of(sim).open(LOG)
    full = Full(record_effect=lambda effect: None)
    sim.host("a").durable.faults.full.append(full)
    with pytest.raises(OSError) as refused:
        file.append([b"0123456789"])
    assert refused.value.errno == errno.ENOSPC
    assert b"0123456789".startswith(file.read(0, 100))
    sim.host("a").durable.faults.full.remove(full)
    assert file.append([b"x"]) == file.size_bytes - 1


def test_slow_disk_is_slow(sim: Simulation) -> None:
    sim.host("a").durable.faults.slow.append(
        Slowness(factor=100, record_effect=lambda effect: None)
    )
    run(sim, disk_of(sim).open(LOG).flush())
    assert sim.now_ns >= 50_000_000


def test_cancelled_flush_still_happens(sim: Simulation) -> None:
    async def write() -> None:
        file = disk_of(sim).open(LOG)
        await disk_of(sim).flush_directory("t-0")
        file.append([b"abc"])
        task = asyncio.ensure_future(file.flush())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(1)

    run(sim, write())
    assert sim.host("a").durable.unflushed_bytes == 0


def test_two_flushes_of_one_file_cover_the_writes_before_each(sim: Simulation) -> None:
    async def write() -> None:
        file = disk_of(sim).open(LOG)
        inode = sim.host("a").durable.names[LOG]
        file.append([b"a"])
        first = asyncio.ensure_future(file.flush())
        await asyncio.sleep(0)
        file.append([b"b"])
        await first
        assert inode.flushed_bytes == 1
        second = asyncio.ensure_future(file.flush())
        await asyncio.sleep(0)
        file.truncate(0)
        file.append([b"xyz"])
        await second
        assert inode.flushed_bytes == 0, (
            "data written after a truncation is not covered by an earlier flush"
        )

    run(sim, write())


@pytest.mark.parametrize(
    "path, kind",
    [
        ("__cluster_metadata-0/00000000000000000000.log", FileClass.METADATA_LOG),
        ("__cluster_metadata-0/quorum-state", FileClass.QUORUM_STATE),
        ("__cluster_metadata-0/00000000000000000012-0000000001.checkpoint", FileClass.CHECKPOINT),
        ("orders-3/00000000000000000000.log", FileClass.PARTITION_LOG),
        ("__cluster_metadata-0/leader-epoch-checkpoint", FileClass.CHECKPOINT),
        ("__cluster_metadata-0/00000000000000000000.index", FileClass.OTHER),
        ("orders-3/leader-epoch-checkpoint", FileClass.LEADER_EPOCHS),
        ("orders-3/00000000000000000010.snapshot", FileClass.PRODUCER_SNAPSHOT),
        ("orders-3/00000000000000000000.index", FileClass.OFFSET_INDEX),
        ("orders-3/00000000000000000000.timeindex", FileClass.TIME_INDEX),
        ("orders-3/00000000000000000000.txnindex", FileClass.TRANSACTION_INDEX),
        ("orders-3/00000000000000000000.index.cleaned", FileClass.OFFSET_INDEX),
        ("orders-3/partition.metadata", FileClass.OTHER),
        ("recovery-point-offset-checkpoint", FileClass.RECOVERY_POINTS),
        ("replication-offset-checkpoint", FileClass.HIGH_WATERMARKS),
        ("log-start-offset-checkpoint", FileClass.LOG_STARTS),
        ("cleaner-offset-checkpoint", FileClass.CLEANER_OFFSETS),
        ("meta.properties", FileClass.CHECKPOINT),
        ("version-2/log.1f", FileClass.ZOOKEEPER_LOG),
        ("version-2/snapshot.1f", FileClass.OTHER),
        ("log.1f", FileClass.OTHER),
    ],
)
def test_files_are_classified_by_name(path: str, kind: FileClass) -> None:
    assert file_class(path) is kind


def test_renamed_directory_has_one_of_the_names_after_a_power_loss() -> None:
    """Never a part of it under each; once the root is flushed it has the new one for certain."""
    found = set()
    for seed in range(30):
        for flushes in (False, True):
            with Simulation(seed) as sim:
                sim.add_host("a")

                async def write(disk: Disk, flushes: bool) -> None:
                    for name in ("x/one", "x/two"):
                        file = disk.open(name)
                        file.append([b"abc"])
                        await file.flush()
                    await disk.flush_directory("x")
                    disk.move_directory("x", "y")
                    if flushes:
                        await disk.flush_directory("")

                run(sim, write(disk_of(sim), flushes))
                assert (
                    disk_of(sim).list("y") == ["one", "two"]
                    and disk_of(sim).read("y/one") == b"abc"
                )
                reboot(sim, power_loss=True)
                left = disk_of(sim).list("x"), disk_of(sim).list("y")
                assert left in ((["one", "two"], []), ([], ["one", "two"]))
                assert left[1] or not flushes
                found.add(bool(left[1]))
    assert found == {True, False}
