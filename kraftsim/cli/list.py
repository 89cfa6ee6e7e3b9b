"""`kraftsim list`: what there is, one entry a line."""

from pathlib import Path

import click

from kraftsim.cli.kinds import ALL_KINDS
from kraftsim.cli.options import json_option, write_json


@click.command(epilog="\b\nExamples:\n  kraftsim list scenarios\n  kraftsim list invariants --json invariants.json")
@click.argument("kind", type=click.Choice(ALL_KINDS))
@json_option
def list(kind: str, json_file: Path | None) -> None:
    """List the entries of a KIND: name first, then one sentence about it."""
    from kraftsim.cli.kinds import listing

    rows = listing(kind)
    width = max((len(name) for name, _ in rows), default=0)
    if str(json_file) != "-":
        for name, sentence in rows:
            click.echo(f"{name:<{width}}  {sentence}".rstrip())
    write_json(json_file, [{"name": name, "about": sentence} for name, sentence in rows])
