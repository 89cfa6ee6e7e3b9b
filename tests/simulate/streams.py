"""Two ends of a simulated connection that store everything they receive, for tests of the network
and its faults.
"""

import asyncio

from kraftsim.world.simulated import Simulation
from kraftsim.world.simulated.transport import SimulatedTransport

PORT = 9092
HOUR = 3600.0


class Recorder(asyncio.Protocol):
    """Stores all protocol callbacks, with the virtual second."""

    def __init__(self, sim: Simulation, *, reply: bool = False, keep_open: bool = False) -> None:
        self.sim, self.reply, self.keep_open = sim, reply, keep_open
        self.chunks: list[bytes] = []
        self.callbacks: list[tuple[str, int]] = []

    @property
    def received(self) -> bytes:
        return b"".join(self.chunks)

    def record_callback(self, what: str) -> None:
        self.callbacks.append((what, self.sim.now_ns // 10**9))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport
        self.record_callback("made")

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)
        if self.reply:
            self.transport.write(data)

    def eof_received(self) -> bool:
        self.record_callback("eof")
        return self.keep_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.record_callback(type(exc).__name__ if exc else "closed")

    def pause_writing(self) -> None:
        self.record_callback("pause")

    def resume_writing(self) -> None:
        self.record_callback("resume")


class Pair:
    """A client on host a, connected to a server on host b."""

    def __init__(self, sim: Simulation, *, reply: bool = False, keep_open: bool = False) -> None:
        self.sim = sim
        self.a, self.b = sim.add_host("a"), sim.add_host("b")
        self.servers: list[Recorder] = []
        self.listen(reply=reply, keep_open=keep_open)
        self.client = self.connect()
        self.server = self.servers[0]

    def listen(self, *, reply: bool = False, keep_open: bool = False) -> None:
        def make() -> Recorder:
            self.servers.append(Recorder(self.sim, reply=reply, keep_open=keep_open))
            return self.servers[-1]

        async def serve() -> asyncio.Server:
            return await asyncio.get_running_loop().create_server(make, "b", PORT)

        self.listener = self.sim.run_until(self.sim.spawn("b", serve()))

    def make(self, sim: Simulation) -> Recorder:
        """Return a new end, as a protocol factory does."""
        return Recorder(sim)

    def connect(self, name: str = "b", port: int = PORT, host: str = "a") -> Recorder:
        async def dial() -> Recorder:
            _, protocol = await asyncio.get_running_loop().create_connection(
                lambda: Recorder(self.sim), name, port
            )
            return protocol

        protocol = self.sim.run_until(self.sim.spawn(host, dial()), HOUR)
        self.sim.run_for(0.1)
        return protocol
