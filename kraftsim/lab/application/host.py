"""A host of an application, and the instance that runs there: it is started, crashes, is killed by
faults, and is started again, as a supervisor does.
"""

import asyncio
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftsim.clients.events import ApplicationEnded, ApplicationStarted, FactStated
from kraftsim.lab.application.observer import observe_clients
from kraftsim.world.interface import Disk
from kraftsim.world.simulated import Host, Simulation
from kraftsim.world.simulated.errors import SimulationEscape

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the simulation)

    from kraftsim.lab.application.options import Application
    from kraftsim.world.simulated.world import SimulatedWorld

ASSERTIONS = "application-assertions"
"""The invariant that an AssertionError of an application violates."""
NANOSECONDS = 1_000_000_000
RETURNED, CANCELLED = "returned", "cancelled"


class AppHost:
    """What an instance of an application gets: where the cluster is, who it is, and its disk.

    `asyncio`, `time`, `random`, `uuid` and sockets of asyncio are those of this host: virtual time,
    and random numbers from the seed. A kill ends it without `finally`; what it wrote to `disk`
    stays, up to the last flush after a power loss.
    """

    def __init__(
        self, world: "SimulatedWorld", host: Host, *, number: int, bootstrap: str, seed: int
    ) -> None:
        self._world = world
        self.name = host.name
        """The name of the host: app-1, app-2, ..., or as `ApplicationRun.start` says."""
        self.number = number
        """The number of the instance, from 1."""
        self.incarnation = host.process.incarnation
        """1, and 1 more after each restart."""
        self.bootstrap = bootstrap
        """The value of bootstrap.servers."""
        self.seed = seed

    def __repr__(self) -> str:
        return f"<{self.name}, incarnation {self.incarnation}>"

    @property
    def disk(self) -> Disk:
        """The disk of this host; paths are relative."""
        return self._world.disk

    def fact(self, name: str, key: object = "", value: object = "") -> None:
        """State a fact: it becomes an event, which checks, invariants and queries can use."""
        self._world.emit(
            FactStated(application=self.name, name=name, key=str(key), value=str(value))
        )

    def random(self, purpose: str) -> "Random":
        """Return the stream of random numbers for a purpose, keyed by the seed and this host."""
        return self._world.random(purpose)


@dataclass(kw_only=True, slots=True)
class Supervision:
    """How an instance is kept running. A crashed one starts again after `restart_seconds`; None:
    not.
    """

    restart_seconds: float | None
    bootstrap: str
    seed: int


class Instance:
    """One instance of an application, on a host of its own."""

    def __init__(
        self,
        simulation: Simulation,
        host: Host,
        application: "Application",
        number: int,
        supervision: Supervision,
    ) -> None:
        self.name = host.name
        self.number = number
        self.has_returned = False
        self.is_wanted = True
        """Whether it is to run: not after `stop`, nor once it has returned."""
        self.crashes: list[str] = []
        """The exceptions that ended it, one line each."""
        self._simulation = simulation
        self._host = host
        self._application = application
        self._supervision = supervision
        self._task: asyncio.Task[object] | None = None
        observe_clients(simulation, host)

    def main(self, host: Host) -> Coroutine[object, object, object] | None:
        """Return what the host runs from its start on; None if nothing."""
        return self._main(host) if self.is_wanted else None

    async def _main(self, host: Host) -> None:
        world = self._simulation.world_of(host)
        incarnation = host.process.incarnation
        self._task = asyncio.current_task()
        world.emit(ApplicationStarted(application=self.name, function=name_of(self._application)))
        app_host = AppHost(
            world,
            host,
            number=self.number,
            bootstrap=self._supervision.bootstrap,
            seed=self._supervision.seed,
        )
        delay_seconds = None
        try:
            await self._application(app_host)
        except asyncio.CancelledError:
            reason = CANCELLED
        except (AssertionError, SimulationEscape) as error:
            reason = line_of(error)
            self.crashes.append(reason)
            self._simulation.violation(ASSERTIONS, f"{self.name}: {reason}")
        except Exception as error:
            traceback.print_exc()
            reason = line_of(error)
            self.crashes.append(reason)
            delay_seconds = self._supervision.restart_seconds
        else:
            reason = RETURNED
            self.has_returned = True
            self.is_wanted = False
        world.emit(ApplicationEnded(application=self.name, reason=reason))
        self._at(0, lambda: self._exit(incarnation))
        if delay_seconds is not None:
            self._at(delay_seconds, self.start)

    def start(self) -> None:
        """Start it, unless it runs or is not wanted."""
        if self.is_wanted and not self._host.is_alive:
            self._simulation.restart(self._host)

    def ending(self) -> Coroutine[object, object, object] | None:
        """Return its clean end, as after SIGTERM: the application is cancelled."""
        return self._end() if self._task is not None and self._host.is_alive else None

    async def _end(self) -> None:
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait((task,))  # noqa: TID251  (one task: no order to depend on)

    def _exit(self, incarnation: int) -> None:
        """End the process, as the exit of its interpreter does: its connections are closed."""
        if self._host.is_alive and self._host.process.incarnation == incarnation:
            self._simulation.kill(self._host)

    def _at(self, seconds: float, action: "object") -> None:
        at_ns = self._simulation.now_ns + int(seconds * NANOSECONDS)
        assert callable(action), "a function without parameters"
        self._simulation.triggers.at(at_ns, lambda context: action())


def name_of(application: object) -> str:
    """Return the name of a function."""
    return str(getattr(application, "__qualname__", type(application).__qualname__))


def line_of(error: BaseException) -> str:
    """Return an exception in one line: its type, its message, and where it was raised."""
    text = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    last = frames[-1]
    where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
    return f"{text} ({where}: {last.line})" if isinstance(error, AssertionError) else text
