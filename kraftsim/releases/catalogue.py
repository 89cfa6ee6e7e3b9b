"""The releases, found by their files."""

from kraftsim.catalogue import Catalogue
from kraftsim.releases.release import Release

RELEASES = Catalogue("kraftsim.releases", "RELEASE", Release, apart=("catalogue", "traits"))

DEFAULT_RELEASE = "3.9"


def release(name: str) -> Release:
    """Return the release of a line, for example "3.9".

    Raises KeyError that lists the known names.
    """
    return RELEASES.named(name)


def releases() -> tuple[Release, ...]:
    """Return every release, oldest first."""
    return tuple(sorted(RELEASES.all(), key=lambda known: _number(known.name)))


def is_before(line: str, other: str) -> bool:
    """Return whether a release line, "3.9", or a level that it introduced, "3.9-IV0", is older than
    another line.
    """
    return _number(line) < _number(other)


def _number(line: str) -> tuple[int, ...]:
    return tuple(int(part) for part in line.partition("-")[0].split("."))
