"""`kraftsim pause`: pauses nodes of a running cluster."""

from pathlib import Path

import click

from kraftsim.cli.running_cluster import carry_out, data_option, nodes_argument


@click.command(
    epilog="""\b
Examples:
  kraftsim pause broker-1 && sleep 20 && kraftsim resume broker-1
  kraftsim pause leader --data runs/first"""
)
@nodes_argument(required=True)
@data_option
def pause(nodes: tuple[str, ...], data: Path) -> None:
    """Pause nodes of a running cluster (SIGSTOP), as in a long garbage collection.

    Their connections stay open and get no response until `kraftsim resume`.
    """
    carry_out(data, "pause", nodes)
