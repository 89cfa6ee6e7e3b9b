"""The world of a node with another of its directories in place of the data directory, for files
that Kafka can keep apart: `metadata.log.dir`.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar

from kraftsim.events.event import Event
from kraftsim.world.interface import Disk, ObjectStore, World

T = TypeVar("T")


class RelocatedWorld:
    """Implements `kraftsim.world.interface.World`: everything is the node's, except the disk."""

    def __init__(self, world: World, disk: Disk) -> None:
        self.run = world.run
        self.node = world.node
        self.incarnation = world.incarnation
        self.clock = world.clock
        self.disk = disk
        self._world = world

    def random(self, purpose: str) -> Random:
        """Return the stream of a purpose."""
        return self._world.random(purpose)

    def emit(self, event: Event) -> None:
        """Emit an event to the event log."""
        self._world.emit(event)

    def flush_events(self) -> None:
        """Write the buffered events to the operating system."""
        self._world.flush_events()

    async def yield_point(self, place: str) -> None:
        """A named preemption point where Kafka releases a lock."""
        await self._world.yield_point(place)

    async def aside(self, work: Callable[[], T]) -> T:
        """Return the result of a function, without blocking the loop."""
        return await self._world.aside(work)

    def objects(self, location: str, settings: Mapping[str, str]) -> ObjectStore:
        """Return a store of objects."""
        return self._world.objects(location, settings)

    def elsewhere(self, directory: str) -> World:
        """Return the same with another directory."""
        return self._world.elsewhere(directory)
