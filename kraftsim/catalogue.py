"""Finds the entries of a kind in the files of a package, and imports them on demand.

Scenarios, invariants, faults, bugs, releases, handlers, chapters: a file exports one of them, or
several that belong together. Nothing else lists them: a file that exports nothing, or something
else, is an error as soon as the catalogue is read.

Extensions of users (`kraftsim.extensions`) add entries after those of the package.
"""

import difflib
import importlib
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Generic, TypeVar

from kraftsim.extensions import Extension, ExtensionError, exporting
from kraftsim.former_names import present_name

Entry = TypeVar("Entry")
LISTED_MAX = 25
"""More names than that do not fit an error of one line."""
NEAR_MAX = 3
EXTENSION = "extension:"
"""Begins what `Catalogue.with_files` gives in place of a file for the entry of an extension."""


class CatalogueError(TypeError):
    """A file of a catalogue that does not export what it defines, or nothing of the kind."""


@dataclass(frozen=True, slots=True)
class Catalogue(Generic[Entry]):
    """The entries of `package`: modules that export an object of `kind` under the name `export`, or
    several in a tuple under that name with an S.

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
        extension = self.extension(file)
        return _modules_in(self.package)[file] if extension is None else extension.module.__name__

    def extension(self, file: str) -> Extension | None:
        """Return the extension that `with_files` calls by this name; None for a file of the
        package.
        """
        if not file.startswith(EXTENSION):
            return None
        name = file.removeprefix(EXTENSION)
        return next(each for each in exporting(self.export, installed=True) if each.name == name)

    def entries(self, file: str) -> tuple[Entry, ...]:
        """Import one file and return its entries, in the order of its tuple.

        Raises CatalogueError if the file exports anything else.
        """
        extension = self.extension(file)
        if extension is not None:
            return self.of_extension(extension)
        place = self.module(file)
        module = importlib.import_module(place)
        found = self._exported(module)
        if not found or not all(isinstance(entry, self.kind) for entry in found):
            raise CatalogueError(
                f"{place} must export one {self.kind.__name__} as {self.export}, or several in a "
                f"tuple {self.export}S"
            )
        others = [
            name
            for name, value in vars(module).items()
            if isinstance(value, self.kind)
            and not any(value is entry for entry in found)
            and not self._is_borrowed(value)
        ]
        if others:
            raise CatalogueError(
                f"{place} exports {', '.join(sorted(others))} beside {self.export}: name all in a "
                f"tuple {self.export}S"
            )
        return found

    def of_extension(self, extension: Extension) -> tuple[Entry, ...]:
        """Return the entries of an extension, in the order of its tuple: none if it has none.

        Raises ExtensionError if it exports anything else.
        """
        if not extension.exports(self.export):
            return ()
        found = self._exported(extension.module)
        if not found or not all(isinstance(entry, self.kind) for entry in found):
            raise ExtensionError(
                f"{extension.place} must export a {self.kind.__name__} as {self.export}, or "
                f"several in a tuple {self.export}S"
            )
        return found

    def require_valid_extensions(self) -> None:
        """Raise ExtensionError if an extension exports something else under the name of this kind,
        or an entry by a name that is taken.
        """
        self._added(installed=False)

    def all(self) -> tuple[Entry, ...]:
        """Import every entry and return them in their order: see `with_files`."""
        return tuple(entry for _, entry in self.with_files())

    def names(self) -> tuple[str, ...]:
        """Return the entries' names, in their order."""
        return tuple(entry_name(entry, file) for file, entry in self.with_files())

    def named(self, name: str) -> Entry:
        """Return the entry of a name ('-' and '_' are alike), importing no more files than needed.

        A name of an earlier release is accepted with a FormerNameWarning. Raises KeyError that
        lists names.
        """
        wanted = _as_file(present_name(self.former, name, self.kind.__name__.lower()))
        self._added(installed=False)  # an extension with the name of a built-in entry is an error
        for file in sorted(self.files(), key=lambda file: (not file.startswith(wanted), file)):
            entries = self.entries(file)
            for entry in entries:
                if wanted == _as_file(entry_name(entry, file)):
                    return entry
            if wanted == file and len(entries) == 1:
                return entries[0]
        for file, entry in self._added(installed=True):
            if wanted == _as_file(entry_name(entry, file)):
                return entry
        raise KeyError(f"no {self.kind.__name__.lower()} is called {name}{self._instead(name)}")

    def with_files(self) -> list[tuple[str, Entry]]:
        """Import every entry and return it with its file: files with one entry are sorted by their
        own name, the entries of others by theirs; those of extensions follow.

        So it does not matter which of them share a file: schedules draw from this order.
        """
        return [*self._built_in(), *self._added(installed=True)]

    def _built_in(self) -> list[tuple[str, Entry]]:
        found = [(file, self.entries(file)) for file in self.files()]
        keyed = [
            (file if len(entries) == 1 else _as_file(entry_name(entry, file)), file, entry)
            for file, entries in found
            for entry in entries
        ]
        return [(file, entry) for _, file, entry in sorted(keyed, key=lambda each: each[0])]

    def _added(self, *, installed: bool) -> list[tuple[str, Entry]]:
        """Return the entries of extensions, as `with_files` does; `installed`: also those of
        installed packages.

        Raises ExtensionError if two entries have one name.
        """
        extensions = exporting(self.export, installed=installed)
        if not extensions:
            return []
        added: list[tuple[str, Entry]] = []
        taken = {_as_file(entry_name(entry, file)): ("", entry) for file, entry in self._built_in()}
        for extension in extensions:
            for entry in self.of_extension(extension):
                file = f"{EXTENSION}{extension.name}"
                name = entry_name(entry, file)
                place, other = taken.setdefault(_as_file(name), (extension.place, entry))
                if other is not entry:
                    raise ExtensionError(_clash(self.export.lower(), name, extension.place, place))
                if place == extension.place:
                    added.append((file, entry))
        return added

    def _exported(self, module: ModuleType | None) -> tuple[Entry, ...]:
        several = getattr(module, f"{self.export}S", None)
        if isinstance(several, tuple | list):
            return tuple(several)
        one = getattr(module, self.export, None)
        return () if one is None else (one,)

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
        return any(value is entry for module in modules for entry in self._exported(module))

    def _is_entry(self, file: str) -> bool:
        return (
            not file.startswith("_")
            and file not in self.apart
            and self.module(file) != self.kind.__module__
        )


def sibling(package: str) -> str:
    """Return the full name of a package that lies beside `kraftsim` in the source tree; a wheel
    installs it inside.
    """
    inside = os.path.join(os.path.dirname(__file__), package)
    return f"kraftsim.{package}" if os.path.isdir(inside) else package


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


def _clash(kind: str, name: str, place: str, other: str) -> str:
    """Return one line about two entries of one name; `other` is "" for a built-in one."""
    if not other:
        return f"{place}: there is a built-in {kind} {name}: choose another name"
    where = f"{place} has two {kind}s" if place == other else f"{place} and {other} have a {kind}"
    return f"{where} called {name}: rename one"


def _nearest_first(name: str, names: tuple[str, ...]) -> list[str]:
    near = difflib.get_close_matches(name, names, n=1)
    return near + [other for other in names if other not in near]


def _as_file(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")
