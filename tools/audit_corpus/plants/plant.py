"""A kind of defect to plant, and the catalogue of all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kraftsim.catalogue import Catalogue
from tools.audit_corpus.plants.disks import Disks, Planted


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """One kind of defect."""

    name: str
    about: str
    """What is done to the disks, in one sentence."""
    rules: tuple[str, ...]
    """Rules of which at least one must name the place."""
    also: tuple[str, ...] = ()
    """Rules that may alarm too, because the defect breaks what they state."""
    plant: Callable[[Disks], Planted]
    """Plants it. Raises Unplantable."""


def plant_of(
    name: str,
    plant: Callable[[Disks], Planted],
    rules: Sequence[str],
    also: Sequence[str] = (),
) -> Plant:
    """Return a plant whose description is the docstring of its function."""
    about = " ".join((plant.__doc__ or "").split())
    return Plant(name=name, about=about, rules=tuple(rules), also=tuple(also), plant=plant)


PLANTS: Final = Catalogue("tools.audit_corpus.plants", "PLANT", Plant, apart=("disks", "plant"))
