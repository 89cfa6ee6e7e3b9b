"""`kraftsim resume`: resumes paused nodes."""

from pathlib import Path

import click

from kraftsim.cli.running_cluster import carry_out, data_option, nodes_argument


@click.command(
    epilog="""\b
Examples:
  kraftsim resume broker-1
  kraftsim resume"""
)
@nodes_argument(required=False)
@data_option
def resume(nodes: tuple[str, ...], data: Path) -> None:
    """Resume paused nodes of a running cluster (SIGCONT): the named ones, or all."""
    carry_out(data, "resume", nodes)
