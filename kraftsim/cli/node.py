"""`kraftsim node`: runs one node, configured by a Kafka properties file, until SIGTERM."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import Failure, fail
from kraftsim.cli.node_log import log_options, open_log
from kraftsim.cli.options import (
    DIRECTORY,
    codec_option,
    extension_option,
    ignore_unknown_option,
    known_settings,
    parse_settings,
    settings_option,
)

if TYPE_CHECKING:
    import asyncio

    from kraftsim.cluster.zookeeper_node import ZookeeperNodeConfig
    from kraftsim.server.config import NodeConfig
    from kraftsim.server.parts import Parts


COLLECTED_AT_OBJECTS = 10_000
"""The allocation threshold of the youngest garbage-collector generation; Python's default is 700.

A request of 20,000 entries makes 100,000 objects and used to trigger a full collection, which stops
the node for 50 ms of CPU time. With this threshold such collections are fourteen times as rare.
"""


@click.command(
    epilog="""\b
Examples:
  kraftsim node broker.properties
  kraftsim node broker.properties --set node.id=2 --set listeners=PLAINTEXT://127.0.0.1:9093
  KAFKA_NODE_ID=2 KAFKA_PROCESS_ROLES=broker ... kraftsim node --environment"""
)
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--environment",
    "asks_environment",
    is_flag=True,
    help="Read properties from KAFKA_... variables, as Apache Kafka's container image does.",
)
@codec_option
@ignore_unknown_option
@settings_option
@extension_option
@log_options
def node(
    file: Path | None, asks_environment: bool, ignore_unknown: bool, settings: tuple[str, ...]
) -> None:
    """Run one node from a Kafka properties FILE, from the environment, or both. --set overrides
    both.

    `process.roles` makes it a broker or a controller, `zookeeper.connect` a broker in ZooKeeper
    mode, and `clientPort` a ZooKeeper server. Runs until SIGTERM or Ctrl-C, then stops cleanly.
    """
    started_ns = time.monotonic_ns()
    from kraftsim.cluster.zookeeper_node import ZookeeperNodeConfig, is_zookeeper
    from kraftsim.server.config import NodeConfig
    from kraftsim.server.config_keys import ConfigError

    place = str(file) if file is not None else "environment" if asks_environment else "settings"
    try:
        properties = _properties(file, asks_environment, settings)
        if is_zookeeper(properties):
            run_server(ZookeeperNodeConfig.parse(properties), started_ns)
            return
        config = NodeConfig.parse(known_settings(properties) if ignore_unknown else properties)
    except (ConfigError, UnicodeDecodeError) as trouble:
        raise Failure(f"{place}: {trouble}") from trouble
    run_node(config, started_ns)


def _properties(
    file: Path | None, asks_environment: bool, settings: tuple[str, ...]
) -> dict[str, str]:
    from kraftsim.cli.properties import properties_of_environment, read_properties

    if file is None and not asks_environment and not settings:
        raise Failure("no properties are given: name a FILE, or use --environment or --set")
    from_file = read_properties(file.read_text(encoding="utf-8")) if file is not None else {}
    from_environment = properties_of_environment(os.environ) if asks_environment else {}
    return {**from_file, **from_environment, **parse_settings(settings)}


def run_node(
    config: "NodeConfig", started_ns: int, *, on_ready: Callable[[], None] = lambda: None
) -> None:
    """Run a node until SIGTERM or Ctrl-C; if the node fails, the verb ends with one line.

    `on_ready` is called once it serves clients.
    """
    import gc

    from kraftsim.server.config_keys import ConfigError
    from kraftsim.world.real.runner import run_node as run_on_uvloop

    gc.freeze()  # modules and classes stay; the collector need not look at them again
    gc.set_threshold(COLLECTED_AT_OBJECTS)
    try:
        run_on_uvloop(lambda stopping: _until_stopped(config, started_ns, stopping, on_ready))
    except (ConfigError, KeyError) as trouble:
        fail(trouble)
    except OSError as trouble:
        raise Failure(f"{config.node_name}: {trouble}") from trouble


async def _until_stopped(
    config: "NodeConfig",
    started_ns: int,
    stopping: "asyncio.Event",
    on_ready: Callable[[], None],
) -> None:
    from kraftsim.cluster.directories import locked
    from kraftsim.cluster.launch import parts_of

    parts = parts_of(config)
    with ExitStack() as held:
        for directory in dict.fromkeys((*config.log_dirs, config.metadata_directory)):
            held.enter_context(locked(Path(directory)))
        await _hold(config, parts, started_ns, stopping, on_ready)


async def _hold(
    config: "NodeConfig",
    parts: "Parts",
    started_ns: int,
    stopping: "asyncio.Event",
    on_ready: Callable[[], None],
) -> None:
    import asyncio
    import gc

    from kraftsim.cluster.launch import build_node, real_world_of
    from kraftsim.server.events import NodeFailed
    from kraftsim.server.settings_in_effect import keys_without_effect
    from kraftsim.server.tasks import report_unhandled_errors

    world = real_world_of(config, started_ns)
    mistakes: list[Exception] = []

    def on_mistake(mistake: Exception) -> None:
        mistakes.append(mistake)
        stopping.set()

    report_unhandled_errors(asyncio.get_running_loop(), on_mistake)
    log, lines = open_log(world)
    log.info(
        "starting",
        release=config.release,
        roles=config.role,
        bugs=",".join(config.bugs) or "none",
        data=config.log_dir,
    )
    unused = keys_without_effect(config.given)
    if unused:
        log.warning("settings without effect", keys=",".join(unused))
    try:
        running = build_node(config, world, parts)
        failure: asyncio.Future[BaseException] = asyncio.ensure_future(running.failed())
        failure.add_done_callback(lambda _: stopping.set())
        await running.start()
        gc.freeze()  # nor at what the node was built of
        for listener, address in running.addresses.items():
            log.info("listening", listener=listener, host=address.host, port=address.port)
        ready = asyncio.ensure_future(running.ready())

        def tell(done: "asyncio.Future[None]") -> None:
            if not done.cancelled() and done.exception() is None:
                log.info("serving")
                on_ready()

        ready.add_done_callback(tell)
        world.flush_events()
        await stopping.wait()
        ready.cancel()
        if failure.done() and not failure.cancelled():
            _print_source(failure.result())
            raise Failure(
                f"{config.node_name} failed: {_named(failure.result())}"
            ) from failure.result()
        failure.cancel()
        if mistakes:
            running.abort()
            world.emit(NodeFailed(reason=repr(mistakes[0])))
            raise Failure(f"{config.node_name} failed: {mistakes[0]!r}") from mistakes[0]
        log.info("stopping")
        await running.stop()
        log.info("stopped")
    finally:
        lines.close()
        world.close()


def _named(failure: BaseException) -> str:
    """Return why a node failed; the message of a quorum configuration error is sufficient by
    itself.
    """
    from kraftsim.raft.rules_quorum import FatalQuorumError

    return str(failure) if isinstance(failure, FatalQuorumError) else repr(failure)


def _print_source(failure: BaseException) -> None:
    """Print where in kraftsim an internal error occurred; a broken disk or an invalid quorum needs
    no traceback.
    """
    import traceback

    from kraftsim.raft.rules_quorum import FatalQuorumError

    if not isinstance(failure, OSError | FatalQuorumError):
        traceback.print_exception(failure)


# --------------------------------------------------------------------------------------------------
# `kraftsim zookeeper`: a ZooKeeper server of one node, until SIGTERM


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
        run_node(lambda stopping: _until_server_stopped(config, started_ns, stopping))
    except OSError as trouble:
        raise Failure(f"{config.node_name}: {trouble}") from trouble


async def _until_server_stopped(
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
