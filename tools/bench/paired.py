"""Whether a change makes a figure worse, from pairs of runs before and after it.

Both runs of a pair are neighbours in time, so that other work on the machine affects both, and the
order alternates. The test is the exact sign-flip test: if the change has no effect, each pair's
difference is as likely to point the other way, so the chance of a mean at least as bad is the share
of all sign patterns that reach it. It assumes no distribution. A suspicion is confirmed with new
pairs, which are the only ones that count for the second test.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from math import exp, log
from statistics import fmean
from typing import Final

from tools.bench.result import Better

SUSPECT_CHANCE: Final = 0.02
"""A first series with less chance than this is suspicious."""
SURE_CHANCE: Final = 0.005
"""A second series with less chance than this confirms it: in all 1 of 10,000 equal figures, so that
a comparison of forty has a false alarm in 1 of 250.
"""
LEAST_PAIRS: Final = 8
"""Seven pairs have 128 sign patterns: no result could be as rare as 1 of 200."""
MOST_PAIRS: Final = 20
"""A million sign patterns."""
LEAST_WORSENING: Final = 0.03
"""A smaller one is no regression, however sure it is: the place of code in memory has such effects.
"""
RESAMPLES: Final = 2000
CONFIDENCE: Final = 0.95


class Change(Enum):
    """What the pairs of a figure show."""

    WORSE = "worse"
    BETTER = "better"
    UNCHANGED = "no difference beyond noise"


@dataclass(frozen=True)
class Effect:
    """The effect of a change on a figure. `logs`: of each pair, the logarithm of the factor by
    which it got worse, whatever the unit.
    """

    logs: tuple[float, ...]

    @property
    def worsening(self) -> float:
        """The factor by which the figure got worse: 1.1 is 10 % worse."""
        return exp(fmean(self.logs))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % bootstrap interval of that; the same pairs give the same interval."""
        source = random.Random(len(self.logs))
        count = len(self.logs)
        means = sorted(fmean(source.choices(self.logs, k=count)) for _ in range(RESAMPLES))
        outside = round((1 - CONFIDENCE) / 2 * RESAMPLES)
        return exp(means[outside]), exp(means[-1 - outside])

    @cached_property
    def chance(self) -> float:
        """How likely pairs without an effect look at least as bad."""
        return chance_of_mean(self.logs)

    @property
    def is_suspicious(self) -> bool:
        """Whether it has to be measured again."""
        return self.worsening > 1 + LEAST_WORSENING and self.chance < SUSPECT_CHANCE

    @property
    def is_sure(self) -> bool:
        """Whether a second series confirms a suspicion."""
        return self.worsening > 1 + LEAST_WORSENING and self.chance < SURE_CHANCE

    @property
    def is_gain(self) -> bool:
        """Whether the figure got better: reported, and of no consequence."""
        is_large = self.worsening < 1 - LEAST_WORSENING
        return is_large and chance_of_mean([-each for each in self.logs]) < SURE_CHANCE


def effect_of(before: Sequence[float], after: Sequence[float], better: Better) -> Effect:
    """Compare pairs: `before[n]` and `after[n]` were measured one after the other."""
    sign = 1 if better is Better.LOWER else -1
    pairs = zip(before, after, strict=True)
    return Effect(tuple(sign * log(new / old) for old, new in pairs))


def change_of(first: Effect, second: Effect | None) -> Change:
    """Return what both series show: a regression needs both."""
    if first.is_suspicious and second is not None and second.is_sure:
        return Change.WORSE
    if first.is_gain:
        return Change.BETTER
    return Change.UNCHANGED


def chance_of_mean(differences: Sequence[float]) -> float:
    """Return the share of sign patterns whose sum is at least that of the differences."""
    assert 0 < len(differences) <= MOST_PAIRS, f"{len(differences)} pairs"
    sums = [0.0]
    for each in map(abs, differences):
        sums = [total + part for total in sums for part in (each, -each)]
    reached = sum(differences) - 1e-12
    return sum(total >= reached for total in sums) / len(sums)
