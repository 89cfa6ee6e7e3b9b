"""A whole simulated installation: hosts with clocks and disks, a network, virtual time, and one
seed that determines everything.
"""

import asyncio
import gc
import inspect
import logging
import sys
from asyncio import all_tasks
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar, overload

from kraftsim.events.event import Event
from kraftsim.events.runs import InvariantViolated
from kraftsim.invariants.verdict import Violation
from kraftsim.world.simulated import ambient, fence, threads
from kraftsim.world.simulated.call import NANOSECONDS, SequencedTask
from kraftsim.world.simulated.disk import SimulatedDisk
from kraftsim.world.simulated.durable_disk import AT_RANDOM, DurableDisk, Losses, Wreck
from kraftsim.world.simulated.errors import SimulationEscape, SimulationStopped, SimulationTimeLimit
from kraftsim.world.simulated.host import Host, Process, current_process
from kraftsim.world.simulated.link import NetworkSettings
from kraftsim.world.simulated.network import Network
from kraftsim.world.simulated.networked_loop import NetworkedLoop
from kraftsim.world.simulated.objects import SharedObjects
from kraftsim.world.simulated.triggers import Triggers
from kraftsim.world.simulated.world import EventBook, EventLog, Observer, SimulatedWorld

T = TypeVar("T")

