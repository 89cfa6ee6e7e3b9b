"""The verbs that analyse a run with Spark: ingest its event logs, check its invariants, write its
report, and follow its producer ids through the metadata log.
"""

from pathlib import Path

import click

from kraftsim.cli.failure import FAILED, OK, UNKNOWN, VIOLATED, fail
from kraftsim.cli.options import json_option, print_lines, run_argument, write_json


@click.command(epilog="\b\nExample:\n  kraftsim ingest runs/seven")
@run_argument
@json_option
def ingest(run: Path, json_file: Path | None) -> None:
    """Convert the event logs of a run into one Parquet file, RUN/events.parquet.

    Skips and counts an incomplete last line of a log, and reports gaps in the numbers of a node's
    events.
    """
    from kraftsim.analysis.ingest import ingest_run

    try:
        summary = ingest_run(run)
    except (ValueError, OSError) as trouble:
        fail(trouble)
    print_lines(summary)
    write_json(json_file, summary)


EXIT_CODES = {"ok": OK, "violated": VIOLATED, "unknown": UNKNOWN, "vacuous": UNKNOWN}


@click.command(
    epilog="""\b
Examples:
  kraftsim analyze runs/seven
  kraftsim analyze runs/seven --invariant producer-ids-handed-out-once --json verdicts.json

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
@json_option
def analyze(run: Path, invariants: tuple[str, ...], json_file: Path | None) -> int:
    """Check the invariants of a run with Spark.

    An invariant that the scenario must exercise and that found no events to examine is vacuous: it
    does not pass.
    """
    from kraftsim.analysis.analyze import analyze_run
    from kraftsim.analysis.document import document_of

    try:
        analysis = analyze_run(run, invariants)
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
@json_option
def report(run: Path, to: Path | None, json_file: Path | None) -> None:
    """Write the HTML report of a run: swimlanes, faults, violations with their events, and the
    table of invariants, in one file.
    """
    from kraftsim.analysis.report import write_report

    try:
        written = write_report(run, to)
    except (ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    click.echo(f"report: {written}")
    write_json(json_file, {"report": str(written), "size_bytes": written.stat().st_size})


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
@json_option
def trail(place: Path, asked: tuple[int, ...], node: str | None, json_file: Path | None) -> int:
    """Show which broker owns which producer ids, from segments and snapshots of the metadata log.

    PLACE is the directory of a run, or a log directory of KRaft controllers or brokers, also of
    Apache Kafka. Reports blocks by broker, records that a snapshot replaced, the size of snapshots,
    gaps between blocks, and contradictions to the events of the run. Needs Spark.
    """
    from kraftsim.analysis.id_audit import audit

    try:
        found = audit(place, node=node, asked=asked)
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    print_lines(found)
    write_json(json_file, found)
    return VIOLATED if found.compared is not None and found.compared.contradicted else OK
