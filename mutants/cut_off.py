"""Ends what takes far more processor time than it should: a mutant may well make a loop that never ends."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


class Endless(KeyboardInterrupt):
    """It took far more processor time than it does. (An interrupt, for that is what asyncio and pytest let through.)"""


@dataclass(slots=True)
class Cut:
    """Whether the time was up."""

    is_cut: bool = False

    def begin_anew(self, cpu_seconds: float) -> None:
        """Allow so much from now on."""
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)


@contextmanager
def cut_off(cpu_seconds: float) -> Iterator[Cut]:
    """Raise Endless inside the block once it has used so much processor time."""
    cut = Cut()

    def end(number: int, frame: FrameType | None) -> None:
        cut.is_cut = True
        raise Endless

    former = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield cut
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
