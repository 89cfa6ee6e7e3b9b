"""A CPU time limit for a block of code: a mutant may cause an endless loop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


class Endless(KeyboardInterrupt):
    """The CPU time limit is exceeded.

    (A KeyboardInterrupt, because asyncio and pytest do not catch it.)
    """


@dataclass(slots=True)
class CpuLimit:
    """Whether the limit was exceeded."""

    is_exceeded: bool = False

    def restart(self, cpu_seconds: float) -> None:
        """Restart the limit with that much CPU time."""
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)


@contextmanager
def cpu_limit(cpu_seconds: float) -> Iterator[CpuLimit]:
    """Raise Endless inside the block once it has used that much CPU time."""
    cut = CpuLimit()

    def end(number: int, frame: FrameType | None) -> None:
        cut.is_exceeded = True
        raise Endless

    former = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield cut
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
