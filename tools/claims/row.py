"""A claim of a design document as data: its checks, a sentence with figures, and the conditions
from which its verdict is derived.

Rows contain no verdicts and sentences no figures: both are computed from the figures that the row's
checks return.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Figures = Mapping[str, object]
HOLDS, LIMITS, REFUTED, DIFFERS, ARGUED, FAILED = (
    "holds",
    "holds with limits",
    "does not hold",
    "differs from what shipped",
    "argued",
    "not shown",
)
VERDICTS: Final = (HOLDS, LIMITS, REFUTED, DIFFERS, ARGUED, FAILED)
NAMES: Final = {
    "__builtins__": {
        "abs": abs,
        "all": all,
        "any": any,
        "len": len,
        "max": max,
        "min": min,
        "set": set,
        "sum": sum,
    }
}
"""The functions that a condition may call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One claim.

    `checks` names registered checks, or tests by their node id (a file: all of its tests).

    `says` is a sentence with figures in braces, as str.format has them. The conditions are Python
    expressions over the same figures; an empty one is ignored. In this order: the claim is refuted
    where `holds` is false; it differs from what shipped where `differs` is true; it has limits
    where `limits` is true; else it holds. `argued` says why no program can decide the claim, and is
    then the verdict's reason.
    """

    id: str
    starred: bool = False
    kind: str
    claim: str
    shipped: str
    checks: tuple[str, ...]
    says: str
    holds: str = ""
    differs: str = ""
    limits: str = ""
    argued: str = ""

    @property
    def document(self) -> str:
        """The document of the row."""
        return self.id.partition("-")[0]

    def verdict(self, figures: Figures, *, passed: bool) -> str:
        """Return the verdict for the figures; `passed`: whether every check passed."""
        if not passed:
            return FAILED
        if self.argued:
            return ARGUED
        if self.holds and not is_so(self.holds, figures):
            return REFUTED
        if self.differs and is_so(self.differs, figures):
            return DIFFERS
        return LIMITS if self.limits and is_so(self.limits, figures) else HOLDS

    @property
    def conditions(self) -> dict[str, str]:
        """The conditions that count, by name."""
        named = {"holds": self.holds, "differs": self.differs, "limits": self.limits}
        return {name: condition for name, condition in named.items() if condition}

    def sentence(self, figures: Figures) -> str:
        """Return the sentence with its figures.

        Raises KeyError for a figure that no check returned.
        """
        return self.says.format(**figures)


def is_so(condition: str, figures: Figures) -> bool:
    """Return whether a condition holds for the figures.

    Raises NameError for a figure that no check returned.
    """
    return bool(eval(condition, {**NAMES, **figures}))


def joined(figures_of_checks: Mapping[str, Figures]) -> dict[str, object]:
    """Return the figures of all checks of a row.

    Raises ValueError if two checks return different figures with one name.
    """
    found: dict[str, object] = {}
    for check, figures in figures_of_checks.items():
        for name, value in figures.items():
            if found.setdefault(name, value) != value:
                raise ValueError(f"{name} is {found[name]!r} and, by {check}, {value!r}")
    return found
