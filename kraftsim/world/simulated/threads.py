"""Threads of third-party code in virtual time: each runs an event loop of its own, which here is
the loop of the simulation.

A library may run a client in a thread, so that a slow application does not delay its heartbeats
(faust-streaming does). Such a thread calls `loop.run_until_complete` and returns when its work is
done. On a tolerant host the simulation allows that: `asyncio.new_event_loop()` returns the loop of
the simulation, and a thread is a real one in lockstep. It runs until it waits for the loop; its
coroutines then run with all others, in the order that the seed chooses; when the awaited one is
done, the thread goes on. Never do two threads run at the same time, so a run is as repeatable as
one without threads. A thread that blocks in another way (a lock, a queue) would stop virtual time:
SimulationEscape, with its call site.
"""

import asyncio
import threading
from asyncio import events
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from kraftsim.world.simulated import ambient
from kraftsim.world.simulated.errors import escape
from kraftsim.world.simulated.host import Process

if TYPE_CHECKING:
    from kraftsim.world.simulated.loop import VirtualLoop

T = TypeVar("T")
STUCK_SECONDS = 10.0
"""The real time after which a thread that neither waits for the loop nor ends is called stuck."""


class ThreadOfDeadProcess(SystemExit):
    """Unwinds a thread whose process was killed, or whose simulation has ended."""


class LockstepThread:
    """One started thread, and the two locks by which it and the loop take turns."""

    def __init__(self, thread: threading.Thread, process: Process) -> None:
        self.thread = thread
        self.process = process
        self.is_finished = False
        self.is_cancelled = False
        self._may_run, self._has_paused = threading.Lock(), threading.Lock()
        self._may_run.acquire()
        self._has_paused.acquire()
        self._run = thread.run

    def begin(self, start: Callable[[threading.Thread], object]) -> None:
        """Start the thread and let it run until it pauses or ends."""
        context = self.process.context.copy()

        def body() -> None:
            self._may_run.acquire()
            try:
                with ambient.in_this_thread(), suppress(ThreadOfDeadProcess):
                    context.run(self._run)
            finally:
                self.is_finished = True
                self._has_paused.release()

        # method-assign: the thread runs its own `run`, in turn with the loop
        self.thread.run = body  # type: ignore[method-assign]
        self.thread.daemon = True
        _running.setdefault(self.process, []).append(self)
        with ambient.suspended():
            start(self.thread)
        _by_ident[self.thread.ident or 0] = self
        self.go_on()

    def go_on(self) -> None:
        """Let the thread run until it pauses again or ends; the loop waits for it."""
        if self.is_finished:
            return
        with ambient.suspended():
            self._may_run.release()
            is_back = self._has_paused.acquire(timeout=STUCK_SECONDS)
        if not is_back:
            raise escape(f"a thread that blocks ({self.thread.name})")
        if self.is_finished:
            _by_ident.pop(self.thread.ident or 0, None)

    def pause(self) -> None:
        """Return control to the loop until it calls `go_on`; call this in the thread.

        Raises ThreadOfDeadProcess if there is nothing to go on for.
        """
        with ambient.suspended():
            self._has_paused.release()
            self._may_run.acquire()
        if self.is_cancelled:
            raise ThreadOfDeadProcess

    def cancel(self) -> None:
        """Unwind the thread."""
        self.is_cancelled = True
        self.go_on()


_running: dict[Process, list[LockstepThread]] = {}
_by_ident: dict[int, LockstepThread] = {}


def may_thread(process: Process) -> bool:
    """Return whether the code of a process may start threads and event loops."""
    return process.host.is_tolerant and process.host.index > 0


def start(thread: threading.Thread, process: Process, really: Callable[..., object]) -> None:
    """Start a thread of a simulated process, and let it run until it waits for its loop."""
    LockstepThread(thread, process).begin(really)


def join(thread: threading.Thread, really: Callable[..., object], timeout: float | None) -> None:
    """Wait for a thread that has ended or is about to.

    Raises SimulationEscape for one that waits for its loop: the loop cannot run meanwhile.
    """
    known = _by_ident.get(thread.ident or 0)
    if known is not None and not known.is_finished:
        raise escape("a wait for a thread that runs")
    with ambient.suspended():
        really(thread, timeout)


def wait_in_thread(
    loop: "VirtualLoop", awaitable: Generator[object, None, T] | Awaitable[T]
) -> "asyncio.Future[T] | None":
    """Let the loop run until an awaitable is done, if a simulated thread calls this; else None."""
    thread = _by_ident.get(threading.get_ident())
    if thread is None:
        return None
    future: asyncio.Future[T] = asyncio.ensure_future(awaitable, loop=loop)  # type: ignore[arg-type]  # a generator is one in typeshed only
    future.add_done_callback(lambda done: thread.go_on(), context=thread.process.context)
    thread.pause()
    return future


def end_all(process: Process) -> None:
    """Unwind the threads of a process that is dead."""
    for thread in _running.pop(process, []):
        if not thread.is_finished:
            thread.cancel()


# --------------------------------------------------------------------------------------------------
# The event loop policy while a simulation runs
#
# Libraries ask the policy for the loop of the present thread, and for a new one for another thread.


class SimulatedPolicy:
    """Gives tolerant hosts the loop of the simulation, and everything else the real policy."""

    def __init__(self, loop: "VirtualLoop", real: object) -> None:
        self._loop = loop
        self._real = real

    def get_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the present thread."""
        if self._is_for_simulation():
            return self._loop
        loop: asyncio.AbstractEventLoop = self._real.get_event_loop()  # type: ignore[attr-defined]  # a policy
        return loop

    def set_event_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Set the loop of the present thread; a simulated one has only one."""
        if not self._is_for_simulation():
            self._real.set_event_loop(loop)  # type: ignore[attr-defined]  # a policy

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a loop for another thread."""
        process = ambient.running_process()
        if process is not None:
            return new_event_loop(self._loop, process)
        loop: asyncio.AbstractEventLoop = self._real.new_event_loop()  # type: ignore[attr-defined]  # a policy
        return loop

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def _is_for_simulation(self) -> bool:
        process = ambient.running_process()
        return process is not None and may_thread(process)


def new_event_loop(loop: "VirtualLoop", process: Process) -> asyncio.AbstractEventLoop:
    """Return the loop of the simulation as a new one.

    Raises SimulationEscape for code that may not start threads.
    """
    if not may_thread(process):
        raise escape("another event loop (new_event_loop)")
    return loop


def replace_policy(loop: "VirtualLoop") -> Callable[[], None]:
    """Install the policy; return a function that restores the former one."""
    # attr-defined: the module's variable is not in typeshed; its setter is deprecated since 3.14
    ask = getattr(events, "_get_event_loop_policy", events.get_event_loop_policy)
    former = events._event_loop_policy  # type: ignore[attr-defined]
    real = ask()
    events._event_loop_policy = SimulatedPolicy(loop, real)  # type: ignore[attr-defined]

    def restore() -> None:
        events._event_loop_policy = former  # type: ignore[attr-defined]

    return restore
