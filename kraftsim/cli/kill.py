"""`kraftsim kill`: kills nodes of a running cluster."""

from pathlib import Path

import click

from kraftsim.cli.running_cluster import carry_out, data_option, nodes_argument


@click.command(
    epilog="""\b
Examples:
  kraftsim kill broker-1
  kraftsim kill leader --data runs/first
  kraftsim kill 'broker-*' && kraftsim restart 'broker-*'"""
)
@nodes_argument(required=True)
@data_option
def kill(nodes: tuple[str, ...], data: Path) -> None:
    """Kill nodes of a cluster that `kraftsim up` started with SIGKILL.

    Data in the page cache survives; connections are reset. A node stays down until `kraftsim
    restart`. NODE is a name, a pattern ('controller-*'), or `leader`: the active controller.
    """
    carry_out(data, "kill", nodes)
