"""Work in a thread: other work continues meanwhile, and the cyclic garbage collector does not
interrupt it.
"""

import asyncio
import gc
import threading
from pathlib import Path

import pytest

from kraftsim.world.real.world import RealWorld, real_world


@pytest.fixture
def world(tmp_path: Path) -> RealWorld:
    """The world of a node."""
    return real_world(
        run="r",
        node="broker-1",
        incarnation=1,
        data_dir=tmp_path / "data",
        events_dir=tmp_path / "events",
        seed=None,
    )


def test_garbage_collection_is_paused_meanwhile(world: RealWorld) -> None:
    """However many objects are created; afterwards it is on again, also if the work failed."""
    collected: list[str] = []

    def on_collection(phase: str, _: object) -> None:
        collected.append(threading.current_thread().name)

    def make_many() -> int:
        return sum(len([(number,)]) for number in range(200_000)) + len(
            [[number] for number in range(200_000)]
        )

    def fail() -> None:
        raise OSError("no disk")

    async def work() -> None:
        gc.callbacks.append(on_collection)
        try:
            assert await world.aside(make_many) == 400_000
        finally:
            gc.callbacks.remove(on_collection)
        assert gc.isenabled()
        with pytest.raises(OSError, match="no disk"):
            await world.aside(fail)
        assert gc.isenabled()

    asyncio.run(work())
    assert len([name for name in collected if "aside" in name]) <= 2, (
        "one may begin right after the work"
    )
    world.close()


def test_disabled_garbage_collection_stays_disabled(world: RealWorld) -> None:
    """A program that embeds nodes may have disabled it."""
    gc.disable()
    try:
        asyncio.run(world.aside(lambda: None))
        assert not gc.isenabled()
    finally:
        gc.enable()
        world.close()
