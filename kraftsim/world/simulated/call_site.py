"""Finds the code that used the real machine: the nearest frame that is neither in Python's library
nor in the simulation itself.
"""

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from kraftsim.world.simulated.errors import SimulationEscape

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
