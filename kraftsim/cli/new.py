"""`kraftsim new`: writes a template for a new API, scenario, invariant, fault or bug."""

from pathlib import Path

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.source_tree import KINDS


@click.command(
    epilog="""\b
Examples:
  kraftsim new scenario coordinator_moves_twice
  kraftsim new invariant epochs-never-decrease
  kraftsim new fault slow-name-lookup
  kraftsim new bug KAFKA-12345-marker-written-twice
  kraftsim new api DescribeThing"""
)
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Root of the source tree; the current directory if not given.",
)
def new(kind: str, name: str, root: Path) -> None:
    """Write a template of a KIND into the source tree, and print what to do next.

    Search for FILL IN in the files that are written. They pass the linter and the type checker as
    they are.
    """
    from kraftsim.cli.scaffold import ScaffoldError, advice, write

    try:
        written = write(kind, name, root)
        lines = list(advice(kind, name, root))
    except (ScaffoldError, OSError) as trouble:
        fail(trouble)
    for path in written:
        click.echo(f"wrote {path}")
    for line in lines:
        click.echo(line)
