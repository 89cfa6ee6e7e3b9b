"""The result of an invariant for a run: an outcome, the number of events examined, and the
violations.

The online check of an invariant and its SQL give the same two types, `Violation` and `Verdict`;
`kraftsim.analysis.analysis.Analysis` has the verdicts of a whole run with all that a page shows.
A check that examined nothing has proved nothing: its outcome is vacuous, never ok.
Source: the three-valued results of Jepsen (jepsen.checker/merge-valid), with vacuity as a fourth
value.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


class Outcome(StrEnum):
    """The outcomes of an invariant, worst first."""

    VIOLATED = "violated"
    UNKNOWN = "unknown"
    VACUOUS = "vacuous"
    OK = "ok"
    NOT_APPLICABLE = "not applicable"


VIOLATIONS_KEPT_MAX = 20
"""A verdict counts every violation and keeps this many: more do not help to understand a run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """One counterexample of an invariant, with its evidence.

    `key` is unique within a verdict; `witnesses` are the ids of the events that show it,
    'node.incarnation.n', in order of time. `at_ns` is the virtual time of a violation at which a
    simulation stopped.
    """

    invariant: str
    key: str
    message: str
    witnesses: tuple[str, ...]
    at_ns: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The result of one invariant for a run.

    `violations` holds the first of `violation_count`; `reason` is why an outcome is unknown.
    `for_run` sets the last three: the rule and its source as the catalogue has them, and whether
    the scenario must exercise the invariant.
    """

    invariant: str
    outcome: Outcome
    examined: int
    violation_count: int = 0
    violations: tuple[Violation, ...] = ()
    reason: str = ""
    rule: str = ""
    source: str = ""
    must_exercise: bool = False

    def for_run(self, *, rule: str, source: str, must_exercise: bool) -> "Verdict":
        """Return the verdict for a run: with nothing examined it is vacuous only if the scenario
        must exercise the invariant.
        """
        may_be_vacuous = self.outcome is Outcome.VACUOUS and not must_exercise
        return replace(
            self,
            outcome=Outcome.NOT_APPLICABLE if may_be_vacuous else self.outcome,
            rule=rule,
            source=source,
            must_exercise=must_exercise,
        )

    def without_lost_lines(self, reason: str) -> "Verdict":
        """Return the verdict for a history that is known to lack events: ok becomes unknown."""
        if self.outcome is Outcome.OK:
            return replace(self, outcome=Outcome.UNKNOWN, reason=reason)
        return self


def verdict_of(
    invariant: str,
    *,
    examined: int,
    violation_count: int,
    violations: tuple[Violation, ...] = (),
    undecidable: str = "",
) -> Verdict:
    """Return the verdict for the results of a check: violated > unknown > vacuous > ok."""
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
    """Return the outcome of a run.

    If no invariant applied, it is vacuous: the run proved nothing.
    """
    outcomes = {verdict.outcome for verdict in verdicts}
    for outcome in (Outcome.VIOLATED, Outcome.UNKNOWN, Outcome.VACUOUS, Outcome.OK):
        if outcome in outcomes:
            return outcome
    return Outcome.VACUOUS
