"""A bug switch: a name from Kafka's issue tracker, the parts that it replaces, and the scenario and
invariants that must find it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kraftsim.catalogue import Catalogue
from kraftsim.server.parts import Parts


@dataclass(frozen=True, kw_only=True, slots=True)
class Bug:
    """A historical bug as a replacement part.

    `swap` returns the parts of a node with the bug; product code never checks for bugs.

    `about` says what went wrong, how it shows, and its ticket; a bug with a file of its own says
    that in the docstring of the file.

    `scenario` is the scenario that finds it soonest: reference/bugs.md lists how soon.

    `release` is that of the nodes there: '' is the scenario's own.
    """

    name: str
    title: str
    fixed_in: tuple[str, ...]
    swap: Callable[[Parts], Parts]
    scenario: str
    caught_by: tuple[str, ...]
    about: str = ""
    release: str = ""

    def into(self, parts: Parts) -> Parts:
        """Return the parts of a node that has this bug."""
        return self.swap(parts)


def bugs() -> tuple[Bug, ...]:
    """Return every bug, sorted by name."""
    return BUGS.all()


def bug(name: str) -> Bug:
    """Return a bug by its name, for example 'KAFKA-10533'. Raises KeyError with the known names."""
    return BUGS.named(name)


BUGS: Catalogue[Bug] = Catalogue("kraftsim.lab.bugs", "BUG", Bug)
