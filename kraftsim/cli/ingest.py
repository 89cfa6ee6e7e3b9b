"""`kraftsim ingest`: event logs become one sorted Parquet file."""

from pathlib import Path

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.options import json_option, print_lines, run_argument, write_json


@click.command(epilog="\b\nExample:\n  kraftsim ingest runs/seven")
@run_argument
@json_option
def ingest(run: Path, json_file: Path | None) -> None:
    """Turn the event logs of a run into one Parquet file, RUN/events.parquet.

    A torn last line of a log is tolerated and counted; a gap in the numbering of a node's events is reported.
    """
    from kraftsim.analysis.ingest import ingest_run

    try:
        summary = ingest_run(run)
    except (ValueError, OSError) as trouble:
        fail(trouble)
    print_lines(summary)
    write_json(json_file, summary)
