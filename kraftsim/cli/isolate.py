"""`kraftsim isolate`: partitions nodes of a running cluster from the network."""

from pathlib import Path

import click

from kraftsim.cli.running_cluster import carry_out, data_option


@click.command(
    epilog="""\b
Examples:
  kraftsim up --proxy --detach && kraftsim isolate broker-1 && sleep 20 && kraftsim heal
  kraftsim isolate leader
  kraftsim isolate 'broker-1<>controller-101'    # both directions
  kraftsim isolate 'broker-1>controller-*'       # from broker-1 to the controllers only
  kraftsim isolate 'clients<>broker-2'           # all clients of broker-2
  kraftsim isolate --reset broker-1              # reset its connections; clients can reconnect"""
)
@click.argument("links", nargs=-1, required=True, metavar="NODE|LINK...")
@click.option("--reset", is_flag=True, help="Reset the open connections; new ones work.")
@data_option
def isolate(links: tuple[str, ...], reset: bool, data: Path) -> None:
    """Partition nodes of a running cluster from all others, or partition single links, until
    `kraftsim heal`.

    Bytes are held and delivered after `heal`, as TCP does; new connections are accepted but
    transfer no data. Needs `kraftsim up --proxy`. NODE is a name, a pattern ('controller-*') or
    `leader`; LINK is 'A>B' for one direction or 'A<>B' for both; `clients` matches all connections
    of clients.
    """
    from kraftsim.lab.faults.field import Condition

    carry_out(data, "cut", links, Condition(holds=True), resets=reset)
