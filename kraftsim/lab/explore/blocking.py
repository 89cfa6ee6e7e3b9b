"""Notices code that blocks the event loop of a simulation: a run that never ends has no verdict,
and would end the search.

An endless sequence of callbacks at one virtual time is a SimulationLivelock; this is for the one
callback that does not return, and for the code of the harness around the simulation.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kraftsim.world.simulated.ambient import running_loop

CPU_SECONDS = 120.0
"""So long no callback of any scenario takes: the longest one decodes one large frame. CPU time,
because a busy machine lets real time pass.
"""
NOT_RUNNING = -1


class Blocked(BaseException):
    """Code did not yield to the event loop. No `except Exception` of that code catches it."""


def steps_of_loop() -> int:
    """Return how many callbacks the simulation that runs has begun; -1 if none runs."""
    loop = running_loop()
    return NOT_RUNNING if loop is None else loop.steps


@contextmanager
def unblocked() -> Iterator[None]:
    """Raise Blocked in code that ends no callback for CPU_SECONDS, or up to twice as long. Only the
    main thread of a process can watch itself; in others nothing is watched.
    """
    cpu_seconds = CPU_SECONDS
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = None

    def look(number: int, frame: object) -> None:
        nonlocal seen
        steps = steps_of_loop()
        if steps == seen:
            raise Blocked(
                f"nothing has ended within {cpu_seconds:.0f} CPU seconds: the code blocks"
            )
        seen = steps

    former = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
