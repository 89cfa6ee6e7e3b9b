"""A client and a server that exchange frames, for tests of faults on single frames."""

import asyncio
import struct
from collections.abc import Callable, Sequence

from kraftsim.world.simulated import Simulation
from kraftsim.world.simulated.transport import SimulatedTransport

PORT = 9092


def request(correlation_id: int, api_key: int = 22, body: bytes = b"body") -> bytes:
    """Return a request with an empty body."""
    return struct.pack(">ihhi", 8 + len(body), api_key, 1, correlation_id) + body


def response(correlation_id: int, body: bytes = b"answer") -> bytes:
    """Return a response."""
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def frames_of(data: bytes) -> list[bytes]:
    """Return the complete frames at the start of some bytes."""
    frames = []
    while len(data) >= 4 and len(data) >= 4 + (size := int.from_bytes(data[:4], "big")):
        frames.append(data[: 4 + size])
        data = data[4 + size :]
    return frames


class FrameServer(asyncio.Protocol):
    """Answers every frame after `delay` seconds, and stores (connection, correlation id) of each in
    order of arrival.
    """

    def __init__(
        self, exchange: "FrameExchange", answer: Callable[[bytes], bytes], delay: float
    ) -> None:
        self.exchange, self.answer, self.delay, self.buffer = exchange, answer, delay, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.exchange.received += data
        self.buffer += data
        for frame in frames_of(self.buffer):
            self.buffer = self.buffer[len(frame) :]
            self.exchange.seen.append((self.transport.number, int.from_bytes(frame[8:12], "big")))
            asyncio.get_running_loop().call_later(self.delay, self.say, self.answer(frame))

    def say(self, answer: bytes) -> None:
        if answer:
            self.transport.write(answer)


class FrameClient(asyncio.Protocol):
    """Stores its responses, with the virtual millisecond, and the error that ended the
    connection.
    """

    def __init__(self, sim: Simulation) -> None:
        self.sim, self.received = sim, b""
        self.times: list[int] = []
        self.lost: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.times.append(self.sim.now_ns // 1_000_000)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = type(exc).__name__ if exc else "closed"

    @property
    def answers(self) -> list[int]:
        """Correlation ids of the complete responses."""
        return [int.from_bytes(frame[4:8], "big") for frame in frames_of(self.received)]

    @property
    def bodies(self) -> list[bytes]:
        """Bodies of the complete responses."""
        return [frame[8:] for frame in frames_of(self.received)]


class FrameExchange:
    """A server on host b; clients on host a, or any other."""

    def __init__(
        self,
        sim: Simulation,
        answer: Callable[[bytes], bytes] = lambda frame: response(
            int.from_bytes(frame[8:12], "big")
        ),
        delay: float = 0.0,
        hosts: Sequence[str] = ("a", "b"),
    ) -> None:
        self.sim, self.received = sim, bytearray()
        self.seen: list[tuple[int, int]] = []
        for host in hosts:
            sim.add_host(host)

        async def serve() -> None:
            await asyncio.get_running_loop().create_server(
                lambda: FrameServer(self, answer, delay), "b", PORT
            )

        sim.run_until(sim.spawn("b", serve()))

    def client(self, host: str = "a") -> FrameClient:
        """Connect from a host."""

        async def dial() -> FrameClient:
            return (
                await asyncio.get_running_loop().create_connection(
                    lambda: FrameClient(self.sim), "b", PORT
                )
            )[1]

        return self.sim.run_until(self.sim.spawn(host, dial()), 3600.0)

    def say(self, client: FrameClient, data: bytes, seconds: float = 0.1) -> None:
        """Let a client write, and time pass. Data written from outside is written as the client."""
        self.sim.loop.schedule(
            client.transport.process, self.sim.now_ns, client.transport.write, data
        )
        self.sim.run_for(seconds)

    @property
    def ids(self) -> list[int]:
        """Correlation ids in the order in which the requests arrived."""
        return [correlation_id for _, correlation_id in self.seen]
