"""The event loop of a simulation: virtual time in nanoseconds, a queue per process, and a seeded
choice of which process runs next.

The theory. A distributed run has three sources of nondeterminism: in which order concurrent things
happen, when they happen, and what chance decides. In a simulation all three are functions of a
seed. Everything runs in one thread, on this loop, so an order exists; time is a number that this
loop advances; and every random number comes from a stream that is keyed by the seed. A run is then
a function from (code, seed) to bytes: it can be repeated, and a failure found once is found again.
This is the design of FoundationDB's simulator.

Order. asyncio documents the order of callbacks, first in, first out, and libraries rely on it. So
inside a process (`host.Process`, one incarnation of one node) callbacks keep that order. Between
processes any order is legal, because in reality they are separate machines: there the seed chooses.
A turn takes one process of those that have something to run, and runs what is ready on it now;
callbacks that these add wait for the next turn. If only one process is runnable no number is drawn.
The stream of these choices is separate from all others (`{seed}/schedule`), and each node draws
from streams of its own, one per purpose (`kraftsim.world.interface`): removing one fault does
not shift the draws of another, which is what makes runs shrinkable.

Time. It moves only when no process has anything to run, and then to the earliest timer; timers of
the same nanosecond fire in the order in which they were set. So work takes no time, an idle day
costs nothing, and no result depends on the speed of the machine. Where the duration of work
matters, a host has `step_ns`: after each turn its process rests as long as its callbacks would have
taken (`_rest`). `time()` is the clock of the host whose code runs, which faults may let drift;
timers are converted from that clock to true time.

Processes. A context variable names the process whose code runs. asyncio copies the context into
each callback and task, so even unmodified libraries belong to the right process, without knowing of
it. The queue of a killed process is emptied and takes no more callbacks; its timers are skipped;
its tasks are kept (`graveyard`), because collecting a coroutine would run its `finally` blocks,
which a killed process does not do. A paused process is taken off the list and its callbacks are
deferred. Code of a process that kills itself runs on to its next suspension, without effect.

What else differs between two runs of one Python program, and what is done about it: the iteration
order of sets of tasks and futures follows their hash, which is an address (`SequencedFuture`,
`SequencedTask`: a number); finalizers run when the garbage collector runs (only at fixed step
counts, `_collect`); executors have threads (`run_in_executor` calls the function at once); debug
mode reads the real clock (`get_debug`). Clocks, entropy and names of the real machine are routed to
the host or raise SimulationEscape (`ambient`, `fence`, `networked_loop`). String hashes and object
addresses matter to some clients only: `launcher` pins them.

The end of a run. `is_done` is checked when time is about to advance, so it sees a state in which
nothing is left to run. Nothing ready and no timer is a deadlock; `STILL_TURNS_MAX` turns in one
nanosecond are a livelock; `limit_ns` is a time limit. All three are raised in the code that drives
the simulation, never in a task of a node.

Invariants. Virtual time never decreases, and stands while anything can run. The same seed gives the
same sequence of turns, draws and times, in any process and under any hash seed. Inside a process
order is that of asyncio. A dead process has no effect.

Traps. A positive delay that floats round down to zero lets a library that sleeps in a loop stop
time: `SHORTEST_DELAY_NS`. A monotonic clock must not fall back to true time when its drift ends:
`time()` reads the host's clock, which keeps its lead. Cancelled timers stay in the heap until it is
cleaned, or runs with many timeouts grow without bound. A process may be paused, resumed or killed
by a callback of its own turn: its deque is then another object, and the turn must end
(`process.ready is ready`). `_run` is one function, because it is the hot path of every callback of
a simulation.
"""

import asyncio
import gc
import sys
import threading
from asyncio import events
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random
from typing import TypeVar, TypeVarTuple, Unpack, cast

