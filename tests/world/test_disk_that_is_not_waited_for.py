"""A real disk without `is_durable`: what is written is there at once, and nothing waits for the
disk.
"""

import errno
import threading
from pathlib import Path

import pytest

from kraftsim.world.real.disk import RealDisk
from kraftsim.world.real.file import RealSlice


async def test_nothing_is_flushed_and_no_thread_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(f"os.{name}", lambda descriptor: pytest.fail("it waits for the disk"))
    before = set(threading.enumerate())
    disk = RealDisk(tmp_path, is_durable=False)
    file = disk.open("logs/one")
    assert file.append([b"hello"]) == 0
    await file.flush()
    kept = file.slice(0, 5)
    file.truncate(2)
    assert isinstance(kept, RealSlice)
    assert kept.read() == b"hello"
    assert disk.read("logs/one") == b"he"
    await disk.replace("state", b"first")
    await disk.replace("state", b"second")
    await disk.rename("state", "other")
    await disk.flush_directory("")
    assert disk.read("other") == b"second"
    assert disk.list("") == ["logs", "other"]
    assert not set(threading.enumerate()) - before
    disk.close()


async def test_a_closed_file_is_an_error_as_on_any_disk(tmp_path: Path) -> None:
    file = RealDisk(tmp_path, is_durable=False).open("one")
    file.close()
    with pytest.raises(OSError, match="closed") as closed:
        await file.flush()
    assert closed.value.errno == errno.EBADF
