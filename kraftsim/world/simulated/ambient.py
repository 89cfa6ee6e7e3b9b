"""Routes Python's ambient clocks, entropy and names (`time.time`, `os.urandom`, `uuid.uuid4`,
`os.getpid`) to the simulated host whose code runs.

kraftsim's own code uses its world; this is for third-party libraries. `install` replaces module
attributes permanently by functions that check whether a simulation runs, because libraries bind
`from time import time` when they are imported: install before that. Everything else raises
SimulationEscape. `datetime.now()` reads the clock in C and can be neither routed nor refused.
"""

import asyncio
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

from kraftsim.world.simulated.errors import escape
from kraftsim.world.simulated.host import Process, current_process

if TYPE_CHECKING:
    from kraftsim.world.simulated.loop import VirtualLoop

NANOSECONDS = 1_000_000_000
PURPOSE = "ambient"
DRAWS = (
    "random",
    "uniform",
    "triangular",
    "randint",
    "choice",
    "randrange",
    "sample",
    "shuffle",
    "choices",
    "normalvariate",
    "lognormvariate",
    "expovariate",
    "vonmisesvariate",
    "gammavariate",
    "gauss",
    "betavariate",
    "paretovariate",
    "weibullvariate",
    "getrandbits",
    "randbytes",
    "seed",
)
FIRST_PROCESS = 1000
FIRST_NODE = 0x020000000000
"""The bit of locally administered hardware addresses."""
NO_THREAD = -1
REFUSED = ("sleep", "clock_gettime", "clock_gettime_ns")

_all_tasks = asyncio.all_tasks

_loop: "VirtualLoop | None" = None
_thread = 0
_is_installed = False


def install() -> None:
    """Replace the ambient functions; a second call does nothing."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    _replace(time, "time", lambda process: process.host.clock.wall_ns() / NANOSECONDS)
    _replace(time, "time_ns", lambda process: process.host.clock.wall_ns())
    for name in ("monotonic", "perf_counter"):
        _replace(time, name, lambda process: process.host.clock.monotonic_ns() / NANOSECONDS)
        _replace(time, f"{name}_ns", lambda process: process.host.clock.monotonic_ns())
    _replace(os, "urandom", lambda process, size: process.random(PURPOSE).randbytes(size))
    _replace(
        os, "getrandom", lambda process, size, flags=0: process.random(PURPOSE).randbytes(size)
    )
    _replace(random, "_urandom", lambda process, size: process.random(PURPOSE).randbytes(size))
    _replace(
        uuid,
        "uuid1",
        lambda process, *arguments: uuid.UUID(
            int=process.random(PURPOSE).getrandbits(128), version=1
        ),
    )
    _replace(
        uuid,
        "uuid4",
        lambda process: uuid.UUID(int=process.random(PURPOSE).getrandbits(128), version=4),
    )
    _replace(uuid, "getnode", lambda process: FIRST_NODE + process.host.index)
    _replace(os, "getpid", lambda process: FIRST_PROCESS + process.host.index)
    _replace(os, "getppid", lambda process: 1)
    _replace(socket, "gethostname", lambda process: process.host.name)
    for module in (asyncio, asyncio.tasks):
        _replace(module, "all_tasks", _tasks_of)
    _replace_calendar()
    for name in DRAWS:
        _replace(random, name, _draw(name))
    _route_unseeded_generators()
    for name in REFUSED:
        _replace(time, name, _refusal(f"time.{name}"))


@contextmanager
def routed_to(loop: "VirtualLoop") -> Iterator[None]:
    """Route calls to a simulation while it runs, for the thread that runs it."""
    global _loop, _thread
    install()
    assert _loop is None, "one simulation runs inside another"
    _loop, _thread = loop, threading.get_ident()
    try:
        yield
    finally:
        _loop = None


def is_running() -> bool:
    """Return whether a simulation runs, in any thread."""
    return _loop is not None


def running_loop() -> "VirtualLoop | None":
    """Return the loop of the simulation that runs, in any thread."""
    return _loop


def running_process() -> Process | None:
    """Return the simulated process whose code runs in this thread, or None outside of a
    simulation.
    """
    if _loop is None or threading.get_ident() != _thread:
        return None
    return current_process.get(_loop.harness)


@contextmanager
def in_this_thread() -> Iterator[None]:
    """Route the calls of this thread to the simulation: it and the loop run in turn."""
    global _thread
    former, _thread = _thread, threading.get_ident()
    try:
        yield
    finally:
        _thread = former


@contextmanager
def suspended() -> Iterator[None]:
    """Route nothing: the simulation itself uses a real thread or lock here."""
    global _thread
    former, _thread = _thread, NO_THREAD
    try:
        yield
    finally:
        _thread = former


def _tasks_of(
    process: Process, loop: asyncio.AbstractEventLoop | None = None
) -> "set[asyncio.Task[object]]":
    """Return the tasks of a process: programs cancel all of their tasks when they end."""
    return {task for task in _all_tasks(loop) if getattr(task, "process", None) is process}


def _replace(module: object, name: str, routed: Callable[..., object]) -> None:
    real: Callable[..., object] = getattr(module, name)

    def ambient(*arguments: object, **options: object) -> object:
        if _loop is None or (process := running_process()) is None:
            return real(*arguments, **options)
        return routed(process, *arguments, **options)

    ambient.__name__ = ambient.__qualname__ = name
    setattr(module, name, ambient)


def _replace_calendar() -> None:
    """Make calendar functions without a time argument use the host's time."""

    def seconds(process: Process) -> float:
        return process.host.clock.wall_ns() / NANOSECONDS

    def of_seconds(real: Callable[[float], object]) -> Callable[..., object]:
        return lambda process, answer=None: real(seconds(process) if answer is None else answer)

    localtime, asctime, strftime = time.localtime, time.asctime, time.strftime
    for name in ("gmtime", "localtime", "ctime"):
        _replace(time, name, of_seconds(getattr(time, name)))
    _replace(
        time,
        "asctime",
        lambda process, answer=None: asctime(
            localtime(seconds(process)) if answer is None else answer
        ),
    )
    _replace(
        time,
        "strftime",
        lambda process, form, answer=None: strftime(
            form, localtime(seconds(process)) if answer is None else answer
        ),
    )


def _draw(name: str) -> Callable[..., object]:
    def draw(process: Process, *arguments: object, **options: object) -> object:
        method: Callable[..., object] = getattr(process.random(PURPOSE), name)
        return method(*arguments, **options)

    return draw


def _refusal(name: str) -> Callable[..., object]:
    def refuse(process: Process, *arguments: object) -> object:
        raise escape(name)

    return refuse


def _route_unseeded_generators() -> None:
    """Seed `random.Random()` from the running host instead of the operating system."""
    real = Random.seed

    def seed(
        self: Random, a: int | float | str | bytes | bytearray | None = None, version: int = 2
    ) -> None:
        process = running_process() if a is None else None
        real(self, process.random(PURPOSE).getrandbits(64) if process is not None else a, version)

    # method-assign: every Random of the process draws from the host
    Random.seed = seed  # type: ignore[method-assign]
