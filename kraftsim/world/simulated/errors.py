"""Errors that abort a simulation.

All of them are raised in the code that drives the simulation; none inside a node's task, except an
escape.
"""


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
