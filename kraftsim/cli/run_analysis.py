"""The verbs that analyse a run: ingest its event logs, check its invariants, write its report, and
follow its producer ids through the metadata log.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import FAILED, OK, UNKNOWN, VIOLATED, fail
from kraftsim.cli.options import (
    NEW_PLACE,
    PLACE,
    extension_option,
    json_option,
    print_lines,
    run_argument,
    write_json,
)
from kraftsim.cli.spark_options import engine_option, options_of, spark_options, stages

if TYPE_CHECKING:
    from kraftsim.analysis.places import Place


@click.command(
    epilog="""\b
Examples:
  kraftsim ingest runs/seven
  kraftsim ingest runs/* --dataset runs/all
  kraftsim ingest runs/seven --dataset s3a://bucket/runs
  kraftsim ingest runs/large --master spark://10.0.0.1:7077 --conf spark.executor.memory=4g"""
)
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN...",
    type=PLACE,
)
@click.option(
    "--dataset",
    type=NEW_PLACE,
    default=None,
    help="Put all runs into this dataset; a run that it has is replaced. Default: each run into "
    "RUN/events.parquet.",
)
@spark_options
@json_option
def ingest(
    runs: tuple["Place", ...],
    dataset: "Place | None",
    master: str,
    remote: str,
    conf: tuple[str, ...],
    json_file: Path | None,
) -> None:
    """Convert the event logs of runs into Parquet files, partitioned by run and family of events.

    Skips and counts an incomplete last line of a log, and reports gaps in the numbers of a node's
    events. Large logs are parsed by a process per core, or by tasks of Spark if a master is named;
    the memory is that of a part, not of the run.
    """
    from kraftsim.analysis.ingest import ingest_run, ingest_runs
    from kraftsim.analysis.session import spark_session

    options = options_of(master, remote, conf)
    try:
        with stages() as report:
            if options.is_asked:
                with spark_session(options) as spark:
                    found = (
                        ingest_runs(runs, dataset, spark=spark, report=report)
                        if dataset is not None
                        else [ingest_run(run, spark=spark, report=report) for run in runs]
                    )
            else:
                found = (
                    ingest_runs(runs, dataset, report=report)
                    if dataset is not None
                    else [ingest_run(run, report=report) for run in runs]
                )
    except (ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    for each in found:
        print_lines(each)
    write_json(json_file, found[0] if len(found) == 1 else found)


EXIT_CODES = {"ok": OK, "violated": VIOLATED, "unknown": UNKNOWN, "vacuous": UNKNOWN}


@click.command(
    epilog="""\b
Examples:
  kraftsim analyze runs/seven
  kraftsim analyze runs/seven --invariant producer-id-unique --json verdicts.json
  kraftsim analyze s3a://bucket/runs/run=seven
  kraftsim analyze runs/seven --engine spark --master spark://10.0.0.1:7077

\b
Exit codes: 0 ok, 1 violated, 2 unknown or vacuous, 3 failed."""
)
@run_argument
@click.option(
    "--invariant",
    "invariants",
    multiple=True,
    metavar="NAME",
    help="Check only this one; `kraftsim list invariants`. Repeatable.",
)
@engine_option
@spark_options
@extension_option
@json_option
def analyze(
    run: "Place",
    invariants: tuple[str, ...],
    engine: str,
    master: str,
    remote: str,
    conf: tuple[str, ...],
    json_file: Path | None,
) -> int:
    """Check the invariants of a run by SQL, with Spark or, for a small run, with DuckDB.

    An invariant that the scenario must exercise and that found no events to examine is vacuous: it
    does not pass.
    """
    from kraftsim.analysis.analyze import analyze_run
    from kraftsim.analysis.document import document_of
    from kraftsim.analysis.engines import Engine

    options = options_of(master, remote, conf)
    try:
        with stages() as report:
            analysis = analyze_run(
                run, invariants, engine=Engine(engine), options=options, report=report
            )
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    print_lines(analysis)
    write_json(json_file, document_of(analysis))
    return EXIT_CODES.get(analysis.verdict, FAILED)


@click.command(
    epilog="\b\nExamples:\n  kraftsim report runs/seven\n  kraftsim report runs/seven --to "
    "seven.html"
)
@run_argument
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="File to write. Default: RUN/report.html.",
)
@engine_option
@spark_options
@extension_option
@json_option
def report(
    run: "Place",
    to: Path | None,
    engine: str,
    master: str,
    remote: str,
    conf: tuple[str, ...],
    json_file: Path | None,
) -> None:
    """Write the HTML report of a run: swimlanes, faults, violations with their events, and the
    table of invariants, in one file.
    """
    from kraftsim.analysis.engines import Engine
    from kraftsim.analysis.report import write_report

    options = options_of(master, remote, conf)
    try:
        with stages() as stage:
            written = write_report(run, to, engine=Engine(engine), options=options, report=stage)
    except (ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    click.echo(f"report: {written}")
    write_json(json_file, {"report": str(written), "size_bytes": written.size_bytes})


@click.command(
    epilog="""\b
Examples:
  kraftsim trail runs/seven
  kraftsim trail runs/seven --id 4242 --id 99000 --node controller-102
  kraftsim trail /var/lib/kafka/metadata --json trail.json

\b
Exit codes: 0 ok, 1 the log and the events of the run contradict each other, 3 failed."""
)
@click.argument("place", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--id",
    "asked",
    multiple=True,
    type=int,
    metavar="NUMBER",
    help="Show the owner of this producer id. Repeatable.",
)
@click.option(
    "--node", metavar="NAME", help="Node whose log is read. Default: the node with the longest log."
)
@spark_options
@json_option
def trail(
    place: Path,
    asked: tuple[int, ...],
    node: str | None,
    master: str,
    remote: str,
    conf: tuple[str, ...],
    json_file: Path | None,
) -> int:
    """Show which broker owns which producer ids, from segments and snapshots of the metadata log.

    PLACE is the directory of a run, or a log directory of KRaft controllers or brokers, also of
    Apache Kafka. Reports blocks by broker, records that a snapshot replaced, the size of snapshots,
    gaps between blocks, and contradictions to the events of the run. Needs Spark.
    """
    from kraftsim.analysis.id_audit import audit

    options = options_of(master, remote, conf)
    try:
        found = audit(place, node=node, asked=asked, options=options)
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    print_lines(found)
    write_json(json_file, found)
    return VIOLATED if found.compared is not None and found.compared.contradicted else OK
