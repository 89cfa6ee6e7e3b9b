"""Every message class that is declared on this floor, found by looking into the modules that declare them."""

import importlib
import pkgutil

import protocol.messages
import protocol.metadata
from protocol.schema import declaration_of

MODULES = ("protocol.control_records", "protocol.headers")
PACKAGES = (protocol.messages, protocol.metadata)


def declared_messages() -> list[type]:
    """Return the classes in the order of their modules' names; nested structures are not among them."""
    names = [*MODULES]
    for package in PACKAGES:
        names += [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]
    found: list[type] = []
    for name in sorted(names):
        for value in vars(importlib.import_module(name)).values():
            is_declared_here = isinstance(value, type) and value.__module__ == name and hasattr(value, "__declaration__")
            if is_declared_here and declaration_of(value).kind != "structure":
                found.append(value)
    return found
