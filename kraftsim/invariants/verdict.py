"""What an invariant says of a run: an outcome, how much it looked at, and what broke it.

A check that found nothing to look at has proved nothing: it is vacuous, and never counts as ok.
Source: the three-valued verdicts of Jepsen (jepsen.checker/merge-valid), and vacuity as a fourth.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


class Outcome(StrEnum):
    """How an invariant fared, worst first."""

    VIOLATED = "violated"
    UNKNOWN = "unknown"
    VACUOUS = "vacuous"
    OK = "ok"
    NOT_APPLICABLE = "not applicable"


VIOLATIONS_KEPT_MAX = 20
"""A verdict counts every violation and keeps this many: more help nobody to understand a run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """One breach. `key` names what was breached, once per verdict; `witnesses` are ids of events, 'node.incarnation.n', in order of time."""

    invariant: str
    key: str
    message: str
    witnesses: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What one invariant says of a whole run. `violations` holds the first few of `violation_count`; `reason` says why an outcome is unknown."""

    invariant: str
    outcome: Outcome
    examined: int
    violation_count: int = 0
    violations: tuple[Violation, ...] = ()
    reason: str = ""

    def for_run(self, *, must_exercise: bool) -> "Verdict":
        """Return the verdict as a run sees it: nothing examined is vacuous only where the scenario promised something to examine."""
        if self.outcome is Outcome.VACUOUS and not must_exercise:
            return replace(self, outcome=Outcome.NOT_APPLICABLE)
        return self

    def without_lost_lines(self, reason: str) -> "Verdict":
        """Return the verdict for a history that is known to lack lines: what looks ok in it is unknown."""
        if self.outcome is Outcome.OK:
            return replace(self, outcome=Outcome.UNKNOWN, reason=reason)
        return self


def judge(invariant: str, *, examined: int, violation_count: int, violations: tuple[Violation, ...] = (), undecidable: str = "") -> Verdict:
    """Return the verdict that follows from what was found: violated > unknown > vacuous > ok."""
    if violation_count:
        outcome = Outcome.VIOLATED
    elif undecidable:
        outcome = Outcome.UNKNOWN
    elif not examined:
        outcome = Outcome.VACUOUS
    else:
        outcome = Outcome.OK
    return Verdict(
        invariant=invariant,
        outcome=outcome,
        examined=examined,
        violation_count=violation_count,
        violations=violations[:VIOLATIONS_KEPT_MAX],
        reason=undecidable if outcome is Outcome.UNKNOWN else "",
    )


def worst(verdicts: Iterable[Verdict]) -> Outcome:
    """Return the outcome of a run. Where no invariant applied at all, the run is vacuous: it proved nothing."""
    outcomes = {verdict.outcome for verdict in verdicts}
    for outcome in (Outcome.VIOLATED, Outcome.UNKNOWN, Outcome.VACUOUS, Outcome.OK):
        if outcome in outcomes:
            return outcome
    return Outcome.VACUOUS
