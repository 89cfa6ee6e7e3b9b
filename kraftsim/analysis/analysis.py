"""The result of an analysis, as a value to print, to write as JSON, and to draw.

Verdicts: violated > unknown > vacuous > ok. A run whose logs lack lines is never ok, and neither is
one without events to examine.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from kraftsim.analysis.ingest import IngestResult
from kraftsim.analysis.run_facts import RunFacts
from kraftsim.analysis.transaction_chapter import TransactionChapter
from kraftsim.analysis.upgrade_chapter import UpgradeChapter
from kraftsim.analysis.witnesses import Witness, printable
from kraftsim.invariants.verdict import Outcome

EXIT_CODES: Final = {Outcome.OK: 0, Outcome.VIOLATED: 1, Outcome.UNKNOWN: 2, Outcome.VACUOUS: 2}
SUMMARY_LINES_MAX: Final = 40
BREACHES_SHOWN_MAX: Final = 3
WORST_FIRST: Final = (
    Outcome.VIOLATED,
    Outcome.UNKNOWN,
    Outcome.VACUOUS,
    Outcome.OK,
    Outcome.NOT_APPLICABLE,
)


class WitnessedBreach(msgspec.Struct, frozen=True, kw_only=True):
    """One violation with the events that show it."""

    key: str
    message: str
    witnesses: tuple[Witness, ...]


class InvariantResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one invariant in a run.

    `breaches` are the first few of `violation_count`; `reason` says why an outcome is unknown.
    """

    invariant: str
    rule: str
    source: str
    must_exercise: bool
    outcome: Outcome
    examined: int
    violation_count: int
    breaches: tuple[WitnessedBreach, ...]
    reason: str

    def lines(self) -> Iterable[str]:
        """Return the result as text, with its first violations and the events that show them."""
        counted = f", {self.violation_count:,} violations" if self.violation_count else ""
        promised = " (must be exercised)" if self.outcome is Outcome.VACUOUS else ""
        yield (
            f"  {self.outcome:<14}  {self.invariant:<34} {self.examined:>10,} "
            f"examined{counted}{promised}"
        )
        if self.reason:
            yield f"      {self.reason}"
        for violation in self.breaches[:BREACHES_SHOWN_MAX]:
            yield f"      {printable(violation.message)}"
            for event in violation.witnesses:
                yield f"          {event.line()}"


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the analysis of a run. `verdict` is ok, violated, unknown or vacuous."""

    verdict: Outcome
    facts: RunFacts
    ingest: IngestResult
    judgements: tuple[InvariantResult, ...]
    transactions: TransactionChapter | None = None
    upgrade: UpgradeChapter | None = None

    @property
    def exit_code(self) -> int:
        """0 ok, 1 violated, 2 unknown or vacuous."""
        return EXIT_CODES[self.verdict]

    def lines(self) -> list[str]:
        """Return a summary of at most forty lines, worst first; the replay command is always
        included.
        """
        lines = [
            f"{printable(self.facts.title)}: {self.verdict}",
            *(f"  {line.strip()}" for line in map(printable, self.ingest.lines())),
        ]
        for result in sorted(self.judgements, key=lambda each: WORST_FIRST.index(each.outcome)):
            lines += result.lines()
        replay = (
            [f"  replay: {printable(self.facts.command)}"]
            if self.facts.command and self.verdict is not Outcome.OK
            else []
        )
        if len(lines) + len(replay) <= SUMMARY_LINES_MAX:
            return [*lines, *replay]
        shown = SUMMARY_LINES_MAX - len(replay) - 1
        return [
            *lines[:shown],
            f"  ... and {len(lines) - shown} lines more: see --json, or the report",
            *replay,
        ]
