"""`kraftsim ingest`: event logs become one sorted Parquet file."""

from pathlib import Path

import click

from kraftsim.cli.failure import fail
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
