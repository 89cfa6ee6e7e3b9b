"""The world of a node that is a process, or one of several nodes embedded in a process."""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random, SystemRandom
from typing import TypeVar

from kraftsim.events.event import Event
from kraftsim.world.interface import Clock, Disk, ObjectStore, World, YieldPoint, stream
from kraftsim.world.real.disk import RealDisk
from kraftsim.world.real.event_file import EventFile
from kraftsim.world.real.file import ReportFlush
from kraftsim.world.real.objects import RealObjects, open_objects
from kraftsim.world.subdirectory import RelocatedWorld

# --------------------------------------------------------------------------------------------------
# The clocks

NANOSECONDS_PER_MILLISECOND = 1_000_000


class RealClock:
    """The kernel's clocks.

    `started_ns` is the time of the monotonic clock at which the run began; all processes of a
    machine share that clock.
    """

    __slots__ = ("_started_ns",)

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // NANOSECONDS_PER_MILLISECOND

    def monotonic_ms(self) -> int:
        """Return milliseconds of the monotonic clock."""
        return time.monotonic_ns() // NANOSECONDS_PER_MILLISECOND

    def monotonic_ns(self) -> int:
        """Return nanoseconds since the run began."""
        return time.monotonic_ns() - self._started_ns


# --------------------------------------------------------------------------------------------------
# The world of one incarnation

T = TypeVar("T")
Report = Callable[[Event], None]


class RealWorld:
    """Clock, disk, random streams and event log of one node incarnation on this machine."""

    def __init__(
        self,
        *,
        run: str,
        node: str,
        incarnation: int,
        seed: int | None,
        clock: RealClock,
        disk: RealDisk,
        events: EventFile,
    ) -> None:
        self.run = run
        self.node = node
        self.incarnation = incarnation
        self.clock: Clock = clock
        self.disk: Disk = disk
        self._seed = seed
        self._real_disk = disk
        self._others: dict[str, RealDisk] = {}
        self._events = events
        self._streams: dict[str, Random] = {}
        self._stores: dict[str, RealObjects] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._report_flush: ReportFlush | None = None
        self._reports: Mapping[type[Event], Report | None] | None = None

    def random(self, purpose: str) -> Random:
        """Return the stream of a purpose; further calls return the same stream.

        Without a seed it uses the entropy of the operating system: a client that sees ids (of fetch
        sessions, members, topics) or SCRAM nonces cannot predict the next ones. With a seed it can.
        """
        found = self._streams.get(purpose)
        if found is None:
            drawn = (
                SystemRandom()
                if self._seed is None
                else stream(self._seed, self.node, self.incarnation, purpose)
            )
            found = self._streams[purpose] = drawn
        return found

    def emit(self, event: Event) -> None:
        """Emit an event to the event log."""
        self._events.emit(event)
        if self._reports is not None and (report := self._reports[type(event)]) is not None:
            report(event)

    def flush_events(self) -> None:
        """Write the buffered events to the operating system."""
        self._events.flush()

    def watch(
        self, reports: Mapping[type[Event], Report | None], report_slow_disk: ReportFlush
    ) -> None:
        """Call the function that `reports` has for the class of each event, and `report_slow_disk`
        with the duration of each flush.
        """
        self._reports = reports
        self._report_flush = report_slow_disk
        for disk in (self._real_disk, *self._others.values()):
            disk.report_flush = report_slow_disk

    def elsewhere(self, directory: str) -> World:
        """Return this world with another directory as its disk; each call returns the same disk,
        and `close` closes it.
        """
        found = self._others.get(directory)
        if found is None:
            found = self._others[directory] = RealDisk(
                Path(directory), is_durable=self._real_disk.is_durable
            )
            found.report_flush = self._report_flush
        return RelocatedWorld(self, found)

    def objects(self, location: str, settings: Mapping[str, str]) -> ObjectStore:
        """Return an object store; each call returns the same one, and `close` closes it."""
        found = self._stores.get(location)
        if found is None:
            found = self._stores[location] = open_objects(location, settings)
        return found

    async def aside(self, work: Callable[[], T]) -> T:
        """Return the result of a function that runs in a thread.

        There is one such thread, so that one call at a time uses memory.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, f"{self.node}-aside")
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: _without_collections(work)
        )

    async def yield_point(self, place: YieldPoint) -> None:
        """Do nothing: on a real machine other tasks run in between anyway."""

    def hand_over(self, place: YieldPoint, work: Callable[[], object]) -> None:
        """Do the work at once."""
        work()

    def close(self) -> None:
        """Flush the event log, close files and stop threads. The node must have stopped."""
        self._events.close()
        for disk in (self._real_disk, *self._others.values()):
            disk.close()
        for store in self._stores.values():
            store.close()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _without_collections(work: Callable[[], T]) -> T:
    """Run a function with garbage collection disabled.

    A collection blocks every thread while it visits all objects, and allocations trigger
    collections: while a thread converted 150,000 records, clients of the loop waited up to 180 ms,
    without collections up to 50 ms. The collector catches up between two calls.
    """
    if not gc.isenabled():
        return work()
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()


def real_world(
    *,
    run: str,
    node: str,
    incarnation: int,
    data_dir: Path,
    events_dir: Path,
    seed: int | None,
    started_ns: int = 0,
    is_durable: bool = True,
) -> RealWorld:
    """Open the world of one node incarnation.

    Raises FileExistsError if the incarnation has an event file already: see `next_incarnation`.

    Without a `seed` the node draws from the operating system's entropy, which is not repeatable.
    `started_ns` is the time of the machine's monotonic clock at which the run began; with 0 `t_ns`
    is that clock itself, which all processes of the machine share. Without `is_durable` nothing
    waits for the disk.
    """
    return RealWorld(
        run=run,
        node=node,
        incarnation=incarnation,
        seed=seed,
        clock=RealClock(started_ns),
        disk=RealDisk(data_dir, is_durable=is_durable),
        events=EventFile(
            events_dir=events_dir,
            run=run,
            node=node,
            incarnation=incarnation,
            started_ns=started_ns,
        ),
    )
