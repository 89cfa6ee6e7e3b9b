"""Every event class by its kind, found by the files that define events: `events*.py` of each
concern, and the files of this package. Importing this module loads the whole catalogue.
"""

import importlib
import os
import pkgutil
from types import ModuleType
from typing import Final

import kraftsim.events as package
from kraftsim.events.event import Event

_CONCERNS: Final = [os.path.dirname(place) for place in package.__path__]
_NO_EVENTS: Final = ("catalogue", "event")
"""Files of the package that define no kind of event."""


def _names() -> list[str]:
    own = [f"{package.__name__}.{each.name}" for each in pkgutil.iter_modules(package.__path__)]
    concerns = [
        f"kraftsim.{concern.name}.{module}"
        for concern in pkgutil.iter_modules(_CONCERNS)
        if concern.ispkg
        for module in _modules_in(concern.name)
        if module.partition("_")[0] == "events"
    ]
    return sorted(name for name in (*own, *concerns) if name.rpartition(".")[2] not in _NO_EVENTS)


def _modules_in(concern: str) -> list[str]:
    places = [os.path.join(place, concern) for place in _CONCERNS]
    return [module.name for module in pkgutil.iter_modules(places)]


MODULES: Final[tuple[ModuleType, ...]] = tuple(map(importlib.import_module, _names()))
"""The modules that define events, sorted by name."""

_DEFINED_IN: Final = frozenset(module.__name__ for module in MODULES)

KINDS: Final[dict[str, type[Event]]] = {
    kind: event for kind, event in sorted(Event.kinds.items()) if event.__module__ in _DEFINED_IN
}
"""kind -> event class, sorted by kind."""


def event_class(kind: str) -> type[Event] | None:
    """Return the class of a kind, also one that a file of a user defines; None for an unknown
    kind.
    """
    return KINDS.get(kind) or Event.kinds.get(kind)


def family(module: str) -> str:
    """Return what the events of a module are about: the name of its concern, with what follows
    `events` in the name of its file; or the name of a file of this package.
    """
    _, place, name = module.split(".")
    return name if place == "events" else place + name.removeprefix("events")
