"""kraftsim re-enacts Kafka's producer identity and exactly-once machinery with small asyncio
processes that speak the real wire protocol.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kraftsim.version import __version__

if TYPE_CHECKING:
    from kraftsim.analysis.access import EventTables, OpenedRun, open_dataset, open_run
    from kraftsim.testing.cluster import Cluster

__all__ = ("Cluster", "EventTables", "OpenedRun", "__version__", "open_dataset", "open_run")

_HOMES = {"Cluster": "kraftsim.testing.cluster"}
_TABLES = "kraftsim.analysis.access"


def __getattr__(name: str) -> object:
    """Import the public names on use: a node needs none of them, and the tables need an extra."""
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, _TABLES)), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
