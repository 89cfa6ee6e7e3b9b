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
    from kraftsim.releases.release import Release, release
    from kraftsim.releases.release import releases as all_releases
    from kraftsim.testing.cluster import Cluster
    from kraftsim.testing.request_faults import InjectedFault
    from kraftsim.testing.scenario_run import ScenarioRun, run_scenario

__all__ = (
    "AppHost",
    "ApplicationRun",
    "Cluster",
    "EventTables",
    "InjectedFault",
    "OpenedRun",
    "Release",
    "ScenarioRun",
    "SimulationFailed",
    "SimulationResult",
    "__version__",
    "all_releases",
    "application",
    "open_dataset",
    "open_run",
    "release",
    "run_scenario",
    "simulate",
    "simulate_seeds",
)

_SIMULATE = "kraftsim.lab.application.simulate"
_HOMES = {
    "AppHost": "kraftsim.lab.application.host",
    "ApplicationRun": "kraftsim.lab.application.run",
    "Cluster": "kraftsim.testing.cluster",
    "InjectedFault": "kraftsim.testing.request_faults",
    "Release": "kraftsim.releases.release",
    "ScenarioRun": "kraftsim.testing.scenario_run",
    "SimulationFailed": _SIMULATE,
    "SimulationResult": _SIMULATE,
    "all_releases": "kraftsim.releases.release",
    "application": "kraftsim.lab.application.options",
    "release": "kraftsim.releases.release",
    "run_scenario": "kraftsim.testing.scenario_run",
    "simulate": _SIMULATE,
    "simulate_seeds": _SIMULATE,
}
_OTHERWISE_NAMED = {"all_releases": "releases"}
"""`kraftsim.releases` is a package."""
_TABLES = "kraftsim.analysis.access"


def __getattr__(name: str) -> object:
    """Import the public names on use: a node needs none of them, and the tables need an extra."""
    if name in __all__:
        home = import_module(_HOMES.get(name, _TABLES))
        return getattr(home, _OTHERWISE_NAMED.get(name, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
