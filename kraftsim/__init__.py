"""kraftsim re-enacts Kafka's producer identity and exactly-once machinery with small asyncio
processes that speak the real wire protocol.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftsim.analysis.access import EventTables, OpenedRun, open_dataset, open_run
    from kraftsim.testing.cluster import Cluster

__version__ = "0.2.0"
__all__ = ("Cluster", "EventTables", "OpenedRun", "__version__", "open_dataset", "open_run")


def __getattr__(name: str) -> object:
    """Import the public names on use: a node needs none of them, and the tables need an extra."""
    if name == "Cluster":
        from kraftsim.testing.cluster import Cluster

        return Cluster
    if name in __all__:
        from kraftsim.analysis import access

        return getattr(access, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
