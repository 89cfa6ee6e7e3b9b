"""What a bug switch is: a name from Kafka's tracker, the parts it swaps, and the story and the invariants that must find it."""

from collections.abc import Callable
from dataclasses import dataclass

from kraftsim.catalogue import Catalogue
from kraftsim.node.parts import Parts


@dataclass(frozen=True, kw_only=True, slots=True)
class Bug:
    """A historical bug as a replacement part. `swap` returns the parts of a node that has it; product code never asks for a bug.

    `story` is the scenario in which it is found soonest: reference/bugs.md says how soon.
    """

    name: str
    title: str
    fixed_in: tuple[str, ...]
    swap: Callable[[Parts], Parts]
    story: str
    caught_by: tuple[str, ...]

    def into(self, parts: Parts) -> Parts:
        """Return the parts of a node that has this bug."""
        return self.swap(parts)


def bugs() -> tuple[Bug, ...]:
    """Return every bug, sorted by name."""
    return BUGS.all()


def bug(name: str) -> Bug:
    """Return a bug by its name, for example 'KAFKA-10533'. Raises KeyError naming the ones there are."""
    return BUGS.named(name)


BUGS: Catalogue[Bug] = Catalogue("kraftsim.bugs", "BUG", Bug)
