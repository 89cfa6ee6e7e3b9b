"""Checks a run: reads its event logs, evaluates its invariants by SQL, and fetches the events
that show violations.

The result is stored as RUN/analysis.json, so that the report of an analysed run needs no Spark.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from kraftsim.analysis import document
from kraftsim.analysis.analysis import Analysis, RunFacts, read_run_facts
from kraftsim.analysis.dataset import IngestResult
from kraftsim.analysis.details import find_details
from kraftsim.analysis.engines import Engine, opened
from kraftsim.analysis.ingest import Report, ingested, no_report
from kraftsim.analysis.places import Where, place_of
from kraftsim.analysis.session import SparkOptions
from kraftsim.analysis.transaction_chapter import find_chapter, has_transactions
from kraftsim.analysis.upgrade_chapter import find_upgrade
from kraftsim.analysis.verdicts import VIOLATION, Row, find_rows, verdicts_of, violation_of
from kraftsim.analysis.views import one_run
from kraftsim.analysis.witnesses import fetch_witnesses
from kraftsim.invariants.invariant import INVARIANTS, Invariant
from kraftsim.invariants.verdict import Verdict, worst
from kraftsim.invariants.without_nodes import verdict_not_evaluated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANALYSIS_FILE: Final = "analysis.json"


def analyze_run(
    run: Where,
    invariants: Sequence[str] = (),
    *,
    engine: Engine = Engine.AUTO,
    options: SparkOptions | None = None,
    spark: "SparkSession | None" = None,
    report: Report = no_report,
) -> Analysis:
    """Check all invariants of a run or those named, and store the result in the run's directory,
    which may be remote; `run` may also be a run of a dataset, DATASET/run=NAME.

    Raises KeyError for an unknown invariant, NoEvents or ValueError for a directory that is no run,
    JavaMissing.
    """
    facts = read_run_facts(run)
    picked = _chosen(invariants, facts.must_exercise)
    evaluated = tuple(each for each in picked if each.name not in facts.not_evaluated)
    ingest = ingested(run, report=report)
    runs = one_run(ingest.parquet)
    with opened(runs, engine, options, spark) as queries:
        rows = find_rows(queries, runs, evaluated, report)
        chapter = find_chapter(queries) if has_transactions(runs) else None
    upgrade = find_upgrade(ingest.parquet)
    analysis = msgspec.structs.replace(
        _analysis(facts, ingest, picked, rows), transactions=chapter, upgrade=upgrade
    )
    analysis = msgspec.structs.replace(
        analysis,
        details=find_details(
            run,
            ingest.parquet,
            analysis.verdicts,
            analysis.evidence,
            command=facts.command,
        ),
    )
    if not invariants:
        (place_of(run) / ANALYSIS_FILE).publish(document.encode(analysis))
    return analysis


def analysis_of(
    run: Where,
    *,
    engine: Engine = Engine.AUTO,
    options: SparkOptions | None = None,
    report: Report = no_report,
) -> Analysis:
    """Return the stored analysis if the run is unchanged, else analyse it.

    Raises as `analyze_run`.
    """
    with suppress(FileNotFoundError, msgspec.DecodeError):
        analysis = document.decode((place_of(run) / ANALYSIS_FILE).read())
        names = [verdict.invariant for verdict in analysis.verdicts]
        ingest = ingested(run, report=report)
        if (
            analysis.ingest.files == ingest.files
            and analysis.facts == read_run_facts(run)
            and names == list(INVARIANTS.names())
        ):
            return msgspec.structs.replace(analysis, ingest=ingest)
    return analyze_run(run, engine=engine, options=options, report=report)


def _chosen(names: Sequence[str], must_exercise: Sequence[str]) -> tuple[Invariant, ...]:
    for name in must_exercise:
        try:
            INVARIANTS.named(name)
        except KeyError as unknown:
            raise KeyError(
                f"{unknown.args[0]}; if it is one of yours, name its file with --extension"
            ) from unknown
    return tuple(INVARIANTS.named(name) for name in names) or INVARIANTS.all()


def _analysis(
    facts: RunFacts, ingest: IngestResult, invariants: Sequence[Invariant], rows: Sequence[Row]
) -> Analysis:
    witnesses = fetch_witnesses(
        ingest.parquet, [position for row in rows for position in row.positions]
    )
    found = verdicts_of(rows, invariants, witnesses)
    verdicts = tuple(
        _for_run(invariant, found[invariant.name], facts, ingest) for invariant in invariants
    )
    return Analysis(
        verdict=worst(verdicts),
        facts=facts,
        ingest=ingest,
        verdicts=verdicts,
        evidence={
            violation_of(row, witnesses): tuple(witnesses[position] for position in row.positions)
            for row in rows
            if row.what == VIOLATION
        },
    )


def _for_run(
    invariant: Invariant, verdict: Verdict, facts: RunFacts, ingest: IngestResult
) -> Verdict:
    reason = facts.not_evaluated.get(invariant.name)
    if reason is not None:
        return verdict_not_evaluated(invariant, reason)
    lost_lines = ingest.lost_lines()
    if lost_lines:
        verdict = verdict.without_lost_lines(f"the event log is not whole: {lost_lines}")
    return invariant.for_run(verdict, must_exercise=invariant.name in facts.must_exercise)
