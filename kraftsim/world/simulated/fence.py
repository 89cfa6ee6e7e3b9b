"""Keeps simulated code inside: threads, sockets, processes, files and other event loops raise SimulationEscape, naming the call site.

The harness may open files, because it writes reports and reads scenarios; nodes and clients may not.
"""

import asyncio
import builtins
import io
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kraftsim.world.simulated.ambient import running_process
from kraftsim.world.simulated.call_site import escape
from kraftsim.world.simulated.host import Process

FORBIDDEN: tuple[tuple[object, str, str], ...] = (
    (threading.Thread, "start", "a thread"),
    (socket.socket, "__init__", "a socket"),
    (socket, "getaddrinfo", "a blocking name look-up"),
    (subprocess.Popen, "__init__", "a process"),
    (os, "fork", "a process"),
    (os, "posix_spawn", "a process"),
    (os, "system", "a process"),
    (asyncio, "new_event_loop", "another event loop"),
)
FORBIDDEN_TO_NODES: tuple[tuple[object, str, str], ...] = (
    (builtins, "open", "a file"),
    (io, "open", "a file"),
    (os, "open", "a file"),
)
SOURCE_READERS = ("importlib._bootstrap", "inspect", "linecache", "tokenize", "traceback")
"""Python reads files when it imports modules (whoever's loader does it) and when it shows source lines in errors."""


@contextmanager
def around() -> Iterator[None]:
    """Put the fence up while a simulation runs."""
    real = [(place, name, getattr(place, name)) for place, name, _ in FORBIDDEN + FORBIDDEN_TO_NODES]
    for place, name, what in FORBIDDEN:
        _guard(place, name, what, lambda process: True)
    for place, name, what in FORBIDDEN_TO_NODES:
        _guard(place, name, what, _is_node)
    try:
        yield
    finally:
        for place, name, function in real:
            setattr(place, name, function)


def _guard(place: object, name: str, what: str, applies: Callable[[Process], bool]) -> None:
    real: Callable[..., object] = getattr(place, name)

    def guarded(*arguments: object, **options: object) -> object:
        process = running_process()
        if process is not None and applies(process):
            raise escape(f"{what} ({name})")
        return real(*arguments, **options)

    setattr(place, name, guarded)


def _is_node(process: Process) -> bool:
    return process.host.index > 0 and not _reads_source()


def _reads_source() -> bool:
    frame: FrameType | None = sys._getframe(3)
    while frame is not None:
        if frame.f_globals.get("__name__") in SOURCE_READERS:
            return True
        frame = frame.f_back
    return False
