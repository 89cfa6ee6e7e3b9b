"""Isolates simulated code: threads, sockets, processes, files, signals and other event loops raise
SimulationEscape with the call site.

The harness may open files, because it writes reports and reads scenarios; nodes and clients may
not. `routes` lists the guarded functions, `ambient` those that have a simulated replacement
(clocks, entropy, process id).
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kraftsim.world.simulated.ambient import is_running, running_process
from kraftsim.world.simulated.errors import escape
from kraftsim.world.simulated.host import Process
from kraftsim.world.simulated.routes import (
    AUDITED,
    AUDITED_FROM_NODES,
    GUARDED,
    GUARDED_FROM_NODES,
    MAPPED,
)

SOURCE_READERS = (
    *(
        "importlib._bootstrap",
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
tracebacks. A wheel has `protocol` inside `kraftsim`.
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
    try:
        yield
    finally:
        for place, name, real, _ in _guards:
            setattr(place, name, real)


def _build() -> None:
    for place, name, what in GUARDED:
        _guards.append(
            (place, name, getattr(place, name), _guarded(place, name, what, lambda process: True))
        )
    for place, name, what in GUARDED_FROM_NODES:
        _guards.append((place, name, getattr(place, name), _guarded(place, name, what, _is_node)))
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
