"""Runs several schedules that begin alike, and their common beginning once.

The simulation lives in the memory of one process. So a process that has run it up to the moment at
which the schedules part forks once for each of them: the child arms the rest of its schedule and
goes on. Its event log is the same, byte for byte, as that of a run with the whole schedule from the
beginning, because faults that are armed later (`Fault.armed_after_ms`) do nothing before. The
children run one after the other, so that a worker process uses one processor.

Use: `Fork(after_ms, requests)` as the argument of a run; in a child that run returns and
`fork.index` says whose it is; then `fork.answer` sends the result and ends the child. In the parent
process the run raises BranchesRun, and `fork.answers` has the results.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.faults.arm import FaultSchedule
from kraftsim.lab.faults.fault import Fault
from kraftsim.world.simulated import Simulation
from kraftsim.world.simulated.ambient import suspended


class BranchesRun(Exception):
    """All branches have been run, or the run ended before the moment at which they part."""


class Fork:
    """The branches of one run."""

    def __init__(self, after_ms: int, requests: Sequence[RunRequest]) -> None:
        """`after_ms` is the virtual time from the arming of the schedule. The schedule of each
        request begins with that of the run; the others of its faults are armed after so long.
        """
        self.after_ms = after_ms
        self.on_child: Callable[[], None] = _nothing
        """Called in each child: timers of a process are not those of its children."""
        self.requests = tuple(requests)
        self.index: int | None = None
        """Which of the requests this process runs; None in the parent process."""
        self.answers: list[bytes] = []
        """By request; empty for a child that ended without an answer. None at all if the run ended
        before the branches parted.
        """
        self.events_before = 0
        """How many events the run has had when the branches part."""
        self._pipe = -1
        self._simulation: Simulation | None = None
        self._common = 0

    @property
    def is_possible(self) -> bool:
        """Return whether this process may fork: it has one thread, so that no lock is held."""
        return hasattr(os, "fork") and threading.active_count() == 1

    def prepare(self, simulation: Simulation, schedule: FaultSchedule) -> None:
        """Let the run part at its moment."""
        self._simulation = simulation
        self._common = len(schedule.faults)
        schedule.branch_after(self.after_ms, self._part)

    def chosen(self) -> RunRequest:
        """Return the request that this process has run. Raises BranchesRun in the parent."""
        if self.index is None:
            raise BranchesRun
        return self.requests[self.index]

    def answer(self, content: bytes) -> NoReturn:
        """Send a child's result to the parent process, and end."""
        with os.fdopen(self._pipe, "wb") as pipe:
            pipe.write(content)
        os._exit(0)

    def _part(self) -> Sequence[Fault]:
        """Fork for each request. Return the rest of its schedule in the child; in the parent, stop
        the run.
        """
        assert self._simulation is not None, "prepared before the run"
        self.events_before = sum(len(log.entries) for log in self._simulation.book.logs())
        with suspended():
            # threads of simulated code would be missing in a child
            for index in range(len(self.requests) if self.is_possible else 0):
                receiver, sender = os.pipe()
                child = os.fork()
                if child == 0:
                    os.close(receiver)
                    self._pipe, self.index = sender, index
                    asyncio._set_running_loop(self._simulation.loop)  # kept by process id
                    self.on_child()
                    break
                os.close(sender)
                self.answers.append(_received(receiver))
                os.waitpid(child, 0)
        if self.index is not None:
            return self.requests[self.index].schedule()[self._common :]
        self._simulation.break_off("the branches have been run", BranchesRun())
        return ()


def _nothing() -> None:
    pass


def _received(descriptor: int) -> bytes:
    """Return what comes through a pipe until its other end is closed."""
    with os.fdopen(descriptor, "rb") as pipe:
        return pipe.read()
