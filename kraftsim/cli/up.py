"""`kraftsim up`: a cluster of processes on this machine, in the foreground or detached."""

from pathlib import Path

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.http_options import http_options, http_plan
from kraftsim.cli.node_log import log_options
from kraftsim.cli.options import (
    DIRECTORY,
    bugs_option,
    codec_option,
    extension_option,
    properties_option,
    release_option,
    settings_of,
    settings_option,
)


@click.command(
    epilog="""\b
Examples:
  kraftsim up                                        # one controller, three brokers; port 9092
  kraftsim up --brokers 1 --port 19092 --data runs/small
  kraftsim up --combined 1                           # one node that is both; --combined 3: a quorum
  kraftsim up --zookeeper --release 2.8              # ZooKeeper, three brokers, no controllers
  kraftsim up --release 3.5 --set log.segment.bytes=65536
  kraftsim up --properties server.properties --ignore-unknown    # as your own brokers are set
  kraftsim up --data runs/first --detach && kraftsim down --data runs/first
  kraftsim up --proxy --detach && kraftsim isolate broker-1 && kraftsim heal
  kraftsim up --http 8080 --proxy                    # prints a URL with a token: a live page
  curl -H "Authorization: Bearer $TOKEN" -X POST http://127.0.0.1:8080/v1/nodes/broker-1/kill
  kraftsim up --log-format json --log-level debug    # log lines go to runs/up/logs
  kraftsim kill broker-1 && kraftsim restart broker-1"""
)
@click.option(
    "--controllers",
    default=None,
    type=int,
    help="Number of controllers.  [default: 1, with --zookeeper 0, with --combined as many]",
)
@click.option(
    "--combined",
    default=0,
    type=click.IntRange(min=0),
    help="Number of nodes that are brokers and controllers in one process "
    "(process.roles=broker,controller). They count as --brokers and --controllers.",
)
@click.option(
    "--zookeeper",
    is_flag=True,
    help="Start brokers in ZooKeeper mode and a ZooKeeper server; --controllers are for a "
    "migration to KRaft.",
)
@click.option(
    "--brokers",
    default=None,
    type=int,
    help="Number of brokers.  [default: 3, with --combined as many]",
)
@click.option(
    "--port",
    default=9092,
    show_default=True,
    help="Port of the first broker; the next ones follow, controllers listen 100 higher.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address that nodes listen on. Other machines can connect unless it is loopback.",
)
@click.option(
    "--data",
    type=DIRECTORY,
    default=Path("runs/up"),
    show_default=True,
    help="Directory for disks, logs and events.",
)
@click.option(
    "--detach", is_flag=True, help="Run in the background; return when every broker is ready."
)
@click.option(
    "--proxy",
    is_flag=True,
    help="Put a proxy in front of every node: `kraftsim isolate`, `slow` and `heal` need it. "
    "Reduces throughput.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    help="Seed of the nodes' random choices; 0 takes the operating system's entropy.",
)
@http_options
@release_option
@bugs_option
@codec_option
@properties_option
@settings_option
@extension_option
@log_options
def up(
    controllers: int | None,
    combined: int,
    zookeeper: bool,
    brokers: int | None,
    port: int,
    host: str,
    data: Path,
    detach: bool,
    proxy: bool,
    http: int | None,
    http_host: str,
    http_token_file: Path | None,
    seed: int,
    release: str,
    bugs: tuple[str, ...],
    properties: Path | None,
    ignore_unknown: bool,
    settings: tuple[str, ...],
) -> int:
    """Start a cluster of processes on this machine.

    Prints bootstrap.servers when every broker is ready, and runs until SIGTERM or Ctrl-C; then it
    stops the nodes cleanly. Meanwhile, `kraftsim kill`, `restart`, `pause` and `resume` inject
    process faults, and with --proxy `kraftsim isolate`, `slow` and `heal` inject network faults.
    """
    from kraftsim.cluster.readiness import ClusterFailed
    from kraftsim.cluster.spec import ClusterSpec, SpecError
    from kraftsim.cluster.supervise import up as bring_up
    from kraftsim.server.config_keys import ConfigError

    given = settings_of(properties, settings, ignore_unknown=ignore_unknown)
    plan = http_plan(http_host, http, http_token_file)
    service = None
    if plan is not None:
        from kraftsim.control.service import ControlService

        service = ControlService(plan)
    try:
        spec = ClusterSpec(
            controllers=controllers
            if controllers is not None
            else 0
            if zookeeper
            else combined or 1,
            combined=combined,
            zookeeper=zookeeper,
            brokers=brokers if brokers is not None else combined or 3,
            port=port,
            host=host,
            release=release,
            bugs=bugs,
            seed=seed,
            behind_proxy=proxy,
            run=data.name or "up",
            settings=given,
        )
        return bring_up(spec, data, detach, click.echo, service)
    except (SpecError, ConfigError, ClusterFailed, KeyError, OSError) as trouble:
        fail(trouble)


# --------------------------------------------------------------------------------------------------
# `kraftsim join`: the configuration with which a broker of Apache Kafka joins a cluster that runs
# here


@click.command(
    epilog="""\b
Examples:
  kraftsim up --controllers 3 --brokers 1 --data runs/mixed --detach
  kraftsim join --data runs/mixed --node-id 7 --port 9192 > server.properties
  kafka-storage.sh format --config server.properties --cluster-id a3JhZnRzaW0tY2x1c3RlcQ
  kafka-server-start.sh server.properties"""
)
@click.option(
    "--data",
    type=DIRECTORY,
    default=Path("runs/up"),
    show_default=True,
    help="The --data directory of `up`.",
)
@click.option(
    "--node-id",
    default=7,
    show_default=True,
    help="The broker's node.id; it must be unused in the cluster.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address that the broker listens on."
)
@click.option("--port", default=9292, show_default=True, help="Port that the broker listens on.")
@click.option(
    "--log-dir",
    type=DIRECTORY,
    default=None,
    help="Log directory of the broker.  [default: DATA/data/apache-broker-ID]",
)
def join(data: Path, node_id: int, host: str, port: int, log_dir: Path | None) -> None:
    """Print the server.properties for a broker of Apache Kafka that joins a cluster of `up`.

    Its first lines are comments with the two commands that start the broker. Needs Apache Kafka 3.9
    or newer.
    """
    from kraftsim.cli.properties import read_properties
    from kraftsim.cluster.directories import RunDirectory
    from kraftsim.cluster.spec import NothingToJoin, broker_properties, server_properties_text

    directory = RunDirectory(data.absolute())
    nodes = [
        read_properties(file.read_text())
        for file in sorted((directory.root / "config").glob("*.properties"))
    ]
    try:
        properties = broker_properties(
            nodes,
            node_id=node_id,
            host=host,
            port=port,
            log_dir=log_dir or directory.data(f"apache-broker-{node_id}"),
        )
    except NothingToJoin as trouble:
        fail(trouble)
    click.echo(server_properties_text(properties, nodes[0]["kraftsim.cluster.id"]), nl=False)
