"""`kraftsim join`: what a broker of Apache Kafka must be told to join a cluster that runs here."""

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
@click.option("--data", type=DIRECTORY, default=Path("runs/up"), show_default=True, help="The directory that `up` was given.")
@click.option("--node-id", default=7, show_default=True, help="The broker's id; no node of the cluster may have it.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address that the broker listens on.")
@click.option("--port", default=9292, show_default=True, help="The port that the broker listens on.")
@click.option("--log-dir", type=DIRECTORY, default=None, help="Where the broker keeps its data.  [default: DATA/data/apache-broker-ID]")
def join(data: Path, node_id: int, host: str, port: int, log_dir: Path | None) -> None:
    """Print the server.properties with which a broker of Apache Kafka joins the cluster of `up`.

    The file's first lines are the two commands that use it; any release from 3.9 on will do.
    """
    from kraftsim.cli.properties import read_properties
    from kraftsim.cluster.directories import RunDirectory
    from kraftsim.cluster.joining import NothingToJoin, broker_properties, server_properties_text

    directory = RunDirectory(data.absolute())
    nodes = [read_properties(file.read_text()) for file in sorted((directory.root / "config").glob("*.properties"))]
    try:
        properties = broker_properties(nodes, node_id=node_id, host=host, port=port, log_dir=log_dir or directory.data(f"apache-broker-{node_id}"))
    except NothingToJoin as trouble:
        fail(trouble)
    click.echo(server_properties_text(properties, nodes[0]["kraftsim.cluster.id"]), nl=False)
