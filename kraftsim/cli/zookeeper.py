"""`kraftsim zookeeper`: a ZooKeeper server of one node, until SIGTERM."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import Failure, fail
from kraftsim.cli.node_log import open_log
from kraftsim.cli.options import DIRECTORY, parse_settings

if TYPE_CHECKING:
    import asyncio

    from kraftsim.cluster.zookeeper_node import ZookeeperNodeConfig


@click.command(
    epilog="""\b
Examples:
  kraftsim zookeeper --data runs/zookeeper
  kraftsim zookeeper --data runs/zookeeper --set clientPort=2182 --set tickTime=500
  echo srvr | nc 127.0.0.1 2181"""
)
@click.option(
    "--data",
    type=DIRECTORY,
    required=True,
    help="Directory of its transaction logs and snapshots, in ZooKeeper's formats.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of zoo.cfg: clientPort, clientPortAddress, tickTime, snapCount, "
    "maxClientCnxns ... Repeatable.",
)
def zookeeper(data: Path, settings: tuple[str, ...]) -> None:
    """Run a ZooKeeper server that implements the ZooKeeper client protocol.

    Apache Kafka up to 3.9, kazoo and other clients can store their data in it, and Apache ZooKeeper
    can read its files and vice versa. Runs until SIGTERM or Ctrl-C.
    """
    started_ns = time.monotonic_ns()
    from kraftsim.cluster.zookeeper_node import ZookeeperNodeConfig
    from kraftsim.server.config_keys import ConfigError

    try:
        config = ZookeeperNodeConfig.parse({**parse_settings(settings), "dataDir": str(data)})
    except ConfigError as trouble:
        fail(trouble)
    run_server(config, started_ns)


def run_server(config: "ZookeeperNodeConfig", started_ns: int) -> None:
    """Run a server until SIGTERM or Ctrl-C; if it fails, the verb ends with one line."""
    from kraftsim.world.real.runner import run_node

    try:
        run_node(lambda stopping: _until_stopped(config, started_ns, stopping))
    except OSError as trouble:
        raise Failure(f"{config.node_name}: {trouble}") from trouble


async def _until_stopped(
    config: "ZookeeperNodeConfig", started_ns: int, stopping: "asyncio.Event"
) -> None:
    import asyncio

    from kraftsim.cluster.directories import locked
    from kraftsim.cluster.launch import real_world_of
    from kraftsim.zookeeper.server import ZookeeperServer

    with locked(Path(config.log_dir)):
        world = real_world_of(config, started_ns)
        log, lines = open_log(world)
        server = ZookeeperServer(world, config.settings)
        await server.start()
        log.info(
            "serving",
            host=config.settings.host,
            port=server.port,
            zxid=hex(server.znode_state.last_zxid),
            znodes=len(server.znode_state.tree.znodes),
        )
        failure: asyncio.Future[BaseException] = asyncio.ensure_future(server.failed())
        failure.add_done_callback(lambda _: stopping.set())
        world.flush_events()
        await stopping.wait()
        if failure.done() and not failure.cancelled():
            raise Failure(f"{config.node_name}: {failure.result()}")
        failure.cancel()
        await server.stop()
        lines.close()
