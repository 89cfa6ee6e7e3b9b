"""`kraftsim zookeeper`: a ZooKeeper server of one node, until it is told to stop."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import Failure, fail
from kraftsim.cli.options import DIRECTORY, parse_settings

if TYPE_CHECKING:
    import asyncio

    from kraftsim.node.zookeeper.settings import ZookeeperSettings

NAME = "zookeeper-1"


@click.command(
    epilog="""\b
Examples:
  kraftsim zookeeper --data runs/zookeeper
  kraftsim zookeeper --data runs/zookeeper --set clientPort=2182 --set tickTime=500
  echo srvr | nc 127.0.0.1 2181"""
)
@click.option("--data", type=DIRECTORY, required=True, help="Where its files are, in ZooKeeper's own formats.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of ZooKeeper's configuration file: clientPort, clientPortAddress, tickTime, snapCount, maxClientCnxns ... Repeatable.",
)
def zookeeper(data: Path, settings: tuple[str, ...]) -> None:
    """Run a ZooKeeper server that speaks the real client protocol.

    Apache Kafka up to 3.9, kazoo and other clients keep their data in it; Apache ZooKeeper reads its files and the other way round. Stays until
    SIGTERM or Ctrl-C.
    """
    started_ns = time.monotonic_ns()
    from kraftsim.node.config_keys import ConfigError
    from kraftsim.node.zookeeper.settings import ZookeeperSettings
    from kraftsim.world.real.runner import run_node

    try:
        chosen = ZookeeperSettings.parse(parse_settings(settings), NAME)
        run_node(lambda stopping: _until_stopped(chosen, data, started_ns, stopping))
    except ConfigError as trouble:
        fail(trouble)
    except OSError as trouble:
        raise Failure(f"{NAME}: {trouble}") from trouble


async def _until_stopped(settings: "ZookeeperSettings", data: Path, started_ns: int, stopping: "asyncio.Event") -> None:
    import asyncio

    from kraftsim.cluster.directory_lock import locked
    from kraftsim.cluster.launch import EVENTS_BESIDE_DATA
    from kraftsim.node.zookeeper.server import ZookeeperServer
    from kraftsim.world.human_log import set_up_human_log
    from kraftsim.world.real.event_files import next_incarnation
    from kraftsim.world.real.world import real_world

    with locked(data):
        events = data.parent / EVENTS_BESIDE_DATA
        incarnation = next_incarnation(events, NAME)
        world = real_world(run="run", node=NAME, incarnation=incarnation, data_dir=data, events_dir=events, seed=started_ns, started_ns=started_ns)
        log = set_up_human_log(world.clock, node=world.node, incarnation=world.incarnation)
        server = ZookeeperServer(world, settings)
        await server.start()
        log.info("serving", host=settings.host, port=server.port, zxid=hex(server.keeper.last_zxid), znodes=len(server.keeper.tree.znodes))
        failure: asyncio.Future[BaseException] = asyncio.ensure_future(server.failed())
        failure.add_done_callback(lambda _: stopping.set())
        world.flush_events()
        await stopping.wait()
        if failure.done() and not failure.cancelled():
            raise Failure(f"{NAME}: {failure.result()}")
        failure.cancel()
        await server.stop()
