"""`kraftsim analyze`: the invariants of a run, checked with Spark."""

from pathlib import Path

import click

from kraftsim.cli.failure import FAILED, OK, UNKNOWN, VIOLATED, fail
from kraftsim.cli.options import json_option, print_lines, run_argument, write_json

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
