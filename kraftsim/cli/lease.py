"""`kraftsim lease`: a lease_pid server, or a producer that writes to several, each in its own
process.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import OK, VIOLATED, Failure, fail
from kraftsim.cli.node_log import open_log
from kraftsim.cli.options import DIRECTORY, parse_settings

if TYPE_CHECKING:
    import asyncio

    from kraftsim.lease_pid.settings import LeaseSettings
    from kraftsim.world.interface import World
    from kraftsim.world.real.world import RealWorld


@click.command(
    epilog="""\b
Examples:
  kraftsim zookeeper --data runs/zookeeper
  kraftsim lease server --data runs/lease-1 --set broker.id=1 \\
      --set lease.brokers=1@127.0.0.1:9301 --set zookeeper.connect=127.0.0.1:2181 \\
      --set lease.topics=orders:3
  kraftsim lease write --data runs/writer --bootstrap 127.0.0.1:9301 \\
      --topic orders --messages 1000"""
)
@click.argument("role", type=click.Choice(["server", "write"]))
@click.option("--data", type=DIRECTORY, required=True, help="Directory for files and events.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the server. Repeatable.",
)
@click.option(
    "--bootstrap",
    default="",
    metavar="HOST:PORT,...",
    help="Servers that the producer connects to first.",
)
@click.option(
    "--topic",
    default="orders",
    show_default=True,
    help="Topic that the producer writes to; it uses partition 0.",
)
@click.option("--messages", default=100, show_default=True, help="Number of messages to write.")
@click.option(
    "--known-id", type=int, default=None, help="Producer id of an earlier producer to take over."
)
@click.option(
    "--patience",
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the producer waits for the last responses.",
)
def lease(
    role: str,
    data: Path,
    settings: tuple[str, ...],
    bootstrap: str,
    topic: str,
    messages: int,
    known_id: int | None,
    patience: float,
) -> int:
    """Run lease_pid, an idempotent producer that predates Kafka's: a server until SIGTERM or
    Ctrl-C, or a producer.

    The producer prints its id, its generation and the number of its messages in the log. It exits 1
    if some were not acknowledged.
    """
    from kraftsim.lease_pid.settings import LeaseSettings, parse_address
    from kraftsim.server.config_keys import ConfigError
    from kraftsim.world.real.runner import run_node

    started_ns = time.monotonic_ns()
    try:
        if role == "server":
            chosen = LeaseSettings.parse(parse_settings(settings))
            run_node(lambda stopping: _serve(chosen, data, started_ns, stopping))
            return OK
        addresses = [parse_address("--bootstrap", each) for each in bootstrap.split(",")]
        world = _world(f"writer-{data.name}", data, started_ns)
        return run_node(
            lambda stopping: _write(world, addresses, topic, messages, known_id, patience)
        )
    except ConfigError as trouble:
        fail(trouble)
    except OSError as trouble:
        raise Failure(f"lease: {trouble}") from trouble


def _world(node: str, data: Path, started_ns: int) -> "RealWorld":
    from kraftsim.cluster.launch import EVENTS_BESIDE_DATA
    from kraftsim.world.real.event_file import next_incarnation
    from kraftsim.world.real.world import real_world

    events = data.parent / EVENTS_BESIDE_DATA
    incarnation = next_incarnation(events, node)
    return real_world(
        run="run",
        node=node,
        incarnation=incarnation,
        data_dir=data,
        events_dir=events,
        seed=started_ns,
        started_ns=started_ns,
    )


async def _serve(
    settings: "LeaseSettings", data: Path, started_ns: int, stopping: "asyncio.Event"
) -> None:
    import asyncio

    from kraftsim.cluster.directories import locked
    from kraftsim.lease_pid.server import LeaseServer

    node = f"lease-{settings.broker_id}"
    with locked(data):
        world = _world(node, data, started_ns)
        log, lines = open_log(world)
        server = LeaseServer(world, settings)
        await server.start()
        log.info("serving", host=settings.host, port=server.port)
        failure: asyncio.Future[BaseException] = asyncio.ensure_future(server.failed())
        failure.add_done_callback(lambda _: stopping.set())
        await stopping.wait()
        if failure.done() and not failure.cancelled():
            raise Failure(f"{node}: {failure.result()}")
        failure.cancel()
        await server.stop()
        lines.close()


async def _write(
    world: "World",
    bootstrap: list[tuple[str, int]],
    topic: str,
    messages: int,
    known_id: int | None,
    patience: float,
) -> int:
    from kraftsim.lease_pid.client import LeasingProducerClient, read_all
    from kraftsim.lease_pid.rules_producer import LeasingSettings

    known = ((0, known_id),) if known_id is not None else ()
    client = LeasingProducerClient(
        world,
        bootstrap=bootstrap,
        client_id=world.node,
        topic=topic,
        settings=LeasingSettings(known_ids=known),
    )
    granted = await client.begin(0)
    for number in range(granted.sequence_number, granted.sequence_number + messages):
        client.send(0, str(number), b"message")
    left = await client.flush(patience)
    await client.close()
    there = sum(
        each.content.producer_id == granted.producer_id
        for each in await read_all(bootstrap, topic, 0)
    )
    click.echo(
        f"id {granted.producer_id}, generation {granted.generation}, in the log: {there}, "
        f"without an answer: {left}"
    )
    return VIOLATED if left else OK
