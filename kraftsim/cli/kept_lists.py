"""Keeps what `kraftsim list` printed, because it imports all files of a catalogue to print a line
for each.

A text is kept beside compiled modules, or, if that is not writable, in the user's cache directory
(XDG_CACHE_HOME), with the state of everything that it was made from: name,
size and time of each source file, the Python, and the time of the directories in which packages are
installed. In another state it is made again. With extensions nothing is kept: their files may be
anywhere.
"""

import os
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256

import kraftsim
from kraftsim.extensions import VARIABLE, extensions

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(kraftsim.__file__)), "__pycache__")
BESIDE = ("protocol", "scenarios")
"""Packages beside kraftsim in the source tree; a wheel has them inside."""


def kept_text(name: str, make: Callable[[], str]) -> str:
    """Return a text that was made from the present files, or make it."""
    if os.environ.get(VARIABLE) or extensions():
        return make()
    path, state = os.path.join(_directory(), f"list-{name}.txt"), _state()
    try:
        with open(path, encoding="utf-8", newline="") as file:
            of_state, _, text = file.read().partition("\n")
    except (OSError, UnicodeDecodeError):
        of_state = ""
    if of_state == state:
        return text
    text = make()
    if not extensions():  # it may have found installed ones
        _write(path, f"{state}\n{text}")
    return text


def _directory() -> str:
    if os.access(DIRECTORY, os.W_OK):
        return DIRECTORY
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "kraftsim")


def _state() -> str:
    digest = sha256(sys.version.encode())
    for line in _files():
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


def _files() -> Iterator[str]:
    """Yield a line about each source file, and about each directory of packages."""
    package = os.path.dirname(DIRECTORY)
    directories = [package, *(os.path.join(os.path.dirname(package), each) for each in BESIDE)]
    while directories:
        try:
            entries = sorted(os.scandir(directories.pop()), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name.endswith(".py"):
                found = entry.stat()
                yield f"{entry.path} {found.st_mtime_ns} {found.st_size}\n"
            elif entry.name != "__pycache__" and entry.is_dir():
                directories.append(entry.path)
    for directory in sys.path:
        try:
            yield f"{directory} {os.stat(directory).st_mtime_ns}\n"
        except OSError:
            yield f"{directory}\n"


def _write(path: str, content: str) -> None:
    part = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "w", encoding="utf-8", newline="") as file:
            file.write(content)
        os.replace(part, path)
    except OSError:  # a directory that only another user may write to
        return
