"""The world of one incarnation of a simulated node."""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from random import Random
from typing import TypeVar

from kraftsim.events.event import Event, LineEncoder, event_file_name
from kraftsim.world.interface import Clock, Disk, ObjectStore, World, YieldPoint, stream
from kraftsim.world.simulated.clock import NANOSECONDS_PER_MILLISECOND, HostClock, TrueTime
from kraftsim.world.simulated.disk import SimulatedDisk
from kraftsim.world.simulated.host import Process
from kraftsim.world.simulated.objects import SharedObjects, SimulatedObjects
from kraftsim.world.subdirectory import RelocatedWorld, Subdirectory

# --------------------------------------------------------------------------------------------------
# The event logs of a simulation: all nodes and incarnations in one object, with events encoded only
# on demand
#
# Events that a node emitted before it was killed are kept, flushed or not: complete information for
# invariants is worth more than the realism of a lost buffer. Events of a dead process are dropped.

Observer = Callable[[str, int, int, int, Event], object]
"""Called with (node, incarnation, n, t_ns, event) for every event."""


class EventLog:
    """The events of one node and incarnation."""

    __slots__ = ("_book", "_clock", "_true_time", "entries", "incarnation", "is_open", "node")

    def __init__(self, book: "EventBook", clock: HostClock, node: str, incarnation: int) -> None:
        self.node = node
        self.incarnation = incarnation
        self.is_open = True
        self.entries: list[tuple[int, int, Event]] = []
        """(t_ns, wall_ms, event); the index is `n`."""
        self._book = book
        self._true_time = book.true_time
        self._clock = clock

    def emit(self, event: Event) -> None:
        """Add an event, and call its observers."""
        if not self.is_open:
            return
        t_ns = self._true_time.now_ns
        lead_ns = self._clock.wall_lead_ns
        wall_ms = (
            self._clock.stamp_ms()
            if lead_ns is None
            else (t_ns + lead_ns) // NANOSECONDS_PER_MILLISECOND
        )
        entries = self.entries
        n = len(entries)
        entries.append((t_ns, wall_ms, event))
        for observer in self._book.observers[type(event)]:
            observer(self.node, self.incarnation, n, t_ns, event)

    def content(self) -> bytes:
        """Return the log as JSON lines."""
        return LineEncoder(self._book.run, self.node, self.incarnation).lines(self.entries)


class EventBook:
    """All event logs of a run.

    Observers must not raise: they record findings, and stop the simulation if necessary.
    """

    def __init__(self, run: str, true_time: TrueTime, harness_clock: HostClock) -> None:
        self.run = run
        self.true_time = true_time
        self.observers = _Observers()
        self._logs: dict[tuple[str, int], EventLog] = {}
        self._harness_clock = harness_clock

    def observe(self, observer: Observer, kinds: Collection[type[Event]] | None = None) -> None:
        """Call an observer for every event from now on, or for those of some kinds; observers are
        called in order of registration.
        """
        self.observers.add(observer, None if kinds is None else frozenset(kinds))

    def log(self, node: str, incarnation: int, clock: HostClock | None = None) -> EventLog:
        """Return the log of a node and incarnation, opening it if it is new.

        Without a clock of its own it uses the harness's.
        """
        found = self._logs.get((node, incarnation))
        if found is None:
            found = self._logs[(node, incarnation)] = EventLog(
                self, clock or self._harness_clock, node, incarnation
            )
        return found

    def logs(self) -> list[EventLog]:
        """Return all logs, sorted by node and incarnation."""
        return [self._logs[key] for key in sorted(self._logs)]

    def content(self) -> bytes:
        """Return all lines of all logs: equal seeds give equal bytes."""
        return b"".join([log.content() for log in self.logs()])

    def forget(self) -> None:
        """Drop all events and observers at once: the collector would have to visit each event and
        what observers have kept.
        """
        for log in self._logs.values():
            log.entries.clear()
        self.observers = _Observers()

    def digest(self) -> str:
        """Return a SHA-256 of the content."""
        return hashlib.sha256(self.content()).hexdigest()

    def write(self, events_dir: Path) -> None:
        """Write one file per log, as nodes on real machines do."""
        events_dir.mkdir(parents=True, exist_ok=True)
        for log in self.logs():
            (events_dir / event_file_name(log.node, log.incarnation)).write_bytes(log.content())


class _Observers(dict[type[Event], tuple[Observer, ...]]):
    """From the kind of an event to its observers, in order of registration; computed at the first
    such event.
    """

    def __init__(self) -> None:
        super().__init__()
        self._observers: list[tuple[Observer, frozenset[type[Event]] | None]] = []

    def __missing__(self, kind: type[Event]) -> tuple[Observer, ...]:
        found = self[kind] = tuple(
            observer for observer, kinds in self._observers if kinds is None or kind in kinds
        )
        return found

    def add(self, observer: Observer, kinds: frozenset[type[Event]] | None) -> None:
        self._observers.append((observer, kinds))
        self.clear()


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
        on_store_call: Callable[[], object],
    ) -> None:
        self.run = run
        self.node = process.host.name
        self.incarnation = process.incarnation
        self.clock: Clock = process.host.clock
        self.disk: Disk = disk
        self.emit = log.emit
        """Emits an event to the event log."""
        self._process = process
        self._stores = stores
        self._on_store_call = on_store_call
        self._preemptions = process.host.preemptions
        self._places: dict[YieldPoint, Random | None] = {}
        """The streams of the preemption points that were used; None for inactive ones."""

    def random(self, purpose: str) -> Random:
        """Return the stream of a purpose."""
        return self._process.random(purpose)

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
        return SimulatedObjects(
            shared, self._process.random(f"objects/{location}"), self._on_store_call
        )

    async def aside(self, work: Callable[[], T]) -> T:
        """Return the result of a function, after one turn of the loop: there are no threads
        here.
        """
        await asyncio.sleep(0)
        return work()

    async def yield_point(self, place: YieldPoint) -> None:
        """Yield sometimes: for a few turns of this process, for long enough that answers of peers
        arrive, or for as long as a fault wants.
        """
        if self._preemptions.is_armed and (scheduled := self._preemptions.at(place)) is not None:
            await scheduled
            return
        draw = self._places[place] if place in self._places else self._open(place)
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

    def hand_over(self, place: YieldPoint, work: Callable[[], object]) -> None:
        """Do the work at once, or as late as a fault wants.

        Nothing else delays it: this place is on the path of every request, and draws would cost as
        much as the work.
        """
        if self._preemptions.is_armed and (scheduled := self._preemptions.at(place)) is not None:
            scheduled.add_done_callback(lambda _: work())
        else:
            work()

    def _open(self, place: YieldPoint) -> Random | None:
        """Return the stream of a preemption point that is used for the first time; None if it is
        inactive in this run.
        """
        is_active = stream(self._process.host.seed, "breathing", 1, place).random() < ACTIVE_SHARE
        draw = self._places[place] = self._process.random(f"breathe/{place}") if is_active else None
        return draw
