"""One object per file: finds the files of a kind by name and imports them on demand.

A scenario, an invariant, a fault, a bug, a release, a handler, a chapter: each is one file that
exports one object. Each object is found by its file name, and a file that exports nothing, or
something else, is an error as soon as the catalogue is read.
"""

import difflib
import importlib
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, TypeVar

from kraftsim.former_names import present_name

Entry = TypeVar("Entry")
LISTED_MAX = 25
"""More names than that do not fit an error of one line."""
NEAR_MAX = 3


class CatalogueError(TypeError):
    """A file of a catalogue that does not export exactly one object of the kind."""


@dataclass(frozen=True, slots=True)
class Catalogue(Generic[Entry]):
    """The entries of `package`: modules that export an object of `kind` under the name `export`.

    An asterisk in the name of the package stands for one of its parts: `kraftsim.*.broker_handlers`
    are the packages of that name in all folders of `kraftsim`. The module that defines the kind,
    the modules named in `apart`, modules whose name starts with an underscore, and sub-packages are
    no entries.
    """

    package: str
    export: str
    kind: type[Entry]
    apart: tuple[str, ...] = ()
    former: Mapping[str, str] = field(default_factory=dict)
    """Names of an earlier release and what they became: see `kraftsim.former_names`."""

    def files(self) -> tuple[str, ...]:
        """Return the names of the entries' files without '.py', sorted; imports none of them."""
        return tuple(file for file in _modules_in(self.package) if self._is_entry(file))

    def module(self, file: str) -> str:
        """Return the full name of the module of a file."""
        return _modules_in(self.package)[file]

    def load(self, file: str) -> Entry:
        """Import one file and return its entry.

        Raises CatalogueError if the file exports anything else.
        """
        place = self.module(file)
        module = importlib.import_module(place)
        entry = getattr(module, self.export, None)
        if not isinstance(entry, self.kind):
            raise CatalogueError(f"{place} must export one {self.kind.__name__} as {self.export}")
        others = [
            name
            for name, value in vars(module).items()
            if isinstance(value, self.kind) and value is not entry and not self._is_borrowed(value)
        ]
        if others:
            raise CatalogueError(
                f"{place} exports {', '.join(sorted(others))} beside "
                f"{self.export}: one file, one {self.kind.__name__}"
            )
        return entry

    def all(self) -> tuple[Entry, ...]:
        """Import every entry and return them in the order of their files."""
        return tuple(self.load(file) for file in self.files())

    def names(self) -> tuple[str, ...]:
        """Return the entries' names, in the order of their files."""
        return tuple(
            entry_name(entry, file) for file in self.files() for entry in (self.load(file),)
        )

    def named(self, name: str) -> Entry:
        """Return the entry of a name ('-' and '_' are alike), importing no more files than needed.

        A name of an earlier release is accepted with a FormerNameWarning. Raises KeyError that
        lists names.
        """
        wanted = _as_file(present_name(self.former, name, self.kind.__name__.lower()))
        for file in sorted(self.files(), key=lambda file: (not file.startswith(wanted), file)):
            entry = self.load(file)
            if wanted in (file, _as_file(entry_name(entry, file))):
                return entry
        raise KeyError(f"no {self.kind.__name__.lower()} is called {name}{self._instead(name)}")

    def _instead(self, name: str) -> str:
        """Return suggestions for an unknown name: all names if they are few, else the nearest and
        how to list the rest.
        """
        names = self.names()
        if len(names) <= LISTED_MAX:
            return f" (there are: {', '.join(_nearest_first(name, names)) or 'none'})"
        near = difflib.get_close_matches(name, names, n=NEAR_MAX)
        meant = f"; did you mean {' or '.join(near)}?" if near else ";"
        return f"{meant} `kraftsim list {self.package.rpartition('.')[2]}` names all {len(names)}"

    def _is_borrowed(self, value: Entry) -> bool:
        """Return whether the value is the entry of another file, imported as a base (a release is a
        delta of the previous one).
        """
        modules = (sys.modules.get(self.module(file)) for file in self.files())
        return any(getattr(module, self.export, None) is value for module in modules)

    def _is_entry(self, file: str) -> bool:
        return (
            not file.startswith("_")
            and file not in self.apart
            and self.module(file) != self.kind.__module__
        )


@cache
def _modules_in(package: str) -> Mapping[str, str]:
    """Return the full names of the modules of a package by their own names, sorted.

    Raises CatalogueError if two of its folders have a module of one name. Cached: a program's files
    do not change while it runs.
    """
    found: dict[str, str] = {}
    for place in _matching(package):
        for module in pkgutil.iter_modules(importlib.import_module(place).__path__):
            if not module.ispkg and found.setdefault(module.name, place) != place:
                raise CatalogueError(f"{found[module.name]} and {place} both have {module.name}.py")
    return {name: f"{found[name]}.{name}" for name in sorted(found)}


def _matching(package: str) -> list[str]:
    """Return the packages of a name with an asterisk for one of its parts."""
    root, asterisk, name = package.partition(".*.")
    if not asterisk:
        return [package]
    places = tuple(importlib.import_module(root).__path__)
    return [
        f"{root}.{parent}.{name}"
        for parent in _packages_in(places)
        if name in _packages_in(tuple(os.path.join(place, parent) for place in places))
    ]


def _packages_in(places: Sequence[str]) -> list[str]:
    return [module.name for module in pkgutil.iter_modules(places) if module.ispkg]


def entry_name(entry: object, file: str) -> str:
    """Return the name of an entry (`entry.name`), or its file's name with hyphens."""
    name = getattr(entry, "name", None)
    return name if isinstance(name, str) else file.replace("_", "-")


def _nearest_first(name: str, names: tuple[str, ...]) -> list[str]:
    near = difflib.get_close_matches(name, names, n=1)
    return near + [other for other in names if other not in near]


def _as_file(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")
