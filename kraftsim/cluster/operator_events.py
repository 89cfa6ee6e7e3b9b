"""The event log of the operator of a cluster: the faults that a person or a program injected by a
verb, so that a trace and a report show them beside what the nodes did.

Nothing is written before the first fault.
"""

from typing import Final

from kraftsim.cluster.directories import RunDirectory
from kraftsim.events.event import Event
from kraftsim.events.runs import FaultEnded, FaultInjected
from kraftsim.world.real.event_file import next_incarnation
from kraftsim.world.real.world import RealClock, RealWorld, real_world

OPERATOR: Final = "operator"
"""The name of the operator in the event log."""
TRIGGER: Final = "the operator"


class OperatorEvents:
    """Emits events of the operator; it belongs to one event loop."""

    def __init__(self, directory: RunDirectory, run: str, started_ns: int) -> None:
        self._directory = directory
        self._run = run
        self._started_ns = started_ns
        self._clock = RealClock(0)
        self._world: RealWorld | None = None

    def wall_ms(self) -> int:
        """Return the time of day in ms since 1970."""
        return self._clock.wall_ms()

    def injected(self, fault: str, target: str) -> None:
        """A fault of a kind (`kraftsim list faults`) was injected into a node or into links."""
        self._emit(FaultInjected(fault=fault, target=target, trigger=TRIGGER))

    def ended(self, fault: str, target: str) -> None:
        """A lasting fault ended."""
        self._emit(FaultEnded(fault=fault, target=target))

    def close(self) -> None:
        """Close the event log."""
        if self._world is not None:
            self._world.close()
            self._world = None

    def _emit(self, event: Event) -> None:
        if self._world is None:
            events = self._directory.events
            self._world = real_world(
                run=self._run,
                node=OPERATOR,
                incarnation=next_incarnation(events, OPERATOR),
                data_dir=self._directory.data(OPERATOR),
                events_dir=events,
                seed=None,
                started_ns=self._started_ns,
            )
        self._world.emit(event)
        self._world.flush_events()
