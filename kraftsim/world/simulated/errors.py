"""Why a simulation ends early. All of these reach whoever drives the simulation; none is ever raised inside a node's task, except an escape."""


class SimulationError(RuntimeError):
    """A simulation could not go on."""


class SimulationDeadlock(SimulationError):
    """Nothing is ready to run and no timer is set, but what was waited for has not happened."""


class SimulationLivelock(SimulationError):
    """Callbacks follow callbacks and virtual time stands still."""


class SimulationTimeLimit(SimulationError):
    """What was waited for did not happen within its virtual time."""


class SimulationStopped(SimulationError):
    """An oracle saw a violation, or a node left an exception unhandled: see `Simulation.violations` and `Simulation.troubles`."""


class SimulationEscape(SimulationError):
    """Simulated code reached for the real machine: a thread, a socket, a process, a file, a sleep. The message names the call site."""
