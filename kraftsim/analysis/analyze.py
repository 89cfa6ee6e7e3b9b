"""Checks a run: reads its event logs, evaluates its invariants with Spark, and fetches the events
that show violations.

The result is stored as RUN/analysis.json, so that the report of an analysed run needs no Spark.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kraftsim.analysis.analysis import Analysis, InvariantResult, WitnessedBreach
from kraftsim.analysis.ingest import IngestResult, ingested
from kraftsim.analysis.run_facts import RunFacts, read_run_facts
from kraftsim.analysis.session import spark_session
from kraftsim.analysis.transaction_chapter import TransactionChapter, find_chapter, has_transactions
from kraftsim.analysis.upgrade_chapter import find_upgrade
from kraftsim.analysis.verdicts import Found, find_verdicts
from kraftsim.analysis.witnesses import Witness, fetch_witnesses
from kraftsim.invariants.invariant import INVARIANTS, Invariant
from kraftsim.invariants.verdict import Verdict, verdict_of, worst

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANALYSIS_FILE: Final = "analysis.json"


def analyze_run(
    run: Path, invariants: Sequence[str] = (), *, spark: "SparkSession | None" = None
) -> Analysis:
    """Check all invariants of a run or those named, and store the result in the run's directory.

    Raises KeyError for an unknown invariant, NoEvents or ValueError for a directory that is no run,
    JavaMissing.
    """
    facts = read_run_facts(run)
    chosen = _chosen(invariants, facts.must_exercise)
    ingest = ingested(run)
    if spark is not None:
        found, chapter = _ask(spark, ingest, chosen)
    else:
        with spark_session() as session:
            found, chapter = _ask(session, ingest, chosen)
    upgrade = find_upgrade(Path(ingest.parquet))
    analysis = msgspec.structs.replace(
        _analysis(facts, ingest, chosen, found), transactions=chapter, upgrade=upgrade
    )
    if not invariants:
        (run / ANALYSIS_FILE).write_bytes(msgspec.json.encode(analysis))
    return analysis


def _ask(
    spark: "SparkSession", ingest: IngestResult, chosen: Sequence[Invariant]
) -> tuple[Mapping[str, Found], TransactionChapter | None]:
    """Evaluate the invariants, and the transactions if there were any."""
    found = find_verdicts(spark, ingest.parquet, ingest.event_count, chosen)
    return found, find_chapter(spark, ingest.parquet) if has_transactions(
        Path(ingest.parquet)
    ) else None


def analysis_of(run: Path) -> Analysis:
    """Return the stored analysis if the run is unchanged, else analyse it.

    Raises as `analyze_run`.
    """
    kept = run / ANALYSIS_FILE
    if kept.exists():
        try:
            analysis = msgspec.json.decode(kept.read_bytes(), type=Analysis)
        except msgspec.DecodeError:
            return analyze_run(run)
        names = [result.invariant for result in analysis.judgements]
        ingest = ingested(run)
        if (
            analysis.ingest.files == ingest.files
            and analysis.facts == read_run_facts(run)
            and names == list(INVARIANTS.names())
        ):
            return msgspec.structs.replace(analysis, ingest=ingest)
    return analyze_run(run)


def _chosen(names: Sequence[str], must_exercise: Sequence[str]) -> tuple[Invariant, ...]:
    for name in must_exercise:
        INVARIANTS.named(name)  # an unknown name in must_exercise is an error
    return tuple(INVARIANTS.named(name) for name in names) or INVARIANTS.all()


def _analysis(
    facts: RunFacts,
    ingest: IngestResult,
    invariants: Sequence[Invariant],
    found: Mapping[str, Found],
) -> Analysis:
    verdicts = {
        invariant.name: _verdict(invariant, found[invariant.name], facts, ingest)
        for invariant in invariants
    }
    positions = [
        position
        for each in found.values()
        for violation in each.breaches
        for position in violation.witnesses
    ]
    witnesses = fetch_witnesses(Path(ingest.parquet), positions)
    judgements = tuple(
        _result_of(invariant, verdicts[invariant.name], found[invariant.name], facts, witnesses)
        for invariant in invariants
    )
    return Analysis(
        verdict=worst(verdicts.values()), facts=facts, ingest=ingest, judgements=judgements
    )


def _verdict(invariant: Invariant, found: Found, facts: RunFacts, ingest: IngestResult) -> Verdict:
    verdict = verdict_of(
        invariant.name,
        examined=found.examined,
        violation_count=found.violation_count,
        undecidable=found.undecidable,
    )
    lost_lines = ingest.lost_lines()
    if lost_lines:
        verdict = verdict.without_lost_lines(f"the event log is not whole: {lost_lines}")
    return verdict.for_run(must_exercise=invariant.name in facts.must_exercise)


def _result_of(
    invariant: Invariant,
    verdict: Verdict,
    found: Found,
    facts: RunFacts,
    witnesses: Mapping[int, Witness],
) -> InvariantResult:
    return InvariantResult(
        invariant=invariant.name,
        rule=invariant.rule,
        source=invariant.source,
        must_exercise=invariant.name in facts.must_exercise,
        outcome=verdict.outcome,
        examined=verdict.examined,
        violation_count=verdict.violation_count,
        breaches=tuple(
            WitnessedBreach(
                key=violation.key,
                message=violation.message,
                witnesses=tuple(witnesses[position] for position in violation.witnesses),
            )
            for violation in found.breaches
        ),
        reason=verdict.reason,
    )
