"""Simulated machines, and the successive processes that run on them.

A context variable names the process whose code runs. asyncio copies the context into every callback
and task, so unmodified libraries are attributed to their process automatically, and everything of a
killed process stays identifiable.
"""

from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from random import Random
from typing import TYPE_CHECKING, Protocol

from kraftsim.world.interface import World, stream
from kraftsim.world.simulated.clock import HostClock, TrueTime
from kraftsim.world.simulated.durable_disk import DurableDisk
from kraftsim.world.simulated.preemption import Preemptions

if TYPE_CHECKING:
    from kraftsim.world.simulated.call import ScheduledCall
    from kraftsim.world.simulated.server import SimulatedServer

FIRST_EPHEMERAL_PORT = 49152
EPHEMERAL_PORT_COUNT = 16384


class ConnectionEnd(Protocol):
    """A process's end of a connection."""

    def on_process_death(self, *, power_loss: bool) -> None:
        """The network takes over the end."""
        ...


class Host:
    """A machine: an address, a clock, a disk, and the process that runs on it now."""

    def __init__(
        self, *, seed: int, index: int, name: str, true_time: TrueTime, durable: DurableDisk
    ) -> None:
        self.seed = seed
        self.index = index
        self.name = name
        self.address = f"10.0.{index // 250}.{index % 250 + 1}"
        self.clock = HostClock(true_time)
        self.durable = durable
        self.is_powered = True
        self.is_retired = False
        """Whether its operator has stopped it: until he starts it, whatever else would do so has no
        effect.
        """
        self.is_tolerant = False
        """Whether unhandled exceptions are tolerated: third-party code has some, and they do not
        abort a run.
        """
        self.step_ns = 0
        """The duration of a callback on its processor; otherwise callbacks take no virtual time."""
        self.on_wait: list[Callable[[int], object]] = []
        """Called with the number of callbacks that had to wait, whenever some had to because the
        processor is slow.
        """
        self.on_connect: list[Callable[[ConnectionEnd], object]] = []
        """Called with this host's end of each connection that it opens, before bytes flow."""
        self.on_end: list[Callable[[], object]] = []
        """Called when a process of this host is about to end, while it can still emit events."""
        self.preemptions = Preemptions()
        """Its threads that wait at a yield point, by faults."""
        self.overrides: dict[str, str] = {}
        """Overrides of the configuration, from the next process on."""
        self.own_release: str | None = None
        """The release that its operator has chosen since the run began; None: the first one."""
        self.process = Process(self, incarnation=1)
        self._next_port = FIRST_EPHEMERAL_PORT

    def __repr__(self) -> str:
        return f"<host {self.name}>"

    @property
    def is_alive(self) -> bool:
        """Return whether a process runs here."""
        return self.process.is_alive

    def take_port(self) -> int:
        """Return an ephemeral port; it is reused only after all others were allocated."""
        port = self._next_port
        self._next_port = (
            FIRST_EPHEMERAL_PORT + (port + 1 - FIRST_EPHEMERAL_PORT) % EPHEMERAL_PORT_COUNT
        )
        return port


class Process:
    """One incarnation of a process on a host.

    Once dead it stays dead: its callbacks, timers, connections and files have no effect.
    """

    __slots__ = (
        "_streams",
        "context",
        "host",
        "incarnation",
        "is_alive",
        "is_listed",
        "pause_count",
        "ready",
        "servers",
        "transports",
        "world",
    )

    def __init__(self, host: Host, incarnation: int) -> None:
        self.host = host
        self.incarnation = incarnation
        self.is_alive = True
        self.pause_count = 0
        """The number of pauses that were not resumed yet."""
        self.is_listed = False
        """Whether the loop need not be notified of new callbacks: it has been already, or must not
        run them (paused, dead).
        """
        self.ready: deque[ScheduledCall] = deque()
        self.servers: dict[int, SimulatedServer] = {}
        self.transports: dict[tuple[int, tuple[str, int]], ConnectionEnd] = {}
        self.world: World | None = None
        self._streams: dict[str, Random] = {}
        self.context = Context()
        self.context.run(current_process.set, self)

    def __repr__(self) -> str:
        return f"<process {self.host.name}.{self.incarnation}>"

    @property
    def is_paused(self) -> bool:
        """Return whether its code must not run now."""
        return self.pause_count > 0

    def random(self, purpose: str) -> Random:
        """Return the stream of a purpose; further calls return the same stream."""
        found = self._streams.get(purpose)
        if found is None:
            found = self._streams[purpose] = stream(
                self.host.seed, self.host.name, self.incarnation, purpose
            )
        return found

    def set_aside(self) -> None:
        """Defer the ready callbacks; a turn in progress ends here."""
        waiting = deque(self.ready)
        self.ready.clear()
        self.ready = waiting

    def bury(self) -> None:
        """Drop the ready callbacks, and from now on all new ones of this process."""
        self.is_alive = False
        self.is_listed = True
        self.ready.clear()
        self.ready = deque(maxlen=0)
        self.servers.clear()
        self.transports.clear()


current_process: ContextVar[Process] = ContextVar("current_process")
"""The process whose code runs; not set outside of simulated code."""
