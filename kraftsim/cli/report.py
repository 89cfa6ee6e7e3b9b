"""`kraftsim report`: what happened in a run, as one HTML file."""

from pathlib import Path

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.options import json_option, run_argument, write_json


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
