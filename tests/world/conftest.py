"""A real world over a temporary directory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftsim.world.real import RealWorld, real_world


@pytest.fixture
def open_world(tmp_path: Path) -> Iterator[Callable[[int], RealWorld]]:
    """Return a function that opens the world of broker-1 for an incarnation; worlds are closed at
    the end.
    """
    worlds = []

    def open_incarnation(incarnation: int = 1) -> RealWorld:
        world = real_world(
            run="run",
            node="broker-1",
            incarnation=incarnation,
            data_dir=tmp_path / "data",
            events_dir=tmp_path / "events",
            seed=7,
        )
        worlds.append(world)
        return world

    yield open_incarnation
    for world in worlds:
        world.close()
