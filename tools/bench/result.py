"""What a bench found: a figure with the values of its rounds, those of a peer measured in the same
run, and the goal.

A bench calls `report`, which prints the figure as a line. The record (`record.py`) and comparisons
(`compare.py`) set KRAFTSIM_BENCH_FIGURES to a file; then `report` also appends the figure to it, so
that a bench that fails later has not lost what it measured before.
"""

import os
import re
from collections.abc import Sequence
from enum import Enum
from math import floor, log10
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec

from tools.bench.goals import goals

FILE_VARIABLE: Final = "KRAFTSIM_BENCH_FIGURES"
NAME: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_+-]+)+")
"""bench.figure.variant: a name stays as it is, or a history ends and another one begins."""
KEPT_DIGITS: Final = 5


class Better(Enum):
    """The direction in which a figure improves."""

    LOWER = "lower"
    HIGHER = "higher"


class Basis(Enum):
    """What a figure is made of: CPU time hardly depends on other work on the machine, wall-clock
    time does, and bytes or counts do not.
    """

    CPU = "cpu"
    WALL = "wall"
    SIZE = "size"


class Ratio(NamedTuple):
    """How many times as good as the peer: above 1 is better, whatever the unit; with the least and
    the most of the rounds.
    """

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        spread = f" ({self.least:.2f} to {self.most:.2f})" if self.least < self.most else ""
        return f"{self.median:.2f}{spread}"


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measured figure. `values` has one value per round, in their order; a percentile of one
    run is one value.
    """

    name: str
    title: str
    unit: str
    better: Better
    basis: Basis
    values: tuple[float, ...]
    peer: str = ""
    peer_values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        assert NAME.fullmatch(self.name), f"{self.name} is bench.figure.variant"
        assert self.values, f"{self.name} has a value"
        assert bool(self.peer) == bool(self.peer_values), f"{self.name}: a peer has values"

    @property
    def median(self) -> float:
        """The figure itself."""
        return median(self.values)

    @property
    def best(self) -> float:
        """The best round."""
        return max(self.values) if self.better is Better.HIGHER else min(self.values)

    @property
    def worst(self) -> float:
        """The worst round."""
        return min(self.values) if self.better is Better.HIGHER else max(self.values)

    @property
    def ratio(self) -> Ratio | None:
        """The ratio to the peer: of the medians, and the extremes of rounds. Without as many rounds
        of both the extremes are those of any two rounds.
        """
        if not self.peer_values or not all((*self.values, *self.peer_values)):
            return None
        ratios = (
            [self._times(*pair) for pair in zip(self.values, self.peer_values, strict=True)]
            if len(self.values) == len(self.peer_values)
            else [self._times(own, peer) for own in self.values for peer in self.peer_values]
        )
        middle = self._times(self.median, median(self.peer_values))
        return Ratio(middle, min(*ratios, middle), max(*ratios, middle))

    @property
    def meets_goal(self) -> bool | None:
        """Whether the median meets the goal; None without a goal, or without the peer that the goal
        compares with.
        """
        goal = goals().get(self.name)
        if goal is None:
            return None
        if goal.ratio is not None:
            return None if self.ratio is None else self.ratio.median >= goal.ratio
        if goal.at_most is not None:
            return self.median <= goal.at_most
        return goal.at_least is not None and self.median >= goal.at_least

    def amount(self) -> str:
        """Return the median with its unit, and the best and the worst round."""
        return _amount(self.values, self.best, self.worst, self.unit)

    def peer_amount(self) -> str:
        """Return the same of the peer; '' without one."""
        if not self.peer_values:
            return ""
        ends = sorted(self.peer_values, reverse=self.better is Better.HIGHER)
        return _amount(self.peer_values, ends[0], ends[-1], self.unit)

    def line(self) -> str:
        """Return the figure as a line of text."""
        words = f"{self.name}: {self.title}: {self.amount()}"
        if self.peer:
            words += f"; {self.peer} {self.peer_amount()}"
        if self.ratio is not None:
            words += f", ratio {self.ratio}"
        goal = goals().get(self.name)
        if goal is not None:
            outcome = {True: "met", False: "missed", None: "not measured"}[self.meets_goal]
            words += f"; goal {goal.words(self.unit)}: {outcome}"
        return words

    def _times(self, own: float, peer: float) -> float:
        return own / peer if self.better is Better.HIGHER else peer / own


def report_rate(
    name: str,
    title: str,
    unit: str,
    values: Sequence[float],
    *,
    basis: Basis = Basis.WALL,
    peer: str = "",
    peer_values: Sequence[float] = (),
) -> None:
    """Report a figure of which more is better. Without values of the peer there is no peer."""
    report(
        Figure(
            name=name,
            title=title,
            unit=unit,
            better=Better.HIGHER,
            basis=basis,
            values=tuple(values),
            peer=peer if peer_values else "",
            peer_values=tuple(peer_values),
        )
    )


def report_cost(
    name: str,
    title: str,
    unit: str,
    values: Sequence[float],
    *,
    basis: Basis = Basis.WALL,
    peer: str = "",
    peer_values: Sequence[float] = (),
) -> None:
    """Report a figure of which less is better. Without values of the peer there is no peer."""
    report(
        Figure(
            name=name,
            title=title,
            unit=unit,
            better=Better.LOWER,
            basis=basis,
            values=tuple(values),
            peer=peer if peer_values else "",
            peer_values=tuple(peer_values),
        )
    )


def report(figure: Figure) -> None:
    """Print a figure, and keep it for the record if one is being made."""
    print(figure.line(), flush=True)
    file = os.environ.get(FILE_VARIABLE)
    if file:
        with Path(file).open("ab") as kept:
            kept.write(msgspec.json.encode(_rounded(figure)) + b"\n")


def read_reported(file: Path) -> list[Figure]:
    """Return the figures that a bench has reported so far."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Figure) for line in lines]


def shown(value: float) -> str:
    """Return a number with three digits or more."""
    digits = max(0, 2 - floor(log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"


def _amount(values: Sequence[float], best: float, worst: float, unit: str) -> str:
    spread = (
        f" (best {shown(best)}, worst {shown(worst)} of {len(values)})" if len(values) > 1 else ""
    )
    return f"{shown(median(values))} {unit}{spread}"


def _rounded(figure: Figure) -> Figure:
    return msgspec.structs.replace(
        figure,
        values=tuple(map(_kept, figure.values)),
        peer_values=tuple(map(_kept, figure.peer_values)),
    )


def _kept(value: float) -> float:
    return float(f"{value:.{KEPT_DIGITS}g}")