from kraftsim.world.simulated import ambient, threads
from kraftsim.world.simulated.call import NANOSECONDS, ScheduledCall, SequencedFuture, SequencedTask
from kraftsim.world.simulated.errors import (
    SimulationDeadlock,
    SimulationLivelock,
    SimulationTimeLimit,
)
from kraftsim.world.simulated.host import Process, current_process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SHORTEST_DELAY_NS = 1_000
"""The minimum of a positive delay: with delays that floats round down to zero, time would not
advance (aiokafka's idle reaper has such delays). On tolerant hosts it is that of every delay:
aiokafka's auto-commit waits for 0 s until the time is *after* its deadline.
"""
STILL_TURNS_MAX = 200_000
STEPS_PER_COLLECTION = 100_000
CANCELLED_MIN = 200
"""Cancelled timers are removed from the heap when there are this many and they are half of it."""


def _is_foreign() -> bool:
    process = ambient.running_process()
    return process is not None and threads.may_thread(process)


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio event loop without a selector. It has no network: see `networked_loop`."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.now_ns = 0
        self.steps = 0
        self.steps_max: int | None = None
        """After more callbacks the run has failed; checked from time to time."""
        self.runnable: list[Process] = []
        self.harness: Process
        self.on_trouble: Callable[[dict[str, object]], None] = lambda context: None
        self.graveyard: list[asyncio.Task[object]] = []
        """Tasks of dead processes.

        They are kept, because collecting a coroutine would run its `finally` blocks.
        """
        self._draw = Random(f"{seed}/schedule").random
        self._heap: list[tuple[int, int, ScheduledCall]] = []
        self._next_sequence = count().__next__
        self.take_number = count(1).__next__
        self._still_turns = 0
        self._limit_ns: int | None = None
        self._next_collection = STEPS_PER_COLLECTION

    def __repr__(self) -> str:
        return f"<virtual loop at {self.now_ns / NANOSECONDS} s>"

    # ---- time

    def time(self) -> float:
        """Return the monotonic clock of the host whose code runs, in seconds."""
        clock = current_process.get(self.harness).host.clock
        lead_ns = clock.monotonic_lead_ns
        return (clock.monotonic_ns() if lead_ns is None else self.now_ns + lead_ns) / NANOSECONDS

    def call_soon(  # type: ignore[override]  # returns a ScheduledCall, no Handle
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> ScheduledCall:
        """Run a callback in the next turn of the current process."""
        if context is None:
            context = copy_context()
        process = context.get(current_process, self.harness)
        call = ScheduledCall(callback, args, context, process, self.now_ns)
        process.ready.append(call)
        if not process.is_listed:
            process.is_listed = True
            self.runnable.append(process)
        return call

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # one thread: the same

    def call_later(  # type: ignore[override]  # returns a ScheduledCall, no Handle
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> ScheduledCall:
        """Run a callback after a delay by the clock of the current process."""
        if context is None:
            context = copy_context()
        process = context.get(current_process, self.harness)
        if delay > 0:
            delay_ns = int(delay * NANOSECONDS)
            clock = process.host.clock
            if clock.drift_ppm:
                delay_ns = clock.true_delay_ns(delay_ns)
            if delay_ns < SHORTEST_DELAY_NS:
                delay_ns = SHORTEST_DELAY_NS
        else:
            delay_ns = SHORTEST_DELAY_NS if process.host.is_tolerant else 0
        when_ns = self.now_ns + delay_ns
        call = ScheduledCall(callback, args, context, process, when_ns)
        if process.is_alive:
            heappush(self._heap, (when_ns, self._next_sequence(), call))
        return call

    def call_at(  # type: ignore[override]  # returns a ScheduledCall, no Handle
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> ScheduledCall:
        """Run a callback at a time of `time()`."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def schedule(
        self, process: Process, when_ns: int, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> ScheduledCall:
        """Run a callback on behalf of a process at a virtual time: for network, disks and
        triggers.
        """
        call = ScheduledCall(callback, args, process.context, process, when_ns)
        if process.is_alive:
            heappush(self._heap, (when_ns, self._next_sequence(), call))
        return call

    def unschedule(self, callback: Callable[..., object]) -> int:
        """Cancel a callback in all timers. Returns how many there were. Scans every timer."""
        waiting = [call for _, _, call in self._heap if call._callback == callback]
        for call in waiting:
            call.cancel()
        return len(waiting)

    # ---- running

    def run(self, is_done: Callable[[], bool] | None, limit_ns: int | None) -> None:
        """Run until `is_done()`, checked whenever time is about to advance, or until `stop()`.

        Raises SimulationDeadlock, SimulationLivelock or SimulationTimeLimit. No time passes beyond
        limit_ns.
        """
        # attr-defined: BaseEventLoop has it, typeshed does not
        self._check_closed()  # type: ignore[attr-defined]
        self._check_running()  # type: ignore[attr-defined]
        self._limit_ns = limit_ns
        self._still_turns = 0
        self._stopping = False
        self._thread_id = threading.get_ident()
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(
            firstiter=self._asyncgen_firstiter_hook,  # type: ignore[attr-defined]
            finalizer=self._asyncgen_finalizer_hook,  # type: ignore[attr-defined]
        )
        events._set_running_loop(self)
        try:
            self._run(is_done)
        finally:
            self._thread_id = None  # type: ignore[assignment]  # as asyncio does
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def run_forever(self) -> None:
        """Run until `stop()`."""
        self.run(None, None)

    def run_until_complete(self, future: Generator[object, None, T] | Awaitable[T]) -> T:
        """Run the loop until a future is done, for a thread of a simulated process; elsewhere as
        asyncio does.
        """
        done = threads.wait_in_thread(self, future)
        return super().run_until_complete(future) if done is None else done.result()

    def halt(self) -> None:
        """Stop after the present turn."""
        self._stopping = True

    def stop(self) -> None:
        """Stop after the present turn; foreign code stops only its own loop, which is no other."""
        if not _is_foreign():
            self.halt()

    def close(self) -> None:
        """Drop all pending callbacks; foreign code closes only its own loop, which is no other."""
        if _is_foreign():
            return
        self._closed = True
        self._heap.clear()
        self.runnable.clear()

    def _run(self, is_done: Callable[[], bool] | None) -> None:
        """Run turns. One function, because it is the hot path of every callback of a simulation."""
        runnable, draw = self.runnable, self._draw
        while not self._stopping:
            if not runnable:
                if is_done is not None and is_done():
                    return
                self._advance()
                continue
            process = runnable[0] if len(runnable) == 1 else runnable[int(draw() * len(runnable))]
            ready = process.ready
            taken = batch = len(ready)
            self.steps += batch
            while batch and ready:
                batch -= 1
                call = ready.popleft()
                if call._cancelled:
                    continue
                try:
                    call._context.run(call._callback, *call._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler(
                        {
                            "message": f"exception in {call!r}",
                            "exception": error,
                            "process": process,
                        }
                    )
            if not ready and process.ready is ready:
                process.is_listed = False
                runnable.remove(process)
            if process.host.step_ns and process.is_alive:
                self._rest(process, taken * process.host.step_ns)
            self._still_turns += 1
            if self._still_turns > STILL_TURNS_MAX:
                raise SimulationLivelock(
                    f"{STILL_TURNS_MAX} turns at {self.now_ns / NANOSECONDS:.9f} s; {process} "
                    "has the last one"
                )

    def _advance(self) -> None:
        """Advance time to the next timer, and queue everything due then at its process, in the
        order in which it was set.
        """
        heap = self._heap
        while heap:
            entry = heappop(heap)
            call = entry[2]
            process = call._process
            if not call._cancelled and process.is_alive:
                break
        else:
            raise SimulationDeadlock(
                f"at {self.now_ns / NANOSECONDS:.6f} s nothing is ready and no timer is set"
            )
        when_ns = entry[0]
        if self._limit_ns is not None and when_ns > self._limit_ns:
            heappush(heap, entry)
            self.now_ns = self._limit_ns
            raise SimulationTimeLimit(
                f"not done at {self._limit_ns / NANOSECONDS} s of virtual time"
            )
        if when_ns > self.now_ns:
            self.now_ns = when_ns
            self._still_turns = 0
        process.ready.append(call)
        if not process.is_listed:
            process.is_listed = True
            self.runnable.append(process)
        while heap and heap[0][0] <= when_ns:
            call = heappop(heap)[2]
            process = call._process
            if call._cancelled or not process.is_alive:
                continue
            process.ready.append(call)
            if not process.is_listed:
                process.is_listed = True
                self.runnable.append(process)
        if self.steps >= self._next_collection:
            self._collect()

    def _collect(self) -> None:
        """Collect garbage: only here, at fixed step counts, so that finalizers run at the same
        moment in every repetition of a run.
        """
        if self.steps_max is not None and self.steps > self.steps_max:
            raise SimulationLivelock(
                f"more than {self.steps_max} callbacks until {self.now_ns / NANOSECONDS:.3f} s of "
                "virtual time"
            )
        self._next_collection = self.steps + STEPS_PER_COLLECTION
        gc.collect(1)
        if sum(1 for entry in self._heap if entry[2]._cancelled) > max(
            CANCELLED_MIN, len(self._heap) // 2
        ):
            self._heap[:] = [entry for entry in self._heap if not entry[2]._cancelled]
            heapify(self._heap)

    # ---- processes

    def delist(self, process: Process) -> None:
        """Stop running callbacks of a process, because it died or pauses."""
        process.is_listed = True
        if process in self.runnable:
            self.runnable.remove(process)

    def resume(self, process: Process) -> None:
        """Run callbacks of a resumed process, deferred ones first."""
        process.is_listed = bool(process.ready)
        if process.ready:
            self.runnable.append(process)

    def _rest(self, process: Process, for_ns: int) -> None:
        """Run nothing of a process for a while: its processor is busy with the last callback."""
        process.pause_count += 1
        self.delist(process)
        self.schedule(self.harness, self.now_ns + for_ns, self._end_rest, process)

    def _end_rest(self, process: Process) -> None:
        if not process.is_alive:
            return
        process.pause_count -= 1
        if process.ready:
            for on_wait in process.host.on_wait:
                on_wait(len(process.ready))
        if not process.is_paused:
            self.resume(process)

    # ---- tasks and futures

    def create_future(self) -> "asyncio.Future[T]":
        """Return a future with a repeatable hash."""
        return SequencedFuture(loop=self)

    def create_task(
        self,
        coro: Coroutine[object, object, T] | Generator[object, None, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":
        """Return a task with a repeatable hash and name, which belongs to the current process."""
        process = (
            context.get(current_process) if context is not None else current_process.get(None)
        ) or self.harness
        if name is None:
            name = f"{process.host.name}/{self.take_number()}"
        # arg-type: in typeshed a generator yields futures only
        task: SequencedTask[T] = SequencedTask(coro, loop=self, name=str(name), context=context)  # type: ignore[arg-type]
        task.process = process
        if not process.is_alive:
            self.graveyard.append(cast("asyncio.Task[object]", task))
        return task

    def run_in_executor(
        self, executor: object, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        """Run the function at once: unmodified clients may use an executor, but a simulation has no
        threads.
        """
        result: asyncio.Future[T] = self.create_future()
        try:
            result.set_result(func(*args))
        except Exception as error:
            result.set_exception(error)
        return result

    async def shutdown_default_executor(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  (asyncio's own signature)
    ) -> None:
        """Do nothing: there is no executor."""

    # ---- required by BaseEventLoop

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Pass an unhandled exception to the simulation."""
        self.on_trouble(context)

    get_debug = bool
    """Returns False: debug mode reads the real clock.

    Every future reads it, so that even a function call would be measurable.
    """

    def set_debug(self, enabled: bool) -> None:
        """Do nothing: see `get_debug`."""

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: object) -> None:
        """Do nothing: a simulated process receives no signals."""

    def remove_signal_handler(self, sig: int) -> bool:
        """Return False: there was none."""
        return False

    def _timer_handle_cancelled(self, handle: object) -> None:
        """Do nothing: cancelled timers are skipped."""

    def _write_to_self(self) -> None:
        """Do nothing: no selector has to be woken."""
