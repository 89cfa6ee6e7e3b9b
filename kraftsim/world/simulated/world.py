"""The world of one incarnation of a simulated node."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar

from kraftsim.events.event import Event
from kraftsim.world.interface import Clock, Disk, ObjectStore, World
from kraftsim.world.random_streams import stream
from kraftsim.world.simulated.disk import SimulatedDisk
from kraftsim.world.simulated.event_book import EventLog
from kraftsim.world.simulated.host import Process
from kraftsim.world.simulated.objects import SharedObjects, SimulatedObjects
from kraftsim.world.subdirectory import RelocatedWorld, Subdirectory

T = TypeVar("T")
ACTIVE_SHARE = 0.5
"""The share of preemption points that are active in a run, chosen by its seed.

With all of them active in every run, some bugs would stay hidden.
"""
NO_YIELD_SHARE = 0.5
SHORT_YIELD_SHARE = 0.85
TURNS_MAX = 4
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.00001, 0.005
"""A longer pause is drawn by its magnitude: from less than the latency of a frame to more than that
of an answer.
"""


class SimulatedWorld:
    """Clock, disk, random streams and event log of one process; implements
    `kraftsim.world.interface.World`.
    """

    def __init__(
        self,
        *,
        run: str,
        process: Process,
        disk: SimulatedDisk,
        log: EventLog,
        stores: dict[str, SharedObjects],
    ) -> None:
        self.run = run
        self.node = process.host.name
        self.incarnation = process.incarnation
        self.clock: Clock = process.host.clock
        self.disk: Disk = disk
        self._process = process
        self._log = log
        self._stores = stores
        self._places: dict[str, Random | None] = {}
        """The streams of the preemption points that were used; None for inactive ones."""

    def random(self, purpose: str) -> Random:
        """Return the stream of a purpose."""
        return self._process.random(purpose)

    def emit(self, event: Event) -> None:
        """Emit an event to the event log."""
        self._log.emit(event)

    def flush_events(self) -> None:
        """Do nothing: a simulated event is kept as soon as it is emitted."""

    def elsewhere(self, directory: str) -> World:
        """Return this world with a directory of its disk as the disk: faults of that disk affect
        both.
        """
        return RelocatedWorld(self, Subdirectory(self.disk, directory.strip("/")))

    def objects(self, location: str, settings: Mapping[str, str]) -> ObjectStore:
        """Return the shared store of this location, for this process."""
        shared = self._stores.setdefault(location, SharedObjects())
        return SimulatedObjects(shared, self._process.random(f"objects/{location}"))

    async def aside(self, work: Callable[[], T]) -> T:
        """Return the result of a function, after one turn of the loop: there are no threads
        here.
        """
        await asyncio.sleep(0)
        return work()

    async def yield_point(self, place: str) -> None:
        """Yield sometimes: for a few turns of this process, or for long enough that answers of
        peers arrive.
        """
        draw = self._draw_at(place)
        if draw is None:
            return
        choice = draw.random()
        if choice < NO_YIELD_SHARE:
            return
        if choice < SHORT_YIELD_SHARE:
            for _ in range(1 + draw.randrange(TURNS_MAX)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(
                SHORTEST_PAUSE_SECONDS
                * (LONGEST_PAUSE_SECONDS / SHORTEST_PAUSE_SECONDS) ** draw.random()
            )

    def _draw_at(self, place: str) -> Random | None:
        """Return the stream of a preemption point; None if it is inactive in this run."""
        if place not in self._places:
            is_active = (
                stream(self._process.host.seed, "breathing", 1, place).random() < ACTIVE_SHARE
            )
            self._places[place] = self._process.random(f"breathe/{place}") if is_active else None
        return self._places[place]
