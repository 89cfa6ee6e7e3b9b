"""Extensions: Python files of users with scenarios, invariants, faults, bugs and releases.

An extension exports them under the names that kraftsim's own files use: SCENARIO, INVARIANT, FAULT,
BUG and RELEASE, or several as a tuple under that name with an S. `kraftsim.catalogue` adds them to
the built-in ones, after those.

| named by | read |
|---|---|
| a path, or the name of an installed module (`--extension`, `load`) | at once |
| KRAFTSIM_EXTENSIONS: paths and names as above, separated by os.pathsep | at the first look |
| an entry point of the group `kraftsim.extensions` of an installed package | where all are listed |

A node looks entries up by name, and names of its own come first: without extensions it reads no
entry points, which costs more than the rest of this module.
"""

import importlib
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final

VARIABLE: Final = "KRAFTSIM_EXTENSIONS"
GROUP: Final = "kraftsim.extensions"
EXPORTS: Final = ("SCENARIO", "INVARIANT", "FAULT", "BUG", "RELEASE")
"""What an extension may export, or the same with an S for several."""
EXPORTS_FOR_NODES: Final = ("BUG", "RELEASE")
"""What a node uses."""


class ExtensionError(ValueError):
    """An extension that cannot be used; the message is one line: which, where in it, and why."""


@dataclass(frozen=True, slots=True)
class Extension:
    """A loaded file or module.

    `name` loads it in another process: an absolute path, or the full name of a module that is
    installed. `distribution` is the package that has it as an entry point, else "".
    """

    name: str
    module: ModuleType
    distribution: str = ""

    @property
    def place(self) -> str:
        """The name for people: a path below the current directory is relative to it."""
        return shown(self.name) if is_path(self.name) else self.name

    @property
    def sha256(self) -> str:
        """The digest of its file as it is now; "" if it has none."""
        import hashlib

        try:
            return hashlib.sha256(Path(str(self.module.__file__)).read_bytes()).hexdigest()
        except OSError:
            return ""

    def exports(self, *names: str) -> bool:
        """Return whether the module has anything under one of these names (default: any)."""
        return any(
            hasattr(self.module, name) or hasattr(self.module, f"{name}S")
            for name in names or EXPORTS
        )


@dataclass(slots=True)
class Loaded:
    """What this process has loaded, in that order, by the name of the module."""

    extensions: dict[str, Extension] = field(default_factory=dict)
    has_read_variable: bool = False
    has_read_entry_points: bool = False


class _Process:
    """The extensions of this process."""

    loaded = Loaded()


@contextmanager
def apart() -> Iterator[None]:
    """Run a block as in a process that has loaded nothing and has no installed extensions; what it
    imports is forgotten.
    """
    before, path, modules = _Process.loaded, list(sys.path), dict(sys.modules)
    _Process.loaded = Loaded(has_read_variable=True, has_read_entry_points=True)
    try:
        yield
    finally:
        for each in _Process.loaded.extensions.values():
            if each.module.__name__ not in modules:
                sys.modules.pop(each.module.__name__, None)
        _Process.loaded = before
        sys.path[:] = path


def is_path(name: str) -> bool:
    """Return whether a name is that of a file or directory, not of a module or an entry."""
    return name.endswith(".py") or os.sep in name or "/" in name


def load(name: str | Path) -> tuple[Extension, ...]:
    """Load a file, all files of a directory that export anything, or an installed module.

    Raises ExtensionError for one that fails or exports nothing.
    """
    path = Path(name)
    if isinstance(name, str) and not is_path(name) and not path.is_dir():
        return (_with_exports(_load_module(name)),)
    if not path.is_dir():
        return (_with_exports(_registered(load_file(path), str(path.resolve()))),)
    files = [file for file in sorted(path.glob("*.py")) if not _is_apart(file.name)]
    found = [_registered(load_file(file), str(file.resolve())) for file in files]
    exporting = tuple(extension for extension in found if extension.exports())
    if not exporting:
        raise ExtensionError(f"{name}: no file in this directory exports {_any_of(EXPORTS)}")
    return exporting


def load_file(path: Path) -> ModuleType:
    """Import a Python file, and return its module: the same one for the same file.

    Its directory is on `sys.path` while and after it is imported, as for a script; for a file of a
    package, that of the package. What it exports is in the catalogues from now on.

    Raises ExtensionError for a file that is missing, has a syntax error, or fails.
    """
    file = path.resolve()
    if not file.is_file():
        what = "is a directory" if file.is_dir() else "does not exist"
        raise ExtensionError(f"{shown(path)} {what}: name a Python file")
    module = _module_of(file)
    if module is None:
        try:
            module = _import_file(file)
        except (Exception, SystemExit) as error:
            raise _failed(shown(file), file, error) from error
    _registered(module, str(file))
    return module


def extensions() -> tuple[Extension, ...]:
    """Return what this process has loaded and exports anything, in that order."""
    return tuple(each for each in _Process.loaded.extensions.values() if each.exports())


