"""Two ends of a simulated connection that remember everything they are told, for tests of the network and of what is done to it."""

import asyncio

PORT = 9092
HOUR = 3600.0


class Recorder(asyncio.Protocol):
    """Remembers everything it is told, with the virtual second."""

    def __init__(self, sim, *, reply=False, keep_open=False):
        self.sim, self.reply, self.keep_open = sim, reply, keep_open
        self.chunks, self.told, self.transport = [], [], None

    @property
    def received(self):
        return b"".join(self.chunks)

    def tell(self, what):
        self.told.append((what, self.sim.now_ns // 10**9))

    def connection_made(self, transport):
        self.transport = transport
        self.tell("made")

    def data_received(self, data):
        self.chunks.append(data)
        if self.reply:
            self.transport.write(data)

    def eof_received(self):
        self.tell("eof")
        return self.keep_open

    def connection_lost(self, exc):
        self.tell(type(exc).__name__ if exc else "closed")

    def pause_writing(self):
        self.tell("pause")

    def resume_writing(self):
        self.tell("resume")


class Pair:
    """A client on host a, connected to a server on host b."""

    def __init__(self, sim, **options):
        self.sim = sim
        self.a, self.b = sim.add_host("a"), sim.add_host("b")
        self.servers = []
        self.listen(**options)
        self.client = self.connect()
        self.server = self.servers[0]

    def listen(self, **options):
        def make():
            self.servers.append(Recorder(self.sim, **options))
            return self.servers[-1]

        async def serve():
            return await asyncio.get_running_loop().create_server(make, "b", PORT)

        self.listener = self.sim.run_until(self.sim.spawn("b", serve()))

    def make(self, sim):
        """Return an end of its own, as a factory of protocols does."""
        return Recorder(sim)

    def connect(self, name="b", port=PORT, host="a"):
        async def dial():
            _, protocol = await asyncio.get_running_loop().create_connection(lambda: Recorder(self.sim), name, port)
            return protocol

        protocol = self.sim.run_until(self.sim.spawn(host, dial()), HOUR)
        self.sim.run_for(0.1)
        return protocol
