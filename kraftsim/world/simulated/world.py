"""The world of one incarnation of a simulated node."""

import asyncio
from random import Random

from kraftsim.events.event import Event
from kraftsim.world.elsewhere import WorldElsewhere
from kraftsim.world.interface import Clock, Disk, World
from kraftsim.world.simulated.disk import SimulatedDisk
from kraftsim.world.simulated.event_book import EventLog
from kraftsim.world.simulated.host import Process
from kraftsim.world.subdirectory import Subdirectory

PASSES_THROUGH = 0.5
LETS_OTHERS_IN = 0.85
LONGEST_BREATH_SECONDS = 0.005


class SimulatedWorld:
    """Clock, disk, chance and event log of one process; implements `kraftsim.world.interface.World`."""

    def __init__(self, *, run: str, process: Process, disk: SimulatedDisk, log: EventLog) -> None:
        self.run = run
        self.node = process.host.name
        self.incarnation = process.incarnation
        self.clock: Clock = process.host.clock
        self.disk: Disk = disk
        self._process = process
        self._log = log

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

    async def breathe(self, place: str) -> None:
        """Let other tasks in between, sometimes: for a moment, or for long enough that answers of peers arrive."""
        draw = self._process.random(f"breathe/{place}")
        choice = draw.random()
        if choice < PASSES_THROUGH:
            return
        await asyncio.sleep(0 if choice < LETS_OTHERS_IN else draw.random() * LONGEST_BREATH_SECONDS)
