"""Isolates simulated code: threads, sockets, processes, files, signals and other event loops raise
SimulationEscape with the call site.

The harness may open files, because it writes reports and reads scenarios; nodes and clients may
not. This file begins with the guarded functions; `ambient` lists those that have a simulated
replacement (clocks, entropy, process id).
"""

import _posixsubprocess
import _thread
import asyncio
import builtins
import io
import multiprocessing.process
import os
import select
import selectors
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from kraftsim.world.simulated import threads
from kraftsim.world.simulated.ambient import is_running, running_loop, running_process
from kraftsim.world.simulated.errors import escape
from kraftsim.world.simulated.host import Process

if TYPE_CHECKING:
    from kraftsim.world.simulated.loop import VirtualLoop

# --------------------------------------------------------------------------------------------------
# The functions by which code can use the real machine: those that are guarded, and the audit events
# of Python for those that bypass the guards
#
# A guarded attribute catches calls that look it up at call time. Names that were bound before
# (`from os import open`) and calls in C bypass it; many of them are reported as audit events (PEP
# 578), which are checked as well.

A_THREAD, A_PROCESS, A_SOCKET = "a thread", "a process", "a socket"
A_LOOK_UP, A_PIPE, A_WAIT, A_SIGNAL = (
    "a blocking name look-up",
    "a pipe",
    "a wait in real time",
    "a signal",
)
A_FILE, AN_EXIT, ENTROPY, CPU_TIME, A_MACHINE = (
    "a file",
    "the end of the whole process",
    "entropy",
    "the time of the processor",
    "the load of the machine",
)
IN_C = "a library in C"

GUARDED: tuple[tuple[object, str, str], ...] = (
    (_thread, "start_new_thread", A_THREAD),
    (_thread, "start_new", A_THREAD),
    (threading.Condition, "wait", A_WAIT),
    (select, "select", A_WAIT),
    (select, "poll", A_WAIT),
    (select, "epoll", A_WAIT),
    (
        selectors._BaseSelectorImpl,
        "__init__",
        A_WAIT,
    ),  # all selectors, with names of select bound early
    (socket.socket, "__init__", A_SOCKET),
    (socket, "getaddrinfo", A_LOOK_UP),
    (socket, "gethostbyname", A_LOOK_UP),
    (socket, "gethostbyaddr", A_LOOK_UP),
    (subprocess.Popen, "__init__", A_PROCESS),
    (_posixsubprocess, "fork_exec", A_PROCESS),
    (multiprocessing.process.BaseProcess, "start", A_PROCESS),
    (os, "fork", A_PROCESS),
    (os, "forkpty", A_PROCESS),
    (os, "posix_spawn", A_PROCESS),
    (os, "posix_spawnp", A_PROCESS),
    (os, "system", A_PROCESS),
    (os, "execv", A_PROCESS),
    (os, "execve", A_PROCESS),
    (os, "_exit", AN_EXIT),
    (os, "abort", AN_EXIT),
    (os, "kill", A_SIGNAL),
    (signal, "signal", A_SIGNAL),
    (signal, "raise_signal", A_SIGNAL),
    (signal, "set_wakeup_fd", A_SIGNAL),
    (signal, "alarm", A_SIGNAL),
    (signal, "setitimer", A_SIGNAL),
    (signal, "pause", A_WAIT),
    (signal, "sigwait", A_WAIT),
    (os, "pipe", A_PIPE),
    (os, "pipe2", A_PIPE),
    (os, "eventfd", A_PIPE),
    (os, "memfd_create", A_FILE),
    (os, "times", CPU_TIME),
    (os, "getloadavg", A_MACHINE),
    (time, "process_time", CPU_TIME),
    (time, "process_time_ns", CPU_TIME),
    (time, "thread_time", CPU_TIME),
    (time, "thread_time_ns", CPU_TIME),
    (ssl, "RAND_bytes", ENTROPY),
    (ssl.SSLContext, "wrap_socket", "TLS"),
    (ssl.SSLContext, "wrap_bio", "TLS"),
)
"""Forbidden to all code in a simulation: module, name, description."""
GUARDED_FROM_NODES: tuple[tuple[object, str, str], ...] = (
    (builtins, "open", A_FILE),
    (io, "open", A_FILE),
    (os, "open", A_FILE),
    (os, "stat", A_FILE),
    (os, "lstat", A_FILE),
    (os, "access", A_FILE),
    (os, "readlink", A_FILE),
)
"""Allowed to the harness only: it writes reports and reads scenarios."""

