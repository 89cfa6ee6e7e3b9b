"""Worlds and batches for the node tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

import pytest

from kraftsim.events.event import Event
from kraftsim.world.real.world import RealWorld, real_world
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record

MakeWorld = Callable[[], "WatchedWorld"]
E = TypeVar("E", bound=Event)


class WatchedWorld(RealWorld):
    """A real world that keeps its events."""

    emitted: list[Event]

    def emit(self, event: Event) -> None:
        """Keep the event, then emit it."""
        self.__dict__.setdefault("emitted", []).append(event)
        super().emit(event)

    def emitted_of(self, kind: type[E]) -> list[E]:
        """Return the events of a kind."""
        return [event for event in self.__dict__.get("emitted", []) if type(event) is kind]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    """Return a function that opens the same data directory again, as the next incarnation of the
    node.
    """
    worlds: list[WatchedWorld] = []

    def make() -> WatchedWorld:
        world = real_world(
            run="test",
            node="broker-1",
            incarnation=len(worlds) + 1,
            data_dir=tmp_path / "data",
            events_dir=tmp_path / "events",
            seed=1,
        )
        world.__class__ = WatchedWorld
        assert isinstance(world, WatchedWorld)
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.close()


class BatchOptions(TypedDict, total=False):
    """Fields of a batch header, as in `build_batch`."""

    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool


def data_batch(
    count: int = 1,
    *,
    value: bytes = b"value",
    timestamp: int = 1_700_000_000_000,
    first: int = 0,
    **options: Unpack[BatchOptions],
) -> RecordBatch:
    """Build a batch as a client does, base offset 0; timestamps increase by one millisecond."""
    records = [
        Record(timestamp=timestamp + index, key=f"key-{first + index:06d}".encode(), value=value)
        for index in range(count)
    ]
    return RecordBatch(build_batch(records, **options))
