"""`kraftsim join`: the configuration with which a broker of Apache Kafka joins a cluster that runs
here.
"""

from pathlib import Path

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.options import DIRECTORY


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
    from kraftsim.cluster.joining import NothingToJoin, broker_properties, server_properties_text

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
