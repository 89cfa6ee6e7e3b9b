"""A real world over a temporary directory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from kraftsim.world.real import RealWorld, real_world


class OpenWorld(Protocol):
    """Opens the world of broker-1 for an incarnation."""

    def __call__(self, incarnation: int = 1) -> RealWorld: ...


@pytest.fixture
def open_world(tmp_path: Path) -> Iterator[OpenWorld]:
    """Return a function that opens the world of broker-1 for an incarnation; worlds are closed at
    the end.
    """
    worlds: list[RealWorld] = []

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
