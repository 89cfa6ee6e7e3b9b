"""Paths on a node's disk: relative, '/' between parts, never out of the data directory."""


def checked(path: str) -> str:
    """Return the path if it stays inside the data directory.

    Raises ValueError for an absolute path, an empty part, '.' or '..'.
    """
    for part in path.split("/"):
        if part in ("", ".", "..") or "\0" in part:
            raise ValueError(f"{path!r} is not a path inside a data directory")
    return path


def directory_of(path: str) -> str:
    """Return the directory a path is in; '' is the root."""
    return path.rpartition("/")[0]
