"""The real disk: positions, confinement, atomic replacement, group commit."""

import asyncio
import errno
import os
import threading

import pytest

from kraftsim.world.real.disk import RealDisk
from kraftsim.world.real.file import CHUNKS_MAX
from tests.world.conftest import OpenWorld


def test_append_returns_the_position_of_its_first_byte(open_world: OpenWorld) -> None:
    disk = open_world().disk
    file = disk.open("topic-0/00000000000000000000.log")
    assert file.append([b"abc", bytearray(b"de"), memoryview(b"fgh")]) == 0
    assert file.append([b"ij"]) == 8
    assert file.append([]) == 10
    many = [b"%d" % (i % 10) for i in range(2 * CHUNKS_MAX + 3)]
    assert file.append(many) == 10
    assert file.size_bytes == 10 + len(many)
    assert file.read(7, 4) == b"hij0"
    assert file.read(file.size_bytes - 2, 100) == b"".join(many)[-2:]
    assert file.read(file.size_bytes, 1) == b""
    file.truncate(4)
    assert file.append([b"X"]) == 4
    assert disk.read("topic-0/00000000000000000000.log") == b"abcdX"
    assert disk.list("") == ["topic-0"] and disk.list("absent") == []


def test_partial_kernel_write_is_completed(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writev may stop early, for example at a signal."""
    file = open_world().disk.open("a")
    whole = os.writev
    monkeypatch.setattr(
        os, "writev", lambda descriptor, chunks: whole(descriptor, [b"".join(chunks)[:5]])
    )
    assert file.append([b"hello ", b"world"]) == 0
    assert file.read(0, 100) == b"hello world"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/", "", "a\0b"]
)
def test_paths_stay_inside_the_data_directory(open_world: OpenWorld, path: str) -> None:
    disk = open_world().disk
    with pytest.raises(ValueError):
        disk.open(path)


async def test_replace_is_atomic_and_ordered(open_world: OpenWorld) -> None:
    disk = open_world().disk
    await asyncio.gather(*(disk.replace("meta/quorum-state", b"%d" % i * 100) for i in range(10)))
    assert disk.read("meta/quorum-state") == b"9" * 100
    assert disk.list("meta") == ["quorum-state"]
    disk.remove("meta/quorum-state")
    await disk.flush_directory("meta")
    assert not disk.exists("meta/quorum-state")
    with pytest.raises(FileNotFoundError):
        disk.read("meta/quorum-state")


async def test_waiting_flushes_share_one_sync(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one fdatasync runs, all later callers are served by the next one: it starts after their
    writes.
    """
    file = open_world().disk.open("a")
    gate, syncs = threading.Event(), []

    def slow_sync(descriptor: int) -> None:
        syncs.append(os.fstat(descriptor).st_size)
        gate.wait(5)

    monkeypatch.setattr(os, "fdatasync", slow_sync)
    flushes = []
    for _ in range(10):
        file.append([b"x"])
        flushes.append(asyncio.ensure_future(file.flush()))
        await asyncio.sleep(0)
    flushes[5].cancel()
    gate.set()
    results = await asyncio.gather(*flushes, return_exceptions=True)
    assert len(syncs) == 2 and syncs[1] == 10
    assert [type(result).__name__ for result in results] == ["NoneType"] * 5 + [
        "CancelledError"
    ] + ["NoneType"] * 4


async def test_failed_flush_reaches_all_callers_that_share_it(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = open_world().disk.open("a")

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "fdatasync", broken)
    results = await asyncio.gather(*(file.flush() for _ in range(3)), return_exceptions=True)
    assert [getattr(result, "errno", None) for result in results] == [errno.EIO] * 3


async def test_waiting_flush_fails_when_the_disk_is_closed(open_world: OpenWorld) -> None:
    """A node that stops during a flush does not start the next one; that is not an error."""
    mistakes: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: mistakes.append(context))
    disk = open_world().disk
    file = disk.open("a")
    flushes = [asyncio.ensure_future(file.flush()) for _ in range(2)]
    await asyncio.sleep(0)
    assert isinstance(disk, RealDisk)
    disk.close()
    async with asyncio.timeout(5):
        results = await asyncio.gather(*flushes, return_exceptions=True)
    assert [getattr(result, "errno", None) for result in results] == [
        None,
        errno.EBADF,
    ] and not mistakes


async def test_file_may_be_closed_while_a_flush_runs(open_world: OpenWorld) -> None:
    file = open_world().disk.open("a")
    file.append([b"x"])
    flush = asyncio.ensure_future(file.flush())
    await asyncio.sleep(0)
    file.close()
    await flush
    with pytest.raises(OSError):
        file.read(0, 1)


def test_random_streams_are_keyed(open_world: OpenWorld) -> None:
    first, second = open_world(1), open_world(2)
    draws = [first.random("a").random(), first.random("b").random(), second.random("a").random()]
    assert len(set(draws)) == 3
    assert first.random("a").random() not in draws, "a stream continues at its position"


async def test_renamed_directory_keeps_its_contents(open_world: OpenWorld) -> None:
    """Also in place of an empty one; its files are found by their new paths."""
    disk = open_world().disk
    disk.open("t-0.x-future/a").append([b"abc"])
    disk.open("t-0/gone").close()
    disk.remove("t-0/gone")
    disk.move_directory("t-0.x-future", "t-0")
    await disk.flush_directory("")
    assert (
        disk.read("t-0/a") == b"abc"
        and disk.list("t-0.x-future") == []
        and disk.list("t-0") == ["a"]
    )


async def test_each_disk_wait_is_reported_with_its_duration(open_world: OpenWorld) -> None:
    world = open_world()
    reported: list[tuple[str, str, float]] = []
    world.watch({}, lambda *flush: reported.append(flush))
    file = world.disk.open("a/log")
    file.append([b"x"])
    await file.flush()
    await world.disk.replace("a/state", b"1")
    await world.disk.rename("a/state", "a/other")
    await world.disk.flush_directory("a")
    assert [(path, operation) for path, operation, _ in reported] == [
        ("a/log", "flush"),
        ("a/state", "replace"),
        ("a/state", "rename"),
        ("a", "flush of the directory"),
    ]
    assert all(0 <= seconds < 60 for *_, seconds in reported)
