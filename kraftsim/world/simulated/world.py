"""The world of one incarnation of a simulated node."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar

from kraftsim.events.event import Event
from kraftsim.world.chance import stream
from kraftsim.world.elsewhere import WorldElsewhere
from kraftsim.world.interface import Clock, Disk, ObjectStore, World
from kraftsim.world.simulated.disk import SimulatedDisk
from kraftsim.world.simulated.event_book import EventLog
from kraftsim.world.simulated.host import Process
from kraftsim.world.simulated.objects import SharedObjects, SimulatedObjects
from kraftsim.world.subdirectory import Subdirectory

T = TypeVar("T")
ALIVE_SHARE = 0.5
"""At so many of the places a run breathes at all; which they are follows from its seed. What comes together in every run hides what comes alone."""
PASSES_THROUGH = 0.5
LETS_OTHERS_IN = 0.85
TURNS_MAX = 4
SHORTEST_BREATH_SECONDS, LONGEST_BREATH_SECONDS = 0.00001, 0.005
"""A longer breath is drawn by its magnitude: from less than a frame takes to more than an answer takes."""


class SimulatedWorld:
    """Clock, disk, chance and event log of one process; implements `kraftsim.world.interface.World`."""

    def __init__(self, *, run: str, process: Process, disk: SimulatedDisk, log: EventLog, stores: dict[str, SharedObjects]) -> None:
        self.run = run
        self.node = process.host.name
        self.incarnation = process.incarnation
        self.clock: Clock = process.host.clock
        self.disk: Disk = disk
        self._process = process
        self._log = log
        self._stores = stores
        self._places: dict[str, Random | None] = {}
        """The streams of the places at which the process has breathed; None where this run does not."""

    def random(self, purpose: str) -> Random:
        """Return the stream of a purpose."""
        return self._process.random(purpose)

    def note(self, event: Event) -> None:
        """Add a fact to the event log."""
        self._log.note(event)

    def flush_events(self) -> None:
        """Do nothing: a simulated fact is kept as soon as it is noted."""

    def elsewhere(self, directory: str) -> World:
        """Return this world with a part of the one disk as its disk: what happens to that happens to both."""
        return WorldElsewhere(self, Subdirectory(self.disk, directory.strip("/")))

    def objects(self, location: str, settings: Mapping[str, str]) -> ObjectStore:
        """Return the one store of this location, as this process reaches it."""
        shared = self._stores.setdefault(location, SharedObjects())
        return SimulatedObjects(shared, self._process.random(f"objects/{location}"))

    async def aside(self, work: Callable[[], T]) -> T:
        """Return what a function returns, after one turn of the loop: there are no threads here."""
        await asyncio.sleep(0)
        return work()

    async def breathe(self, place: str) -> None:
        """Let others in between, sometimes: for a few turns of this process, or for long enough that answers of peers arrive."""
        draw = self._draw_at(place)
        if draw is None:
            return
        choice = draw.random()
        if choice < PASSES_THROUGH:
            return
        if choice < LETS_OTHERS_IN:
            for _ in range(1 + draw.randrange(TURNS_MAX)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(SHORTEST_BREATH_SECONDS * (LONGEST_BREATH_SECONDS / SHORTEST_BREATH_SECONDS) ** draw.random())

    def _draw_at(self, place: str) -> Random | None:
        """Return the stream of a place; None if nobody breathes there in this run."""
        if place not in self._places:
            is_alive = stream(self._process.host.seed, "breathing", 1, place).random() < ALIVE_SHARE
            self._places[place] = self._process.random(f"breathe/{place}") if is_alive else None
        return self._places[place]
