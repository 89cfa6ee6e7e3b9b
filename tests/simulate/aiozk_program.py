# ruff: noqa: E402  (the launcher comes before what it pins)
"""A separate program: unmodified aiozk clients and kraftsim's ZooKeeper inside virtual time. Prints
the digest of the event log, and the lock's holders.

    python tests/simulate/aiozk_program.py SEED
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kraftsim.world.simulated.launcher import relaunch_pinned

PINNING = relaunch_pinned(sys.orig_argv[1:])  # before aiozk is imported

import asyncio
import contextlib
import hashlib

import aiozk

from kraftsim.world.interface import World
from kraftsim.world.simulated import Simulation
from kraftsim.zookeeper.server import ZookeeperServer
from kraftsim.zookeeper.settings import ZookeeperSettings

SERVER, PORT = "zookeeper-1", 2181
CLIENTS, TURNS = 3, 6


async def serve(world: World, servers: list[ZookeeperServer]) -> None:
    """Run the server until it fails."""
    server = ZookeeperServer(world, ZookeeperSettings(host=SERVER, port=PORT, tick_ms=1000))
    servers.append(server)
    await server.start()
    raise await server.failed()


async def count(name: str, held: list[str]) -> None:
    """Increment the number in a znode so many times, each time holding a lock; retry after
    connection errors.
    """
    client = aiozk.ZKClient(f"{SERVER}:{PORT}", session_timeout=10)
    await client.start()
    with contextlib.suppress(aiozk.exc.NodeExists):
        await client.create("/number", "0")
    for _ in range(TURNS):
        async with client.recipes.Lock("/lock"):
            held.append(name)
            number = int(await client.get_data("/number"))
            await asyncio.sleep(0.05)
            await client.set_data("/number", str(number + 1))
    await client.close()


def main(seed: int) -> None:
    """Run and print: whether the launcher could pin everything, the digest, the lock's holders, the
    final number.
    """
    held: list[str] = []
    servers: list[ZookeeperServer] = []
    with Simulation(seed) as simulation:
        host = simulation.add_host(SERVER)
        simulation.spawn(host, serve(simulation.world_of(host), servers))
        simulation.run_for(0.1)
        hosts = [
            simulation.add_host(f"client-{number}", tolerant=True) for number in range(CLIENTS)
        ]
        tasks = [simulation.spawn(host, count(host.name, held)) for host in hosts]
        simulation.run_for(0.4)
        simulation.kill("client-1")  # its locks are free when its session has expired
        del tasks[1]
        simulation.run_until(lambda: all(task.done() for task in tasks), limit_s=300)
        assert [task.exception() for task in tasks] == [None] * (CLIENTS - 1)
        number = servers[-1].znode_state.tree.znodes["/number"].data or b""
        print(
            PINNING.is_complete,
            hashlib.sha256(simulation.event_bytes()).hexdigest(),
            ",".join([*held, number.decode()]),
        )


main(int(sys.argv[1]))