def exporting(export: str, *, installed: bool) -> list[Extension]:
    """Return the extensions that export something under a name of `EXPORTS`.

    `installed` also reads the entry points. Raises ExtensionError for one that fails.
    """
    if export not in EXPORTS:
        return []
    loaded = _Process.loaded
    _read_variable()
    if installed and not loaded.has_read_entry_points:
        loaded.has_read_entry_points = True
        _load_entry_points()
    return [each for each in tuple(loaded.extensions.values()) if each.exports(export)]


def loadable() -> tuple[str, ...]:
    """Return what to `load` in another process so that it has the extensions of this one."""
    return tuple(each.name for each in extensions())


def for_child(*exports: str) -> dict[str, str]:
    """Return the environment of a process that has the extensions of this one which export one of
    the names; those of installed packages it finds itself.
    """
    _read_variable()
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    handed_on = [
        each.name for each in extensions() if each.exports(*exports) and not each.distribution
    ]
    return {**environment, VARIABLE: os.pathsep.join(handed_on)} if handed_on else environment


def options(*exports: str) -> list[str]:
    """Return the options that give a command the extensions of this process, or those of them that
    export one of the names: words of a command line. Those of installed packages need none.
    """
    named = [
        each.place for each in extensions() if not each.distribution and each.exports(*exports)
    ]
    return [word for place in named for word in ("--extension", place)]


def shown(path: str | Path) -> str:
    """Return a path for people and for files that others read: relative if it is below the current
    directory.
    """
    absolute = Path(os.path.abspath(path))
    here = Path.cwd()
    return f"./{absolute.relative_to(here)}" if absolute.is_relative_to(here) else str(absolute)


def _read_variable() -> None:
    loaded = _Process.loaded
    if not loaded.has_read_variable:
        loaded.has_read_variable = True  # before: an extension may read a catalogue
        for name in os.environ.get(VARIABLE, "").split(os.pathsep):
            if name:
                load(name)


def _registered(module: ModuleType, name: str, distribution: str = "") -> Extension:
    return _Process.loaded.extensions.setdefault(
        module.__name__, Extension(name, module, distribution)
    )


def _with_exports(extension: Extension) -> Extension:
    if not extension.exports():
        raise ExtensionError(f"{extension.place} exports none of {_any_of(EXPORTS)}")
    return extension


def _any_of(exports: Sequence[str]) -> str:
    return f"{', '.join(exports[:-1])} or {exports[-1]}"


def _is_apart(file_name: str) -> bool:
    return file_name.startswith(("_", "test_")) or file_name in ("conftest.py", "setup.py")


def _load_module(name: str, distribution: str = "") -> Extension:
    where = f"{name} (an entry point of {distribution})" if distribution else name
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and name.startswith(error.name or " "):
            raise ExtensionError(
                f"there is no module {where}: name an installed module, or a file as ./{name}.py"
            ) from error
        raise _failed(where, None, error) from error
    return _registered(module, name, distribution)


def _load_entry_points() -> None:
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        _load_module(point.module, point.dist.name if point.dist is not None else point.name)


# --------------------------------------------------------------------------------------------------
# The import of a file


def _module_of(file: Path) -> ModuleType | None:
    """Return the module of a file that is imported already, by whatever name: that of a test, say,
    that pytest imported.
    """
    for module in list(sys.modules.values()):
        # not getattr: a module may import others when it is asked for an attribute
        place = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(place, str) and place.endswith(file.name) and Path(place).resolve() == file:
            return module
    return None


def _import_file(file: Path) -> ModuleType:
    """Import a file under the name by which its neighbours import it, or, if that name belongs to
    another module, under one made of its path.
    """
    from importlib.util import find_spec, module_from_spec, spec_from_file_location

    parts, directory = [file.stem], file.parent
    while (directory / "__init__.py").is_file():
        parts.insert(0, directory.name)
        directory = directory.parent
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    importlib.invalidate_caches()  # the file may be newer than what Python remembers
    name = ".".join(parts)
    if name not in sys.modules:
        found = find_spec(name)
        if found is not None and found.origin is not None and Path(found.origin).resolve() == file:
            return importlib.import_module(name)
    name = f"{file.stem}_{zlib.crc32(str(file).encode()):08x}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ExtensionError(f"{shown(file)} is no Python file: its name must end in .py")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _failed(place: str, file: Path | None, error: BaseException) -> ExtensionError:
    """Return one line that says where an import failed, and why."""
    if isinstance(error, ExtensionError):
        return error
    said = next(iter(str(error).splitlines()), "")
    if isinstance(error, SyntaxError):
        in_file = shown(error.filename) if error.filename else place
        return ExtensionError(
            f"{in_file}, line {error.lineno}: {type(error).__name__}: {error.msg}"
        )
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    line = next((each.lineno for each in reversed(frames) if each.filename == str(file)), None)
    where = place if line is None else f"{place}, line {line}"
    return ExtensionError(f"{where}: {type(error).__name__}: {said}".rstrip(": "))
