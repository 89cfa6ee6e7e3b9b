"""A program that uses much of the simulation, run by test_loop in several processes: it prints a
digest of its event log.
"""

import asyncio
import sys

from kraftsim.clients.events import RecordAcknowledged, RecordFailed, RecordSent
from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import AtTime, Fault, OnDisk, OnEvent
from kraftsim.server.events import NodeFailed, NodeReady, NodeStarted, NodeStopped
from kraftsim.world.interface import YieldPoint
from kraftsim.world.simulated import FileClass, Host, SimulatedWorld, Simulation

NODES = ("a", "b", "c")
PORT = 9092


async def node(sim: Simulation, host: Host) -> None:
    """Append input to a log, flush, answer; iterate over sets of tasks on purpose."""
    world = sim.world_of(host)
    log = world.disk.open("t-0/0.log")
    world.emit(NodeStarted(role="broker", node_id=log.size_bytes, release="3.9", cluster_id="c"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                log.append([line])
                await world.yield_point(YieldPoint.METADATA_WRITTEN)
                await log.flush()
                writer.write(line.upper())
                await writer.drain()
        except OSError as error:
            world.emit(NodeFailed(reason=type(error).__name__))
        writer.close()

    async def nap(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    server = await asyncio.start_server(serve, host.name, PORT)
    world.emit(NodeReady())
    while True:
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(nap(world.random("nap").choice((1, 1, 2)))) for _ in range(9)]
        )
        world.emit(NodeStopped(reason=f"{[task.result() for task in done]} {len(server.sockets)}"))


async def client(sim: Simulation, world: SimulatedWorld, number: int) -> None:
    for i in range(40):
        target = NODES[world.random("choice").randrange(len(NODES))]
        key = f"{number}-{i}"
        world.emit(RecordSent(client_id=world.node, topic=target, partition=0, record_key=key))
        try:
            async with asyncio.timeout(5):
                reader, writer = await asyncio.open_connection(target, PORT)
                writer.write(f"{key}\n".encode() * (1 + i * 7))
                for _ in range(1 + i * 7):
                    await reader.readexactly(len(key) + 1)
            world.emit(
                RecordAcknowledged(
                    client_id=world.node, topic=target, partition=0, record_key=key, offset=0
                )
            )
            writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            world.emit(
                RecordFailed(
                    client_id=world.node,
                    topic=target,
                    partition=0,
                    record_key=key,
                    error_code=0,
                    reason=repr(error),
                )
            )
        await asyncio.sleep(world.random("pause").random())


def run(seed: int) -> Simulation:
    with Simulation(seed) as sim:
        sim.on_restart = lambda host: node(sim, host)
        for name in NODES:
            sim.spawn(name, node(sim, sim.add_host(name)))
        clients = [
            sim.spawn(f"client-{i}", client(sim, sim.world_of(sim.add_host(f"client-{i}")), i))
            for i in range(3)
        ]
        sim.host("b").clock.jump(-3_000_000_000)
        sim.host("c").clock.drift(200_000)
        faults = [
            Fault(
                kind="restart",
                trigger=OnDisk(file_class=FileClass.PARTITION_LOG, nth=30),
                params={"power_loss": True},
            ),
            Fault(
                kind="restart",
                trigger=OnDisk(operation="flush", nth=200, host="b"),
                params={"after_ms": 300},
            ),
            Fault(kind="partition", trigger=AtTime(at_ms=3000), target="client-0<>a"),
            Fault(kind="cut-connection", trigger=OnEvent(kind="RecordSent", nth=50), target="c"),
            Fault(kind="pause", trigger=AtTime(at_ms=9000), target="a"),
            Fault(kind="slow-link", trigger=AtTime(at_ms=1000), target="client-1>b"),
        ]
        injections = [arm(fault, sim) for fault in faults]
        for task in clients:
            sim.run_until(task, limit_s=300)
        assert all(injection.has_fired for injection in injections), [
            str(injection.fault) for injection in injections if not injection.has_fired
        ]
        return sim


if __name__ == "__main__":
    print(run(int(sys.argv[1])).book.digest())
