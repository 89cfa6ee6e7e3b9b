"""`kraftsim node`: one node, from a Kafka properties file, until it is told to stop."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import Failure, fail
from kraftsim.cli.options import parse_settings, settings_option

if TYPE_CHECKING:
    import asyncio

    from kraftsim.node.config import NodeConfig


@click.command(
    epilog="""\b
Examples:
  kraftsim node broker.properties
  kraftsim node broker.properties --set node.id=2 --set listeners=PLAINTEXT://127.0.0.1:9093"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@settings_option
def node(file: Path, settings: tuple[str, ...]) -> None:
    """Run one node from a Kafka properties FILE; --set wins over the file.

    A controller or a broker, as `process.roles` says. Stays until SIGTERM or Ctrl-C, then stops cleanly.
    """
    started_ns = time.monotonic_ns()
    from kraftsim.cli.properties import read_properties
    from kraftsim.node.config import NodeConfig
    from kraftsim.node.config_keys import ConfigError

    try:
        properties = {**read_properties(file.read_text(encoding="utf-8")), **parse_settings(settings)}
        config = NodeConfig.parse(properties)
    except (ConfigError, UnicodeDecodeError) as trouble:
        raise Failure(f"{file}: {trouble}") from trouble
    run_node(config, started_ns)


def run_node(config: "NodeConfig", started_ns: int) -> None:
    """Run a node until SIGTERM or Ctrl-C; a node that fails ends the verb with one line."""
    import gc

    from kraftsim.node.config_keys import ConfigError
    from kraftsim.world.real.runner import run_node as run_on_uvloop

    gc.freeze()  # modules and classes stay; the collector need not look at them again
    try:
        run_on_uvloop(lambda stopping: _until_stopped(config, started_ns, stopping))
    except (ConfigError, KeyError) as trouble:
        fail(trouble)
    except OSError as trouble:
        raise Failure(f"{config.node_name}: {trouble}") from trouble


async def _until_stopped(config: "NodeConfig", started_ns: int, stopping: "asyncio.Event") -> None:
    import asyncio

    from kraftsim.cluster.launch import build_node, parts_of, real_world_of

    parts = parts_of(config)
    world = real_world_of(config, started_ns)
    try:
        running = build_node(config, world, parts)
        failure: asyncio.Future[BaseException] = asyncio.ensure_future(running.failed())
        failure.add_done_callback(lambda _: stopping.set())
        await running.start()
        world.flush_events()
        await stopping.wait()
        if failure.done() and not failure.cancelled():
            raise Failure(f"{config.node_name} failed: {failure.result()!r}") from failure.result()
        failure.cancel()
        await running.stop()
    finally:
        world.close()
