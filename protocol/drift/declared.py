"""Every message class that is declared in this package, found by importing all of its modules, so that a new one cannot be missed.

Source: none of Kafka's; the completeness makes "no drift in either direction" meaningful.
"""

import importlib
import pkgutil
from functools import cache

import protocol
from protocol.schema import declaration_of

NEVER_BUILT = "protocol.lease_pid."


@cache
def declared_messages() -> tuple[type, ...]:
    """Return the classes in the order of their modules' names; nested structures are not among them."""
    found: list[type] = []
    for name in sorted(module.name for module in pkgutil.walk_packages(protocol.__path__, "protocol.")):
        if not name.endswith("__main__"):
            for value in vars(importlib.import_module(name)).values():
                is_declared_here = isinstance(value, type) and value.__module__ == name and hasattr(value, "__declaration__")
                if is_declared_here and declaration_of(value).kind != "structure":
                    found.append(value)
    return tuple(found)


def kafkas_messages() -> tuple[type, ...]:
    """Return those that Apache Kafka defines: not ZooKeeper's, which have no definition files, nor those of a design that was never built."""
    return tuple(cls for cls in declared_messages() if declaration_of(cls).kind != "zookeeper" and not cls.__module__.startswith(NEVER_BUILT))
