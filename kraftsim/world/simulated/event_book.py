"""The event logs of a simulation: all nodes and incarnations in one object, with events encoded
only on demand.

Events that a node emitted before it was killed are kept, flushed or not: complete information for
invariants is worth more than the realism of a lost buffer. Events of a dead process are dropped.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from kraftsim.events.event import Event, LineEncoder, event_file_name
from kraftsim.world.simulated.clock import HostClock, TrueTime

Observer = Callable[[str, int, int, int, Event], object]
"""Called with (node, incarnation, n, t_ns, event) for every event."""


class EventLog:
    """The events of one node and incarnation."""

    __slots__ = ("_book", "_clock", "entries", "incarnation", "is_open", "node")

    def __init__(self, book: "EventBook", clock: HostClock, node: str, incarnation: int) -> None:
        self.node = node
        self.incarnation = incarnation
        self.is_open = True
        self.entries: list[tuple[int, int, Event]] = []
        """(t_ns, wall_ms, event); the index is `n`."""
        self._book = book
        self._clock = clock

    def emit(self, event: Event) -> None:
        """Add an event, and call its observers."""
        if not self.is_open:
            return
        book = self._book
        t_ns = book.true_time.now_ns
        n = len(self.entries)
        self.entries.append((t_ns, self._clock.stamp_ms(), event))
        for observer in book.observers[type(event)]:
            observer(self.node, self.incarnation, n, t_ns, event)

    def lines(self) -> Iterator[bytes]:
        """Yield the log as JSON lines."""
        encoder = LineEncoder(self._book.run, self.node, self.incarnation)
        for n, (t_ns, wall_ms, event) in enumerate(self.entries):
            yield encoder.line(n, t_ns, wall_ms, event)


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
        return b"".join(line for log in self.logs() for line in log.lines())

    def forget(self) -> None:
        """Drop all events at once: the collector would have to visit each of them."""
        for log in self._logs.values():
            log.entries.clear()

    def digest(self) -> str:
        """Return a SHA-256 of the content."""
        return hashlib.sha256(self.content()).hexdigest()

    def write(self, events_dir: Path) -> None:
        """Write one file per log, as nodes on real machines do."""
        events_dir.mkdir(parents=True, exist_ok=True)
        for log in self.logs():
            (events_dir / event_file_name(log.node, log.incarnation)).write_bytes(
                b"".join(log.lines())
            )


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
