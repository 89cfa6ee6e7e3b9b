"""Keeps generated code between runs, so that a start imports neither construct nor the compiler.

The name of an entry is a digest of everything that it was generated from: the declaration with all
its nested structures, the version, the sources of this package, and the Python that compiled it. So
an entry is never out of date: with a changed field or compiler it has another name. An entry is two
files: the source, which tracebacks and readers use, and the compiled code behind its own checksum,
which alone is read at a start. Both are renamed into place, so processes that start together
overwrite each other with the same bytes; a damaged or truncated entry fails its checksum, is
generated again and replaced.

Entries lie in `__pycache__` beside this package, where Python keeps its own, or if that is not
writable in the user's cache directory (XDG_CACHE_HOME); KRAFTSIM_CODEC_CACHE names another. Without
a writable directory everything is generated in each process. Each state of this package has a
folder of its own in there, and a new one removes those that are a week old.
"""

import linecache
import marshal
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from os import getpid  # that of the real process, also in a simulation
from threading import get_ident
from types import CodeType

from protocol.codec.declaration import Scope, classes_of, declaration_of

DIRECTORY_VARIABLE = "KRAFTSIM_CODEC_CACHE"
PACKAGE = os.path.dirname(os.path.abspath(__file__))
PACKAGE_PARENT = os.path.dirname(PACKAGE)
PYTHON = f"{sys.implementation.cache_tag} {sys.hexversion:x} {sys.flags.optimize}"
CHECKSUM_BYTES = 32
DIGEST_CHARACTERS = 32
KEPT_SECONDS = 7 * 24 * 3600
CODE, SOURCE = ".code", ".source"


def generated(
    cls: type, version: int | None, title: str, source: Callable[[], str], scope: Scope
) -> Scope:
    """Execute generated code in a scope, and return that.

    `source` is called if it is not in the store.

    `CLASSES` of the scope are the message class and its structures, by which the code refers to
    them.
    """
    name = _name(cls, version, title)
    path = _path(name)
    code = None if path is None else _load(path)
    if code is None:
        code = _generate(name, path, source())
    scope["CLASSES"] = classes_of(cls)
    exec(code, scope)
    return scope


def directory() -> str | None:
    """Return the directory of the entries, None if there is none that can be written to."""
    return _directory(os.environ.get(DIRECTORY_VARIABLE))


@cache
def compiler_digest() -> str:
    """Return a digest of this package: whatever of it changes, nothing generated before is used."""
    digest = sha256(PYTHON.encode())
    for name in sorted(os.listdir(PACKAGE)):
        if name.endswith(".py"):
            with open(os.path.join(PACKAGE, name), "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()


def _name(cls: type, version: int | None, title: str) -> str:
    content = f"{declaration_of(cls).digest} {version} {title}"
    readable = (
        f"{cls.__name__}.{title}" if version is None else f"{cls.__name__}.v{version}.{title}"
    )
    return (
        f"{readable.replace(' ', '_')}.{sha256(content.encode()).hexdigest()[:DIGEST_CHARACTERS]}"
    )


def _path(name: str) -> str | None:
    found = directory()
    return None if found is None else os.path.join(found, name)


def _load(path: str) -> CodeType | None:
    """Return the code of an entry, None if there is none or its checksum is wrong."""
    try:
        with open(path + CODE, "rb") as file:
            content = file.read()
    except OSError:
        return None
    if sha256(content[CHECKSUM_BYTES:]).digest() != content[:CHECKSUM_BYTES]:
        return None
    code = marshal.loads(content[CHECKSUM_BYTES:])
    return code if isinstance(code, CodeType) else None


def _generate(name: str, path: str | None, source: str) -> CodeType:
    filename = f"<{name}>" if path is None else path + SOURCE
    code = compile(source, filename, "exec", dont_inherit=True)
    content = marshal.dumps(code)
    is_saved = (
        path is not None
        and _save(path + SOURCE, source.encode())
        and _save(path + CODE, sha256(content).digest() + content)
    )
    if not is_saved:
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return code


def _save(path: str, content: bytes) -> bool:
    """Write a file under another name and rename it; return whether that worked."""
    part = f"{path}.{getpid()}.{get_ident()}"
    try:
        with open(part, "wb") as file:
            file.write(content)
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            os.unlink(part)
        return False
    return True


@cache
def _directory(chosen: str | None) -> str | None:
    for parent in [chosen] if chosen else _usual_parents():
        found = os.path.join(parent, compiler_digest()[:DIGEST_CHARACTERS])
        if not os.path.isdir(found):
            try:
                os.makedirs(found, mode=0o700, exist_ok=True)
            except OSError:
                continue
            with suppress(OSError):  # another process removes them, too
                _remove_old(parent)
        if os.access(found, os.W_OK):
            return found
    return None


def _usual_parents() -> Iterator[str]:
    yield os.path.join(PACKAGE_PARENT, "__pycache__", "codec")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    yield os.path.join(home, "kraftsim", "codec")


def _remove_old(parent: str) -> None:
    """Remove the folders of states of this package that are a week older than the newest; a process
    that still uses one generates again.
    """
    from shutil import rmtree  # takes as long to import as the rest of this module

    folders = [
        os.path.join(parent, name) for name in os.listdir(parent) if len(name) == DIGEST_CHARACTERS
    ]
    times = {folder: os.path.getmtime(folder) for folder in folders if os.path.isdir(folder)}
    for folder, changed in times.items():
        if changed < max(times.values()) - KEPT_SECONDS:
            rmtree(folder, ignore_errors=True)
