"""`kraftsim ingest`: event logs become a dataset of Parquet files."""

from pathlib import Path

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.options import DIRECTORY, json_option, print_lines, write_json
from kraftsim.cli.spark_options import options_of, spark_options, stages


@click.command(
    epilog="""\b
Examples:
  kraftsim ingest runs/seven
  kraftsim ingest runs/* --dataset runs/all
  kraftsim ingest runs/large --master spark://10.0.0.1:7077 --conf spark.executor.memory=4g"""
)
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--dataset",
    type=DIRECTORY,
    default=None,
    help="Put all runs into this dataset; a run that it has is replaced. Default: each run into "
    "RUN/events.parquet.",
)
@spark_options
@json_option
def ingest(
    runs: tuple[Path, ...],
    dataset: Path | None,
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
