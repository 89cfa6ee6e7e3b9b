"""kraftsim re-enacts Kafka's producer identity and exactly-once machinery with small asyncio
processes that speak the real wire protocol.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kraftsim.version import __version__

if TYPE_CHECKING:
    from kraftsim.analysis.access import EventTables, OpenedRun, open_dataset, open_run
    from kraftsim.lab.application.host import AppHost
    from kraftsim.lab.application.options import application
    from kraftsim.lab.application.run import ApplicationRun
    from kraftsim.lab.application.simulate import (
        SimulationFailed,
        SimulationResult,
        simulate,
        simulate_seeds,
    )
    from kraftsim.testing.cluster import Cluster

__all__ = (
    "AppHost",
    "ApplicationRun",
    "Cluster",
    "EventTables",
    "OpenedRun",
    "SimulationFailed",
    "SimulationResult",
    "__version__",
    "application",
    "open_dataset",
    "open_run",
    "simulate",
    "simulate_seeds",
)

_SIMULATE = "kraftsim.lab.application.simulate"
_HOMES = {
    "AppHost": "kraftsim.lab.application.host",
    "ApplicationRun": "kraftsim.lab.application.run",
    "Cluster": "kraftsim.testing.cluster",
    "SimulationFailed": _SIMULATE,
    "SimulationResult": _SIMULATE,
    "application": "kraftsim.lab.application.options",
    "simulate": _SIMULATE,
    "simulate_seeds": _SIMULATE,
}
_TABLES = "kraftsim.analysis.access"


def __getattr__(name: str) -> object:
    """Import the public names on use: a node needs none of them, and the tables need an extra."""
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, _TABLES)), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
