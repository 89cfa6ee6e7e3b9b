"""All mutants: the handwritten ones, one file per core, and those that the generator makes from
selected functions.
"""

from functools import cache

from kraftsim.catalogue import Catalogue
from tools.mutants.mutant import Core, Mutant

CORES: Catalogue[Core] = Catalogue("tools.mutants.cores", "CORE", Core)


@cache
def mutants() -> tuple[Mutant, ...]:
    """Return every mutant, in the order of the cores.

    Raises ValueError if two have the same name.
    """
    from tools.mutants.generator import generated

    found = (*(each for core in CORES.all() for each in core.mutants), *generated())
    names = [each.name for each in found]
    if len(set(names)) != len(names):
        raise ValueError(
            f"two mutants are called {next(name for name in names if names.count(name) > 1)}"
        )
    return found


def mutant_named(name: str) -> Mutant:
    """Return one mutant. Raises KeyError."""
    for each in mutants():
        if each.name == name:
            return each
    raise KeyError(f"no mutant is called {name}")
