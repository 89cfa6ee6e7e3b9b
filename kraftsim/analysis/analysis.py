"""The result of an analysis, as a value to print and to draw; `document.py` has its form as JSON.

Verdicts: violated > unknown > vacuous > ok. A run whose logs lack lines is never ok, and neither is
one without events to examine.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from kraftsim.analysis.dataset import RUN_PREFIX, IngestResult, NoRun, dataset_of
from kraftsim.analysis.details import RunDetails
from kraftsim.analysis.details_text import incident_lines, reproduction_lines
from kraftsim.analysis.places import Where, place_of
from kraftsim.analysis.sentences import printable
from kraftsim.analysis.transaction_chapter import TransactionChapter
from kraftsim.analysis.upgrade_chapter import UpgradeChapter
from kraftsim.analysis.witnesses import Witness
from kraftsim.invariants.verdict import Outcome, Verdict, Violation

# --------------------------------------------------------------------------------------------------
# `run.json`: the scenario of a run, its mode and seed, and what its analysis must exercise
#
# Every field has a default, because a run directory without it (a cluster of `up`) can be
# analysed, too.

RUN_FILE = "run.json"


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a run. `command` is the line that replays it."""

    run: str = ""
    scenario: str = ""
    mode: str = ""
    seed: int | None = None
    releases: Mapping[str, str] = {}
    faults: tuple[str, ...] = ()
    bugs: tuple[str, ...] = ()
    must_exercise: tuple[str, ...] = ()
    versions: Mapping[str, str] = {}
    outcome: str = ""
    started: str = ""
    command: str = ""
    on: str = ""
    """The release of Apache Kafka whose nodes ran, if they were not kraftsim's."""
    not_evaluated: Mapping[str, str] = {}
    """Invariant -> why the run cannot decide it."""

    @property
    def title(self) -> str:
        """Return a short title of the run."""
        name = self.scenario or self.run or "a run"
        details = [
            self.on or self.mode,
            "" if self.seed is None else f"seed {self.seed}",
            *self.bugs,
        ]
        return (
            f"{name} ({', '.join(detail for detail in details if detail)})"
            if any(details)
            else name
        )


def read_run_facts(run: Where) -> RunFacts:
    """Return the facts of RUN/run.json, or none if there is no such file; those of a run of a
    dataset are in its manifest.

    Raises ValueError with the file name if it is malformed.
    """
    place = place_of(run)
    path = place / RUN_FILE
    try:
        if place.name.startswith(RUN_PREFIX):
            with suppress(NoRun):
                return msgspec.convert(dataset_of(place)[1].facts, RunFacts)
        return msgspec.json.decode(path.read(), type=RunFacts)
    except FileNotFoundError:
        return RunFacts()
    except (msgspec.DecodeError, msgspec.ValidationError) as trouble:
        raise ValueError(f"{path} is no description of a run: {trouble}") from trouble


# --------------------------------------------------------------------------------------------------
# The result: verdicts, their evidence, and the chapters of the report

EXIT_CODES: Final = {Outcome.OK: 0, Outcome.VIOLATED: 1, Outcome.UNKNOWN: 2, Outcome.VACUOUS: 2}
SUMMARY_LINES_MAX: Final = 40
VIOLATIONS_SHOWN_MAX: Final = 3
INCIDENTS_PRINTED_MAX: Final = 1
WORST_FIRST: Final = (
    Outcome.VIOLATED,
    Outcome.UNKNOWN,
    Outcome.VACUOUS,
    Outcome.OK,
    Outcome.NOT_APPLICABLE,
)


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the analysis of a run: the verdicts of its invariants, and what a page needs to
    show them.

    `verdict` is that of the run: ok, violated, unknown or vacuous. `evidence` has, for each
    violation of a verdict, the events that its `witnesses` name.
    """

    verdict: Outcome
    facts: RunFacts
    ingest: IngestResult
    verdicts: tuple[Verdict, ...]
    evidence: Mapping[Violation, tuple[Witness, ...]]
    transactions: TransactionChapter | None = None
    upgrade: UpgradeChapter | None = None
    details: RunDetails | None = None

    @property
    def exit_code(self) -> int:
        """0 ok, 1 violated, 2 unknown or vacuous."""
        return EXIT_CODES[self.verdict]

    def lines(self) -> list[str]:
        """Return a summary of at most forty lines, worst first; the replay command is always
        included.
        """
        lines = [f"{printable(self.facts.title)}: {self.verdict}"]
        if self.details is not None:
            lines.append(f"  {printable(self.details.summary.sentence)}")
            for incident in self.details.incidents[:INCIDENTS_PRINTED_MAX]:
                lines += incident_lines(incident)
        lines += [f"  {line.strip()}" for line in map(printable, self.ingest.lines())]
        described = self._described()
        for verdict in sorted(self.verdicts, key=lambda each: WORST_FIRST.index(each.outcome)):
            if verdict.outcome is not Outcome.NOT_APPLICABLE:
                lines += self._lines_of(verdict, described)
        lines += self._not_applicable()
        replay = self._reproduction()
        if len(lines) + len(replay) <= SUMMARY_LINES_MAX:
            return [*lines, *replay]
        shown = SUMMARY_LINES_MAX - len(replay) - 1
        return [
            *lines[:shown],
            f"  ... and {len(lines) - shown} lines more: see --json, or the report",
            *replay,
        ]

    def _described(self) -> set[tuple[str, str]]:
        """Return the violations that are described at the top: invariant and message."""
        incidents = () if self.details is None else self.details.incidents
        return {(each.invariant, each.message) for each in incidents[:INCIDENTS_PRINTED_MAX]}

    def _reproduction(self) -> list[str]:
        if self.verdict is Outcome.OK:
            return []
        if self.details is not None and self.details.reproduction is not None:
            return list(reproduction_lines(self.details.reproduction))
        return [f"  replay: {printable(self.facts.command)}"] if self.facts.command else []

    def _not_applicable(self) -> Iterable[str]:
        """Return one line for all invariants that do not apply; the report and --json name them."""
        names = [each.invariant for each in self.verdicts if each.outcome is Outcome.NOT_APPLICABLE]
        if names:
            yield f"  {Outcome.NOT_APPLICABLE}  {len(names)} invariants: see --json, or the report"

    def _lines_of(self, verdict: Verdict, described: set[tuple[str, str]]) -> Iterable[str]:
        """Return a verdict as text, with its first violations and the events that show them."""
        counted = f", {verdict.violation_count:,} violations" if verdict.violation_count else ""
        promised = " (must be exercised)" if verdict.outcome is Outcome.VACUOUS else ""
        yield (
            f"  {verdict.outcome:<14}  {verdict.invariant:<34} {verdict.examined:>10,} "
            f"examined{counted}{promised}"
        )
        if verdict.reason:
            yield f"      {verdict.reason}"
        for violation in verdict.violations[:VIOLATIONS_SHOWN_MAX]:
            if (verdict.invariant, violation.message) in described:
                continue
            yield f"      {printable(violation.message)}"
            for event in self.evidence[violation]:
                yield f"          {event.line()}"
