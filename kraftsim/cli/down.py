"""`kraftsim down`: stops what `kraftsim up --detach` started."""

from pathlib import Path

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.options import DIRECTORY


@click.command(epilog="\b\nExample:\n  kraftsim down --data runs/first")
@click.option(
    "--data",
    type=DIRECTORY,
    default=Path("runs/up"),
    show_default=True,
    help="The --data directory of `up`.",
)
def down(data: Path) -> None:
    """Stop a cluster that `up --detach` started: brokers first, then controllers, each cleanly."""
    from kraftsim.cluster.readiness import ClusterFailed
    from kraftsim.cluster.supervise import down as bring_down

    try:
        stopped = bring_down(data)
    except (ClusterFailed, FileNotFoundError) as trouble:
        fail(trouble)
    click.echo(f"{stopped} nodes stopped")
