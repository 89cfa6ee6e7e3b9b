"""`kraftsim analyze`: the invariants of a run, checked by SQL."""

from pathlib import Path

import click

from kraftsim.cli.failure import FAILED, OK, UNKNOWN, VIOLATED, fail
from kraftsim.cli.options import json_option, print_lines, run_argument, write_json
from kraftsim.cli.spark_options import engine_option, options_of, spark_options, stages

EXIT_CODES = {"ok": OK, "violated": VIOLATED, "unknown": UNKNOWN, "vacuous": UNKNOWN}


@click.command(
    epilog="""\b
Examples:
  kraftsim analyze runs/seven
  kraftsim analyze runs/seven --invariant producer-id-unique --json verdicts.json
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
@json_option
def analyze(
    run: Path,
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
