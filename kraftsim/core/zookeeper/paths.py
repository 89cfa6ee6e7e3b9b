"""The paths of znodes.

Source: org.apache.zookeeper.common.PathUtils, org.apache.zookeeper.server.DataTree (special paths).
"""

from typing import Final

ROOT: Final = "/"
SPECIAL: Final = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")
"""They always exist and cannot be deleted."""
_NOT_ALLOWED: Final = (
    ("\u0001", "\u001f"),
    ("\u007f", "\u009f"),
    ("\ud800", "\uf8ff"),
    ("\ufff0", "\uffff"),
)


def is_valid(path: str) -> bool:
    """Return whether a text is a valid path."""
    if path == ROOT:
        return True
    if not path.startswith(ROOT) or path.endswith(ROOT):
        return False
    names = path[1:].split("/")
    return all(name not in ("", ".", "..") for name in names) and not any(
        _is_refused(letter) for letter in path
    )


def parent_of(path: str) -> str:
    """Return the parent of a path."""
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    """Return the last component of a path."""
    return path[path.rindex("/") + 1 :]


def _is_refused(letter: str) -> bool:
    return letter == "\0" or any(first <= letter <= last for first, last in _NOT_ALLOWED)
