"""`kraftsim export`: a run in the format of another tool."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from kraftsim.cli.failure import Failure, fail
from kraftsim.cli.options import run_argument
from kraftsim.cli.progress import progress

if TYPE_CHECKING:
    from kraftsim.analysis.places import Place

FILES: Final = {
    "perfetto": "perfetto.json",
    "shiviz": "shiviz.log",
    "jepsen": "history.edn",
    "mermaid": "sequence.mmd",
    "otlp": "traces.jsonl",
}
"""Format -> name of the file in the directory of the run."""
LATEST_MS: Final = 9e12
"""Nanoseconds of a run are 64-bit integers."""


@click.command(
    epilog="""\b
Formats:
  perfetto: Chrome trace events, for ui.perfetto.dev and chrome://tracing
  shiviz: events with vector clocks, for ShiViz; choose the file there
  jepsen: a history of client operations in EDN, for Elle's list-append checker
  mermaid: a sequence diagram of one window: --violation, or --from and --until
  otlp: traces in OTLP/JSON lines, for the OpenTelemetry collector

\b
Examples:
  kraftsim export runs/seven --format perfetto
  kraftsim export runs/seven --format shiviz --from 1500 --until 1700 --to window.log
  kraftsim export runs/seven --format jepsen --to history.edn
  kraftsim export runs/seven --format mermaid --violation 1 --to -
  kraftsim export runs/seven --format otlp --to - | gzip > traces.jsonl.gz

\b
Exit codes: 0 ok, 3 failed."""
)
@run_argument
@click.option(
    "--format",
    "format_name",
    required=True,
    type=click.Choice(list(FILES)),
    help="Format to write.",
)
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="File to write ('-' is standard output). Default: a file in RUN.",
)
@click.option(
    "--from",
    "from_ms",
    type=click.FloatRange(min=0, max=LATEST_MS),
    default=None,
    metavar="MS",
    help="Start at this millisecond of the run.",
)
@click.option(
    "--until",
    "until_ms",
    type=click.FloatRange(min=0, max=LATEST_MS),
    default=None,
    metavar="MS",
    help="End at this millisecond.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=None,
    metavar="N",
    help="Write the first N events of the window; in a sequence diagram the N most important "
    "ones. Default: all; 60 in a sequence diagram.",
)
@click.option(
    "--violation",
    type=click.IntRange(min=1),
    default=None,
    metavar="N",
    help="Show the Nth violation of the last `kraftsim analyze`: the events that show it, and "
    "what lies between them. With --format mermaid.",
)
def export(
    run: "Place",
    format_name: str,
    to: Path | None,
    from_ms: float | None,
    until_ms: float | None,
    limit: int | None,
    violation: int | None,
) -> None:
    """Write a run in the format of another tool.

    Reads the event logs first if they have changed. Needs neither Java nor Spark.
    """
    from kraftsim.analysis.analyze import ANALYSIS_FILE
    from kraftsim.analysis.export.formats import ExportWindow, events_read, export_events
    from kraftsim.analysis.ingest import ingested

    window = ExportWindow(from_ms=from_ms, until_ms=until_ms, limit=limit, violation=violation)
    if to is None and not run.is_local:
        raise Failure(f"{run} is remote: name a file of this machine with --to")
    path = to or Path(str(run / FILES[format_name]))
    try:
        ingest = ingested(run)
        is_shown = str(path) != "-" or not sys.stdout.isatty()
        total = events_read(ingest.parquet, format_name)
        with _output(path) as out, progress(format_name, total, shown=is_shown) as advance:
            exported = export_events(
                ingest.parquet,
                format_name,
                out,
                window,
                analysis_file=run / ANALYSIS_FILE,
                advance=advance,
            )
    except (ValueError, OSError) as trouble:
        if isinstance(trouble, BrokenPipeError):
            raise
        fail(trouble)
    for remark in exported.remarks:
        click.echo(f"note: {remark}", err=True)
    span = f"{exported.begin_ns / 1e6:.0f} ms to {exported.end_ns / 1e6:.0f} ms"
    click.echo(f"{format_name}: {exported.event_count:,} events, {span} -> {path}", err=True)


@contextmanager
def _output(path: Path) -> Iterator[IO[bytes]]:
    """Open standard output or a file, which appears under its name when it is complete."""
    if str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        out = unfinished.open("wb")
    except OSError as trouble:
        raise Failure(f"--to {path}: {trouble.strerror}") from trouble
    try:
        with out:
            yield out
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
