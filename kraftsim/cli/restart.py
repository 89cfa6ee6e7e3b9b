"""`kraftsim restart`: restarts nodes of a running cluster."""

from pathlib import Path

import click

from kraftsim.cli.running_cluster import carry_out, data_option, nodes_argument


@click.command(
    epilog="""\b
Examples:
  kraftsim kill broker-1 && kraftsim restart broker-1
  kraftsim restart 'controller-*' --data runs/first"""
)
@nodes_argument(required=True)
@data_option
def restart(nodes: tuple[str, ...], data: Path) -> None:
    """Restart nodes of a running cluster on their disks.

    A node that is up is stopped cleanly first.

    Returns when they are ready, or reports those that are not ready yet: a broker waits for its
    controller.
    """
    carry_out(data, "restart", nodes)
