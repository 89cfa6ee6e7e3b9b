"""`kraftsim node`: one node, from a Kafka properties file, until it is told to stop."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import Failure, fail
from kraftsim.cli.options import parse_settings, settings_option

if TYPE_CHECKING:
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
    """Run a node on uvloop until SIGTERM or SIGINT, or until one of its tasks fails."""
    import asyncio
    import gc

    import uvloop

    from kraftsim.cluster.directories import DataDirectoryError

    gc.freeze()  # modules and classes stay; the collector need not look at them again
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_stopped(config, started_ns))
    except (DataDirectoryError, KeyError) as trouble:
        fail(trouble)
    except OSError as trouble:
        raise Failure(f"{config.node_name}: {trouble.strerror or trouble}") from trouble


async def _until_stopped(config: "NodeConfig", started_ns: int) -> None:
    import asyncio
    import signal

    from kraftsim.cluster.launch import build_node, parts_of, real_world_of

    world = real_world_of(config, started_ns)
    running = build_node(config, world, parts_of(config))
    loop = asyncio.get_running_loop()
    failure: asyncio.Future[BaseException] = asyncio.ensure_future(running.failed())
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    failure.add_done_callback(lambda _: asked_to_stop.set())
    await running.start()
    world.flush_events()
    await asked_to_stop.wait()
    if failure.done():
        raise Failure(f"{config.node_name} failed: {failure.result()!r}") from failure.result()
    failure.cancel()
    await running.stop()
    world.flush_events()
