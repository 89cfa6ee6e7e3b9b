"""`kraftsim cut`: nodes of a running cluster are cut off."""

from pathlib import Path

import click

from kraftsim.cli.by_hand import carry_out, data_option


@click.command(
    epilog="""\b
Examples:
  kraftsim up --proxy --detach && kraftsim cut broker-1 && sleep 20 && kraftsim heal
  kraftsim cut leader
  kraftsim cut 'broker-1<>controller-101'    nothing passes between the two
  kraftsim cut 'broker-1>controller-*'       the controllers do not hear broker-1, and it hears them
  kraftsim cut 'clients<>broker-2'           clients of any kind do not reach broker-2
  kraftsim cut --reset broker-1              its connections break, and new ones are let through"""
)
@click.argument("links", nargs=-1, required=True, metavar="NODE|LINK...")
@click.option("--reset", is_flag=True, help="Reset the connections that there are, and let new ones through.")
@data_option
def cut(links: tuple[str, ...], reset: bool, data: Path) -> None:
    """Cut nodes of a running cluster off from everybody, or some links between nodes, until `kraftsim heal`.

    What is sent is held and delivered when it is healed, as TCP does; whoever connects is heard by nobody. Needs a cluster of `kraftsim up --proxy`.
    NODE is a name, a pattern ('controller-*') or `leader`; LINK is 'A>B' for one direction, 'A<>B' for both, and `clients` are all others.
    """
    from kraftsim.faults.field import Condition

    carry_out(data, "cut", links, Condition(holds=True), resets=reset)
