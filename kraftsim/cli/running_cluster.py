"""The verbs that act on a running cluster: kill, restart, pause and resume its nodes, isolate and
slow their links, heal, and stop it.

All but `down` send one command to the process of `kraftsim up` (`kraftsim.cluster.manual_faults`)
and print what it did. Targets are names, patterns, or `leader`; network faults need `up --proxy`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import click

from kraftsim.cli.failure import Failure, fail
from kraftsim.cli.options import (
    DIRECTORY,
    extension_option,
    known_release,
    parse_settings,
    settings_option,
)

if TYPE_CHECKING:
    from kraftsim.cluster.manual_faults import FaultRequest
    from kraftsim.lab.faults.field import Condition


Verb = TypeVar("Verb", bound=Callable[..., object])


def data_option(verb: Verb) -> Verb:
    """Add `--data`; the verb gets `data: Path`."""
    option = click.option(
        "--data",
        type=DIRECTORY,
        default=Path("runs/up"),
        show_default=True,
        help="The --data directory of `up`.",
    )
    return option(verb)


def nodes_argument(*, required: bool) -> Callable[[Verb], Verb]:
    """Add NODE...; the verb gets `nodes: tuple[str, ...]`."""
    return click.argument(
        "nodes", nargs=-1, required=required, metavar="NODE..." if required else "[NODE]..."
    )


def carry_out(
    data: Path,
    verb: str,
    targets: tuple[str, ...],
    condition: "Condition | None" = None,
    *,
    resets: bool = False,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Send a command to the cluster of a data directory, and print the result."""
    from kraftsim.cluster.manual_faults import FaultRequest
    from kraftsim.lab.faults.field import Condition

    order = FaultRequest(
        verb=verb,
        targets=targets,
        condition=condition or Condition(),
        resets=resets,
        settings=dict(settings),
    )
    for line in answered(data, order):
        click.echo(line)


def answered(data: Path, order: "FaultRequest") -> "Sequence[str]":
    """Send a command to the cluster of a data directory, and return what it did."""
    from kraftsim.cluster.manual_faults import NotPossible, ask

    try:
        return ask(data, order)
    except NotPossible as trouble:
        fail(trouble)


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


@click.command(
    epilog="""\b
Examples:
  kraftsim kill broker-1 && kraftsim restart broker-1
  kraftsim restart 'controller-*' --data runs/first
  kraftsim restart broker-2 --release 4.1
  kraftsim restart 'broker-*' --set num.io.threads=4"""
)
@nodes_argument(required=True)
@click.option("--release", metavar="RELEASE", help="Run this release of Kafka from now on.")
@settings_option
@extension_option
@data_option
def restart(
    nodes: tuple[str, ...], release: str | None, settings: tuple[str, ...], data: Path
) -> None:
    """Restart nodes of a running cluster on their disks.

    A node that is up is stopped cleanly first. Release and settings hold until `kraftsim down`.

    Returns when they are ready, or reports those that are not ready yet: a broker waits for its
    controller.
    """
    from kraftsim.cluster.spec import RELEASE_KEY

    changed = parse_settings(settings)
    if release is not None:
        changed[RELEASE_KEY] = known_release(release)
    carry_out(data, "restart", nodes, settings=changed)


@click.command(
    epilog="""\b
Examples:
  kraftsim up --controllers 3 --release 3.9 --detach && kraftsim upgrade --to 4.1
  kraftsim upgrade --to 4.0 --pause 30      # half a minute between two nodes

It restarts brokers, then controllers, the active one last, and goes on when the node serves and
every replica is in sync. Feature levels stay: kafka-features.sh raises them, as after a real
upgrade."""
)
@click.option("--to", "release", required=True, metavar="RELEASE", help="The release to run.")
@click.option(
    "--pause",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Wait between two nodes.",
)
@extension_option
@data_option
def upgrade(release: str, pause: float, data: Path) -> None:
    """Upgrade a running cluster to another release, node by node, while clients work."""
    import time

    from kraftsim.cluster.manual_faults import FaultRequest
    from kraftsim.cluster.spec import RELEASE_KEY

    settings = {RELEASE_KEY: known_release(release)}
    nodes = answered(data, FaultRequest(verb="order"))
    started, longest = time.monotonic(), (0.0, "")
    for number, node in enumerate(nodes, 1):
        if number > 1:
            time.sleep(pause)
        before = time.monotonic()
        order = FaultRequest(
            verb="restart", targets=(node,), settings=settings, awaits_replicas=True
        )
        (line,) = answered(data, order)
        seconds = time.monotonic() - before
        longest = max(longest, (seconds, node))
        click.echo(f"[{number}/{len(nodes)}] {line} ({seconds:.1f} s)")
        if ";" in line:
            raise Failure(
                f"stopped at {node}: see its log in {data / 'logs'}; the nodes after it run the "
                "former release"
            )
    click.echo(
        f"{len(nodes)} nodes run {release} after {time.monotonic() - started:.1f} s; the longest "
        f"step was {longest[1]} with {longest[0]:.1f} s"
    )


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


@click.command(epilog="\b\nExample:\n  kraftsim down --data runs/first")
@data_option
def down(data: Path) -> None:
    """Stop a cluster that `up --detach` started: brokers first, then controllers, each cleanly."""
    from kraftsim.cluster.readiness import ClusterFailed
    from kraftsim.cluster.supervise import down as bring_down

    try:
        stopped = bring_down(data)
    except (ClusterFailed, FileNotFoundError) as trouble:
        fail(trouble)
    click.echo(f"{stopped} nodes stopped")
