"""`kraftsim slow`: delays the traffic of nodes of a running cluster."""

from pathlib import Path

import click

from kraftsim.cli.failure import Failure
from kraftsim.cli.running_cluster import carry_out, data_option


@click.command(
    epilog="""\b
Examples:
  kraftsim slow broker-1 --latency 200 --jitter 100
  kraftsim slow 'broker-1<>controller-101' --latency 3000
  kraftsim slow 'clients>broker-*' --bandwidth 50000 && sleep 20 && kraftsim heal"""
)
@click.argument("links", nargs=-1, required=True, metavar="NODE|LINK...")
@click.option(
    "--latency",
    type=click.IntRange(min=0),
    default=0,
    metavar="MS",
    help="Added latency in each direction.",
)
@click.option(
    "--jitter",
    type=click.IntRange(min=0),
    default=0,
    metavar="MS",
    help="Random latency added to that, up to this much.",
)
@click.option(
    "--bandwidth",
    type=click.IntRange(min=0),
    default=0,
    metavar="BYTES",
    help="Maximum bytes per second of each link.",
)
@data_option
def slow(links: tuple[str, ...], latency: int, jitter: int, bandwidth: int, data: Path) -> None:
    """Slow down all links of nodes of a running cluster, or single links, until `kraftsim heal`.

    Needs `kraftsim up --proxy`. NODE and LINK are those of `kraftsim isolate`.
    """
    from kraftsim.lab.faults.field import Condition

    if not latency and not jitter and not bandwidth:
        raise Failure("give --latency, --jitter or --bandwidth")
    carry_out(
        data,
        "slow",
        links,
        Condition(latency_ms=latency, jitter_ms=jitter, bytes_per_second=bandwidth),
    )
