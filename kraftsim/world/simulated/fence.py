"""Keeps simulated code inside: threads, sockets, processes, files, signals and other event loops raise SimulationEscape, naming the call site.

The harness may open files, because it writes reports and reads scenarios; nodes and clients may not. Which ways there are stands in `routes`; what a
library can be given instead of a refusal (clocks, chance, the number of the process) in `ambient`.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kraftsim.world.simulated.ambient import is_running, running_process
from kraftsim.world.simulated.call_site import escape
from kraftsim.world.simulated.host import Process
from kraftsim.world.simulated.routes import AUDITED, AUDITED_FROM_NODES, GUARDED, GUARDED_FROM_NODES, MAPPED

SOURCE_READERS = ("importlib._bootstrap", "inspect", "linecache", "pkgutil", "protocol.numbered_files", "tokenize", "traceback")
"""Files of modules are looked for and read when they are imported (whoever's loader does it) and when source lines are shown in errors."""
NO_FILE = -1
"""Memory that maps no file is like any other: it could only be shared with processes, and there are none."""

_guards: list[tuple[object, str, object, object]] = []
"""Place, name, the real function, the guarded one; made once."""


@contextmanager
def around() -> Iterator[None]:
    """Put the fence up while a simulation runs."""
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
        _guards.append((place, name, getattr(place, name), _guarded(place, name, what, lambda process: True)))
    for place, name, what in GUARDED_FROM_NODES:
        _guards.append((place, name, getattr(place, name), _guarded(place, name, what, _is_node)))
    sys.addaudithook(_audit)


def _guarded(place: object, name: str, what: str, applies: Callable[[Process], bool]) -> Callable[..., object]:
    real: Callable[..., object] = getattr(place, name)

    def guarded(*arguments: object, **options: object) -> object:
        process = running_process()
        if process is not None and applies(process):
            raise escape(f"{what} ({name})")
        return real(*arguments, **options)

    return guarded


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    """Refuse what got past the guards. Called by Python for the rest of its life, so it must be quick where no simulation runs."""
    if not is_running() or (event not in AUDITED and event not in AUDITED_FROM_NODES):
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
