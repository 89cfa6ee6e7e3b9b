"""`kraftsim heal`: removes the network faults of a running cluster."""

from pathlib import Path

import click

from kraftsim.cli.running_cluster import carry_out, data_option, nodes_argument


@click.command(
    epilog="""\b
Examples:
  kraftsim isolate broker-1 && sleep 20 && kraftsim heal
  kraftsim heal broker-1 --data runs/first"""
)
@nodes_argument(required=False)
@data_option
def heal(nodes: tuple[str, ...], data: Path) -> None:
    """Undo `kraftsim isolate` and `slow`: for all links of the named nodes, or for all links.

    Held bytes are delivered. Paused and killed nodes stay so: see `kraftsim resume` and `restart`.
    """
    carry_out(data, "heal", nodes)
