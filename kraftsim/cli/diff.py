"""`kraftsim diff`: finds the first event at which two runs differ."""

from pathlib import Path

import click

from kraftsim.cli.failure import VIOLATED, fail
from kraftsim.cli.options import json_option, print_lines, write_json

RUN = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  kraftsim diff runs/seven runs/seven-again
  kraftsim diff runs/seven runs/eight --node controller-101 --context 10"""
)
@click.argument("run_a", type=RUN)
@click.argument("run_b", type=RUN)
@click.option(
    "--context",
    default=5,
    show_default=True,
    help="Number of common events to print before the difference.",
)
@click.option(
    "--node", "nodes", multiple=True, metavar="NAME", help="Compare this node only. Repeatable."
)
@json_option
def diff(
    run_a: Path, run_b: Path, context: int, nodes: tuple[str, ...], json_file: Path | None
) -> int:
    """Compare the event logs of two runs and print the first event that differs, with node and
    virtual time.

    Exits 0 if the runs are the same and 1 if they differ, even if only in times.
    """
    from kraftsim.lab.explore.divergence import compare

    try:
        found = compare(run_a, run_b, context=context, nodes=nodes)
    except (ValueError, OSError) as trouble:
        fail(trouble)
    print_lines(found)
    write_json(json_file, found)
    return 0 if found.is_empty else VIOLATED
