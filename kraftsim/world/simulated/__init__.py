"""The world of nodes in virtual time: one process, one thread, one seed, and the same bytes every
time.
"""

from kraftsim.world.simulated.disk_faults import FileClass
from kraftsim.world.simulated.errors import (
    SimulationDeadlock,
    SimulationError,
    SimulationEscape,
    SimulationLivelock,
    SimulationStopped,
    SimulationTimeLimit,
)
from kraftsim.world.simulated.frames import FrameSeen
from kraftsim.world.simulated.host import Host
from kraftsim.world.simulated.link import Gate, NetworkSettings
from kraftsim.world.simulated.preemption import Preemption
from kraftsim.world.simulated.simulation import Simulation, Trouble, collected_after
from kraftsim.world.simulated.triggers import TriggerContext
from kraftsim.world.simulated.world import SimulatedWorld

__all__ = [
    "FileClass",
    "FrameSeen",
    "Gate",
    "Host",
    "NetworkSettings",
    "Preemption",
    "SimulatedWorld",
    "Simulation",
    "SimulationDeadlock",
    "SimulationError",
    "SimulationEscape",
    "SimulationLivelock",
    "SimulationStopped",
    "SimulationTimeLimit",
    "TriggerContext",
    "Trouble",
    "collected_after",
]
