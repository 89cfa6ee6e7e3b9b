"""Measures the simulation: simulated seconds per CPU second of an idle cluster, steps per CPU
second, and the cost of an event.

    python tools/bench/bench_world.py [--seconds 1000] [--rounds 3]

The idle cluster is the traffic of one controller and three brokers without their logic:
long-polling fetches every 500 ms and heartbeats every 2 s, with immediate responses, 15 frames per
simulated second. The figure is therefore an upper bound for real nodes. Best of the rounds.
"""

import argparse
import asyncio
import struct
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kraftsim.partitions.events import BatchAppended
from kraftsim.server.events_connections import FrameReceived, FrameSent
from kraftsim.world.real import real_world
from kraftsim.world.simulated import NetworkSettings, Simulation
from kraftsim.world.simulated.world import SimulatedWorld

PORT = 9192
FETCH, HEARTBEAT = 1, 63
BROKERS = 3
FETCH_SECONDS, HEARTBEAT_SECONDS = 0.5, 2.0
EVENTS = 200_000
ROUND_TRIPS = 20_000
UNTORN = NetworkSettings(torn_writes=0)
"""The simple nodes of this benchmark do not reassemble frames."""


class Responder(asyncio.Protocol):
    """Responds to a fetch after its long poll and to anything else at once."""

    def __init__(self, world: SimulatedWorld, *, frame_events: bool) -> None:
        self.world, self.frame_events = world, frame_events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            size, api_key, _, correlation_id = struct.unpack_from(">ihhi", data, position)
            position += size + 4
            if self.frame_events:
                self.world.emit(frame(FrameReceived, api_key, correlation_id))
            if api_key == FETCH:
                asyncio.get_running_loop().call_later(
                    FETCH_SECONDS, self.answer, api_key, correlation_id
                )
            else:
                self.answer(api_key, correlation_id)

    def answer(self, api_key: int, correlation_id: int) -> None:
        if self.frame_events:
            self.world.emit(frame(FrameSent, api_key, correlation_id))
        self.world.flush_events()
        self.transport.write(struct.pack(">ii", 104, correlation_id) + bytes(100))


class Requester(asyncio.Protocol):
    """Keeps one fetch in flight, and sends heartbeats."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.correlation_id = transport, 0
        self.answers = 0
        self.send(FETCH)
        self.heartbeat()

    def send(self, api_key: int) -> None:
        self.correlation_id += 1
        self.transport.write(
            struct.pack(">ihhi", 108, api_key, 1, self.correlation_id << 1 | (api_key == FETCH))
            + bytes(100)
        )

    def heartbeat(self) -> None:
        self.send(HEARTBEAT)
        asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, self.heartbeat)

    def data_received(self, data: bytes) -> None:
        position = 0
        while position + 8 <= len(data):
            size, correlation_id = struct.unpack_from(">ii", data, position)
            position += size + 4
            self.answers += 1
            if correlation_id & 1:
                self.send(FETCH)


class Pinger(asyncio.Protocol):
    """Sends 64 bytes back and forth, as fast as possible."""

    def __init__(self, round_trips: int, done: "asyncio.Future[None]") -> None:
        self.left, self.done = round_trips, done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(bytes(64))

    def data_received(self, data: bytes) -> None:
        self.left -= 1
        if self.left:
            self.transport.write(data)
        else:
            self.done.set_result(None)


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def frame(
    kind: type[FrameSent] | type[FrameReceived], api_key: int, correlation_id: int
) -> FrameSent | FrameReceived:
    return kind(
        connection=1,
        peer="10.0.0.2:49152",
        api_key=api_key,
        api_version=1,
        correlation_id=correlation_id,
        is_response=False,
        size_bytes=108,
    )


def idle_cluster(seconds: float, *, frame_events: bool) -> tuple[float, int, int]:
    """Return (CPU seconds, steps, responses)."""
    with Simulation(1, network=UNTORN) as sim:
        sim.add_host("controller-101")
        world = sim.world_of("controller-101")
        requesters = [Requester() for _ in range(BROKERS)]

        async def serve() -> None:
            await asyncio.get_running_loop().create_server(
                lambda: Responder(world, frame_events=frame_events), "controller-101", PORT
            )

        async def dial(requester: Requester) -> None:
            await asyncio.get_running_loop().create_connection(
                lambda: requester, "controller-101", PORT
            )

        sim.run_until(sim.spawn("controller-101", serve()))
        for index, requester in enumerate(requesters):
            sim.run_until(sim.spawn(sim.add_host(f"broker-{index + 1}"), dial(requester)))
        started, steps = process_time(), sim.loop.steps
        sim.run_for(seconds)
        return (
            process_time() - started,
            sim.loop.steps - steps,
            sum(requester.answers for requester in requesters),
        )


def echo(round_trips: int) -> tuple[float, int]:
    """Return (CPU seconds, steps) of one saturated connection."""
    with Simulation(1, network=UNTORN) as sim:
        sim.add_host("a"), sim.add_host("b")

        async def serve() -> None:
            await asyncio.get_running_loop().create_server(Echo, "b", PORT)

        async def ping() -> None:
            loop = asyncio.get_running_loop()
            done: asyncio.Future[None] = loop.create_future()
            await loop.create_connection(lambda: Pinger(round_trips, done), "b", PORT)
            await done

        sim.run_until(sim.spawn("b", serve()))
        started, steps = process_time(), sim.loop.steps
        sim.run_until(sim.spawn("a", ping()), 3600)
        return process_time() - started, sim.loop.steps - steps


def noting() -> float:
    """Return CPU seconds for EVENTS events of a real node, written to a file."""
    event = BatchAppended(
        topic="orders",
        partition=3,
        leader_epoch=4,
        first_offset=123456,
        last_offset=123500,
        producer_id=4000,
        producer_epoch=0,
        base_sequence=10,
        last_sequence=54,
        record_count=45,
        size_bytes=12345,
        crc=3123456789,
    )
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        world = real_world(
            run="run",
            node="broker-1",
            incarnation=1,
            data_dir=root / "data",
            events_dir=root / "events",
            seed=1,
        )

        async def emit() -> float:
            started = process_time()
            for _ in range(EVENTS):
                world.emit(event)
            return process_time() - started

        spent = asyncio.run(emit())
        world.close()
    return spent


def best(rounds: int, measure: Callable[[], tuple[float, ...]]) -> tuple[float, ...]:
    return min((measure() for _ in range(rounds)), key=lambda figures: figures[0])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for frame_events in (False, True):
        cpu, steps, answers = best(
            options.rounds, partial(idle_cluster, options.seconds, frame_events=frame_events)
        )
        label = "with frame events" if frame_events else "without events"
        frames_per_second, steps_per_second = 2 * answers / options.seconds, steps / options.seconds
        print(
            f"idle cluster {label}: {options.seconds / cpu:,.0f} simulated s per CPU-s, "
            f"{steps / cpu:,.0f} steps per CPU-s",
            end="",
        )
        print(f" ({frames_per_second:.1f} frames and {steps_per_second:.1f} steps per simulated s)")
    cpu, steps = best(options.rounds, lambda: echo(ROUND_TRIPS))
    print(
        f"saturated echo of 64 bytes: {ROUND_TRIPS / cpu:,.0f} round trips per CPU-s, "
        f"{steps / cpu:,.0f} steps per CPU-s"
    )
    (cpu,) = best(options.rounds, lambda: (noting(),))
    print(f"event log of a real node: {cpu / EVENTS * 1e6:.2f} us per event")


if __name__ == "__main__":
    main()