HARNESS = "harness"
FLUSH_NS = (500_000, 2_000_000)
"""The duration of a flush on a disk without faults."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """An unhandled exception: in a callback, or in a task whose result was not retrieved."""

    host: str
    message: str
    error: BaseException
    at_ns: int


class Simulation:
    """Use as a context manager; drive it from synchronous code with `run_until` and `run_for`.

    `on_restart` returns the coroutine that a host runs when it restarts; at that time `world_of` is
    the new world.
    """

    def __init__(
        self,
        seed: int,
        *,
        run: str = "run",
        network: NetworkSettings | None = None,
        flush_ns: tuple[int, int] = FLUSH_NS,
    ) -> None:
        self.seed = seed
        self.run = run
        self.hosts: dict[str, Host] = {}
        self.violations: list[Violation] = []
        self.troubles: list[Trouble] = []
        self.on_restart: Callable[[Host], Coroutine[object, object, object] | None] | None = None
        self.on_stop: Callable[[Host], Coroutine[object, object, object] | None] | None = None
        """Returns the clean shutdown of the process of a host."""
        self.attachments: dict[str, object] = {}
        """Attachments of other packages, for the lifetime of the simulation."""
        self.stores: dict[str, SharedObjects] = {}
        """The object stores that nodes use, by location."""
        self.is_closed = False
        self.loop = NetworkedLoop(seed)
        self.network = Network(self.loop, seed, network or NetworkSettings())
        self.loop.network = self.network
        self._flush_ns = flush_ns
        self._stop_reason: str | None = None
        self.harness = self._new_host(HARNESS)
        self.harness.is_tolerant = True
        self.loop.harness = self.harness.process
        self.loop.on_trouble = self._on_trouble
        self.book = EventBook(run, self.loop, self.harness.clock)
        self.triggers = Triggers(self)
        self._open_world(self.harness)

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def now_ns(self) -> int:
        """True virtual time since the start."""
        return self.loop.now_ns

    # ---- hosts

    def add_host(self, name: str, *, tolerant: bool = False) -> Host:
        """Add a machine with an empty disk, and its first process.

        A tolerant one may leave exceptions unhandled, as third-party clients do.
        """
        assert name not in self.hosts, f"there is a host {name}"
        host = self._new_host(name)
        host.is_tolerant = tolerant
        self._open_world(host)
        self.triggers.watch_disk(name)
        return host

    def host(self, host: Host | str) -> Host:
        """Return a host by name."""
        return self.hosts[host] if isinstance(host, str) else host

    def world_of(self, host: Host | str) -> SimulatedWorld:
        """Return the world of the process that runs on a host now."""
        world = self.host(host).process.world
        assert isinstance(world, SimulatedWorld), "every process has a world"
        return world

    def spawn(self, host: Host | str, coroutine: Coroutine[object, object, T]) -> "asyncio.Task[T]":
        """Start a task of a host's process.

        It may be awaited from the harness or given to `run_until`.
        """
        process = self.host(host).process
        assert process.is_alive, f"nothing runs on {process.host.name}"
        context = process.context.copy()
        return self.loop.create_task(coroutine, context=context)

    def kill(self, host: Host | str, *, power_loss: bool = False) -> int:
        """Kill a host's process; not even `finally` blocks run.

        Returns how many written bytes are lost.

        Without power loss the page cache survives and connections are reset; with it, unflushed
        bytes may be lost and connections become half-open.
        """
        if power_loss:
            return self.power_off(host).lost_bytes
        host = self.host(host)
        if host.is_alive:
            process = host.process
            self._end_process(process, power_loss=False)
            host.durable = host.durable.after_kill()
        return 0

    def power_off(self, host: Host | str, wreck: Wreck = AT_RANDOM) -> Losses:
        """Power off a host; unflushed bytes are lost as `wreck` defines, or at random."""
        host = self.host(host)
        if not host.is_alive:
            return Losses()
        process = host.process
        self._end_process(process, power_loss=True)
        host.durable, losses = host.durable.after_power_loss(process, wreck)
        return losses

    def _end_process(self, process: Process, *, power_loss: bool) -> None:
        host = process.host
        assert host is not self.harness, "the harness cannot be killed"
        for look in host.on_end:
            look()
        self.log(host.name, process.incarnation).is_open = False
        self.loop.graveyard += [
            task
            for task in all_tasks(self.loop)
            if isinstance(task, SequencedTask) and task.process is process
        ]
        host.is_powered = not power_loss
        self.network.on_process_death(process, power_loss=power_loss)
        process.bury()
        self.loop.delist(process)
        with nullcontext() if ambient.is_running() else self._guarded():
            threads.end_all(process)

    def stop(self, host: Host | str) -> "asyncio.Task[object] | None":
        """Ask a host's process to stop cleanly, as SIGTERM does; None if there is none that could.

        The process must be killed afterwards.
        """
        host = self.host(host)
        ending = self.on_stop(host) if self.on_stop is not None and host.is_alive else None
        return None if ending is None else self.spawn(host, ending)

    def restart(self, host: Host | str) -> Process:
        """Begin the next incarnation on a host that is down, and start the coroutine of
        `on_restart`; a retired host stays down.
        """
        host = self.host(host)
        assert not host.is_alive, f"{host.name} is still running"
        if host.is_retired:
            return host.process
        host.process = Process(host, host.process.incarnation + 1)
        self._open_world(host)
        if not host.is_powered:
            host.is_powered = True
            self.network.on_power(host)
        if self.on_restart is not None:
            main = self.on_restart(host)
            if main is not None:
                self.spawn(host, main)
        return host.process

    def pause(self, host: Host | str) -> Process:
        """Pause a host's process until `resume`; bytes and timers wait.

        After a second pause it must be resumed twice.
        """
        process = self.host(host).process
        if process.is_alive:
            process.pause_count += 1
            if process.pause_count == 1:
                process.set_aside()
                self.loop.delist(process)
        return process

    def resume(self, host: Host | str) -> int:
        """Resume a paused process. Returns how many callbacks had to wait."""
        process = self.host(host).process
        if not process.is_alive or not process.is_paused:
            return 0
        process.pause_count -= 1
        if process.is_paused:
            return 0
        self.loop.resume(process)
        return len(process.ready)

    def slow_down(
        self, host: Host | str, step_ns: int, on_wait: Callable[[int], object]
    ) -> Callable[[], None]:
        """Add a duration to every callback of a host, through all incarnations, until the returned
        function is called.

        `on_wait` is called with the number of callbacks that had to wait, whenever some had to.
        """
        host = self.host(host)
        host.step_ns += step_ns
        host.on_wait.append(on_wait)

        def hasten() -> None:
            host.step_ns -= step_ns
            host.on_wait.remove(on_wait)

        return hasten

    # ---- running

    @overload
    def run_until(self, target: Callable[[], bool], limit_s: float = 60.0) -> None: ...

    @overload
    def run_until(
        self, target: Coroutine[object, object, T] | Awaitable[T], limit_s: float = 60.0
    ) -> T: ...

    def run_until(
        self,
        target: Coroutine[object, object, T] | Awaitable[T] | Callable[[], bool],
        limit_s: float = 60.0,
    ) -> T | None:
        """Run until a coroutine (of the harness) or future is done, and return its result, or until
        a predicate holds.

        Raises what the coroutine raised, SimulationTimeLimit after limit_s of virtual time,
        SimulationDeadlock, SimulationLivelock, and SimulationStopped if an invariant was violated
        or a node left an exception unhandled.
        """
        limit_ns = self.now_ns + int(limit_s * NANOSECONDS)
        if not inspect.isawaitable(target):
            assert callable(target), "a coroutine, a future or a predicate"
            self._run(target, limit_ns)
            return None
        future: asyncio.Future[T] = self._as_future(target)
        future.add_done_callback(
            lambda done: self.loop.halt(), context=self.harness.process.context
        )
        self._run(future.done, limit_ns)
        return future.result()

    def run_for(self, seconds: float) -> None:
        """Advance virtual time."""
        until_ns = self.now_ns + int(seconds * NANOSECONDS)
        self.loop.schedule(self.harness.process, until_ns, self.loop.halt)
        self._run(None, until_ns)

    def _run(self, is_done: Callable[[], bool] | None, limit_ns: int) -> None:
        assert not self.is_closed, "the simulation is closed"
        self._raise_if_stopped()
        try:
            with collector_at_rest(), self._guarded():
                self.loop.run(is_done, limit_ns)
        except SimulationTimeLimit:
            self._raise_if_stopped()
            raise
        self._raise_if_stopped()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Route the real machine to the simulation, or refuse it, inside."""
        with ambient.routed_to(self.loop), fence.around():
            yield

    def _as_future(self, target: Awaitable[T]) -> "asyncio.Future[T]":
        if isinstance(target, asyncio.Future):
            return target
        assert inspect.iscoroutine(target), "an awaitable that is not a future is a coroutine"
        return self.spawn(self.harness, target)

    def _raise_if_stopped(self) -> None:
        if self._stop_reason is not None:
            error = self.troubles[-1].error if self.troubles else None
            raise SimulationStopped(self._stop_reason) from error

    # ---- events, violations, exceptions

    def log(self, node: str, incarnation: int) -> EventLog:
        """Return an event log; it need not be that of a host."""
        host = self.hosts.get(node)
        return self.book.log(node, incarnation, host.clock if host is not None else None)

    def observe(self, observer: Observer, kinds: Collection[type[Event]] | None = None) -> None:
        """Call a function with (node, incarnation, n, t_ns, event) for every event, or for those of
        some kinds.

        It must not raise.
        """
        self.book.observe(observer, kinds)

    def violation(self, invariant: str, message: str, witnesses: tuple[str, ...] = ()) -> None:
        """Record a violation of an invariant, and stop the simulation at the next turn;
        SimulationStopped is raised in the code that drives it.
        """
        self.violations.append(
            Violation(
                invariant=invariant,
                key=message,
                message=message,
                witnesses=witnesses,
                at_ns=self.now_ns,
            )
        )
        self.log(HARNESS, 1).emit(
            InvariantViolated(invariant=invariant, message=message, witnesses=",".join(witnesses))
        )
        self._stop(f"{invariant}: {message}")

    def break_off(self, reason: str, error: Exception) -> None:
        """Stop at the next turn because of an error in the harness itself: later behaviour of nodes
        is meaningless.
        """
        self.troubles.append(
            Trouble(host=self.harness.name, message=reason, error=error, at_ns=self.now_ns)
        )
        self._stop(f"{reason}: {type(error).__name__}: {error}")

    def event_bytes(self) -> bytes:
        """Return all event logs as JSON lines, sorted by node and incarnation: the same for the
        same seed.
        """
        return self.book.content()

    def write_events(self, events_dir: Path) -> None:
        """Write the event logs as files, as nodes on real machines do."""
        self.book.write(events_dir)

    def _stop(self, reason: str) -> None:
        self._stop_reason = self._stop_reason or reason
        self.loop.halt()

    def _on_trouble(self, context: dict[str, object]) -> None:
        error = context.get("exception")
        if self.is_closed or not isinstance(error, BaseException):
            return
        process = (
            context.get("process")
            or getattr(context.get("future"), "process", None)
            or current_process.get(self.harness.process)
        )
        assert isinstance(process, Process), "the code of a process ran"
        if not process.is_alive:
            return
        self.troubles.append(
            Trouble(
                host=process.host.name,
                message=str(context.get("message")),
                error=error,
                at_ns=self.now_ns,
            )
        )
        if not process.host.is_tolerant or isinstance(error, AssertionError | SimulationEscape):
            self._stop(f"{process.host.name}: {type(error).__name__}: {error}")

    # ---- end

    def close(self) -> None:
        """End everything: pending tasks are closed with the guards installed, so that they cannot
        use the real machine.
        """
        if self.is_closed:
            return
        self.is_closed = True
        pending = self.loop.graveyard + [
            task for task in all_tasks(self.loop) if isinstance(task, SequencedTask)
        ]
        for host in self.hosts.values():
            host.process.bury()
        for log in self.book.logs():
            log.is_open = False
        with self._guarded(), _in_silence():
            for host in self.hosts.values():
                threads.end_all(host.process)
            while pending:
                task = pending.pop()
                # attr-defined: asyncio's own switch, not in typeshed
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()
            self.loop.graveyard.clear()
        self.loop.close()

    def _new_host(self, name: str) -> Host:
        durable = DurableDisk(flush_ns=self._flush_ns)
        host = Host(
            seed=self.seed, index=len(self.hosts), name=name, true_time=self.loop, durable=durable
        )
        self.hosts[name] = self.network.hosts[name] = host
        return host

    def _open_world(self, host: Host) -> None:
        process = host.process
        log = self.book.log(host.name, process.incarnation, host.clock)
        process.world = SimulatedWorld(
            run=self.run,
            process=process,
            disk=SimulatedDisk(self.loop, process),
            log=log,
            stores=self.stores,
            on_store_call=partial(self.triggers.tell_store_call, process),
        )


@contextmanager
def _in_silence() -> Iterator[None]:
    """Print nothing that coroutines report because they are closed: the run is over by then."""
    hook, level = sys.unraisablehook, logging.root.manager.disable
    sys.unraisablehook = lambda unraisable: None
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        logging.disable(level)


# --------------------------------------------------------------------------------------------------
# Disables Python's garbage collector in simulated runs: it would visit all events of a run over
# and over, and free nothing

_RUNS_FROZEN = 2
_runs_seen = 0


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Disable automatic collection inside; a simulation collects at fixed step counts, so that
    finalizers run at the same moment in every run.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def collected_after() -> Iterator[None]:
    """The same for a whole run, followed by a collection.

    Objects from before the first run are modules and classes, and those that it leaves are what it
    has imported and compiled: all of them stay, so they are frozen, and the collector skips them.
    """
    global _runs_seen
    if _runs_seen < _RUNS_FROZEN:
        _runs_seen += 1
        gc.collect()
        gc.freeze()
    with collector_at_rest():
        try:
            yield
        finally:
            gc.collect()
