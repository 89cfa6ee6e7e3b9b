"""Every event class by its kind, found by the files of this package; importing this module loads
the whole catalogue.
"""

import importlib
import pkgutil
from types import ModuleType
from typing import Final

import kraftsim.events as package
from kraftsim.events.event import Event

_NO_EVENTS: Final = ("catalogue", "event")
"""Files of the package that define no kind of event."""

MODULES: Final[tuple[ModuleType, ...]] = tuple(
    importlib.import_module(f"{package.__name__}.{name}")
    for name in sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    if name not in _NO_EVENTS
)
"""The modules that define events, sorted by name."""

_NAMES: Final = frozenset(module.__name__ for module in MODULES)

KINDS: Final[dict[str, type[Event]]] = {
    kind: event for kind, event in sorted(Event.kinds.items()) if event.__module__ in _NAMES
}
"""kind -> event class, sorted by kind."""