MAPPED = "mmap.__new__"
AUDITED: dict[str, str] = {
    "socket.__new__": A_SOCKET,
    "socket.connect": A_SOCKET,
    "socket.bind": A_SOCKET,
    "socket.getaddrinfo": A_LOOK_UP,
    "socket.gethostbyname": A_LOOK_UP,
    "socket.gethostbyaddr": A_LOOK_UP,
    "socket.getnameinfo": A_LOOK_UP,
    "subprocess.Popen": A_PROCESS,
    "os.fork": A_PROCESS,
    "os.forkpty": A_PROCESS,
    "os.posix_spawn": A_PROCESS,
    "os.system": A_PROCESS,
    "os.exec": A_PROCESS,
    "os.spawn": A_PROCESS,
    "pty.spawn": A_PROCESS,
    "os.kill": A_SIGNAL,
    "os.killpg": A_SIGNAL,
    "signal.pthread_kill": A_SIGNAL,
}
"""Audit events that are forbidden to all code in a simulation."""
AUDITED_FROM_NODES: dict[str, str] = {
    **dict.fromkeys(
        (
            "open",
            "os.listdir",
            "os.scandir",
            "os.remove",
            "os.rename",
            "os.mkdir",
            "os.rmdir",
            "os.link",
            "os.symlink",
            "os.truncate",
            "os.chdir",
            "os.chmod",
            "os.chown",
            "os.utime",
            "shutil.copyfile",
            "shutil.move",
            "shutil.rmtree",
            "tempfile.mkstemp",
            "tempfile.mkdtemp",
            "glob.glob",
            "sqlite3.connect",
            MAPPED,
            "fcntl.flock",
            "fcntl.lockf",
        ),
        A_FILE,
    ),
    "ctypes.dlopen": IN_C,
    "ctypes.dlsym": IN_C,
    "ctypes.call_function": IN_C,
}
"""Audit events that are allowed to the harness only."""


SOURCE_READERS = (
    *(
        "importlib._bootstrap",
        "importlib.metadata",
        "importlib.resources",
        "importlib_metadata",
        "pkg_resources",
        "inspect",
        "linecache",
        "pkgutil",
        "protocol.codec.store",
        "protocol.declarations",
        "kraftsim.protocol.codec.store",
        "kraftsim.protocol.declarations",
        "tokenize",
        "traceback",
    ),
)
"""Module files and generated code are read by imports (with any loader), and for source lines in
tracebacks; libraries read the entry points and data files of installed packages. A wheel has
`protocol` inside `kraftsim`.
"""
NO_FILE = -1
"""Anonymous mappings are allowed: they could only be shared with other processes, and there are
none.
"""

WATCHED = frozenset({*AUDITED, *AUDITED_FROM_NODES})

_guards: list[tuple[object, str, object, object]] = []
"""Module, name, the real function, the guarded one; created once."""


@contextmanager
def around() -> Iterator[None]:
    """Install the guards while a simulation runs."""
    if not _guards:
        _build()
    for place, name, _, guarded in _guards:
        setattr(place, name, guarded)
    restore_policy = threads.replace_policy(_the_loop())
    try:
        yield
    finally:
        restore_policy()
        for place, name, real, _ in _guards:
            setattr(place, name, real)


def _build() -> None:
    for place, name, what in GUARDED:
        _guards.append(
            (place, name, getattr(place, name), _guarded(place, name, what, lambda process: True))
        )
    for place, name, what in GUARDED_FROM_NODES:
        _guards.append((place, name, getattr(place, name), _guarded(place, name, what, _is_node)))
    thread_class = threading.Thread
    _guards.append((thread_class, "start", thread_class.start, _start_thread(thread_class.start)))
    _guards.append((thread_class, "join", thread_class.join, _join_thread(thread_class.join)))
    for module in (asyncio, asyncio.events):
        _guards.append(
            (module, "new_event_loop", module.new_event_loop, _new_loop(module.new_event_loop))
        )
    sys.addaudithook(_audit)


def _guarded(
    place: object, name: str, what: str, applies: Callable[[Process], bool]
) -> Callable[..., object]:
    real: Callable[..., object] = getattr(place, name)

    def guarded(*arguments: object, **options: object) -> object:
        process = running_process()
        if process is not None and applies(process):
            raise escape(f"{what} ({name})")
        return real(*arguments, **options)

    return guarded


def _the_loop() -> "VirtualLoop":
    loop = running_loop()
    assert loop is not None, "a simulation runs"
    return loop


def _start_thread(real: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    def start(self: threading.Thread) -> None:
        process = running_process()
        if process is None:
            real(self)
        elif threads.may_thread(process):
            threads.start(self, process, real)
        else:
            raise escape(f"{A_THREAD} (start)")

    return start


def _join_thread(real: Callable[..., None]) -> Callable[..., None]:
    def join(self: threading.Thread, timeout: float | None = None) -> None:
        if running_process() is None:
            real(self, timeout)
        else:
            threads.join(self, real, timeout)

    return join


def _new_loop(
    real: Callable[[], asyncio.AbstractEventLoop],
) -> Callable[[], asyncio.AbstractEventLoop]:
    def new_event_loop() -> asyncio.AbstractEventLoop:
        process = running_process()
        return real() if process is None else threads.new_event_loop(_the_loop(), process)

    return new_event_loop


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    """Refuse calls that bypassed the guards.

    Python calls this until the process ends, also each time that code reads `frame.f_code`: most
    events must be passed over without another call.
    """
    if event not in WATCHED or not is_running():
        return
    process = running_process()
    if process is None:
        return
    if event in AUDITED:
        raise escape(f"{AUDITED[event]} ({event})")
    if _is_node(process) and not (event == MAPPED and arguments[0] == NO_FILE):
        raise escape(f"{AUDITED_FROM_NODES[event]} ({event})")


def _is_node(process: Process) -> bool:
    return process.host.index > 0 and not _reads_source()


def _reads_source() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") in SOURCE_READERS:
            return True
        frame = frame.f_back
    return False
