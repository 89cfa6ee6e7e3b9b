"""Errors that abort a simulation.

All of them are raised in the code that drives the simulation; none inside a node's task, except an
escape.
"""

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType


class SimulationError(RuntimeError):
    """A simulation was aborted."""


class SimulationDeadlock(SimulationError):
    """Nothing is ready to run and no timer is set, but the awaited condition is false."""


class SimulationLivelock(SimulationError):
    """Callbacks run without end while virtual time does not advance."""


class SimulationTimeLimit(SimulationError):
    """The awaited condition was not true within its limit of virtual time."""


class SimulationStopped(SimulationError):
    """An invariant was violated, or a node left an exception unhandled: see `Simulation.violations`
    and `Simulation.troubles`.
    """


class SimulationEscape(SimulationError):
    """Simulated code used the real machine: a thread, a socket, a process, a file, a sleep.

    The message names the call site.
    """


# --------------------------------------------------------------------------------------------------
# Finds the code that used the real machine: the nearest frame that is neither in Python's library
# nor in the simulation itself

LIBRARY = sysconfig.get_paths()["stdlib"]
THIRD_PARTY = (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"])
SIMULATION = str(Path(__file__).parent)


def escape(what: str) -> SimulationEscape:
    """Return the error for an attempt to use the real machine."""
    return SimulationEscape(f"{what} is not simulated: asked for at {call_site()}")


def call_site() -> str:
    """Return 'file:line' of the calling code."""
    frame = next((frame for frame in _frames() if not _is_plumbing(frame.f_code.co_filename)), None)
    return (
        f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "an unknown place"
    )


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_plumbing(file: str) -> bool:
    if file.startswith((SIMULATION, "<")):
        return True
    return file.startswith(LIBRARY) and not file.startswith(THIRD_PARTY)
