"""`kraftsim report`: what happened in a run, as one HTML file."""

from pathlib import Path

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.options import json_option, run_argument, write_json
from kraftsim.cli.spark_options import engine_option, options_of, spark_options, stages


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
@json_option
def report(
    run: Path,
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
    write_json(json_file, {"report": str(written), "size_bytes": written.stat().st_size})
