"""The network between simulated hosts: names, connects, partitions, and connection resets.

Host names are the names of the simulation's hosts, so that an advertised listener `broker-1:9092`
resolves; `localhost` and 127.0.0.1 are the calling host.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kraftsim.world.simulated.frames import FrameSeen, FrameWatch
from kraftsim.world.simulated.host import Host, Process
from kraftsim.world.simulated.link import (
    NANOSECONDS_PER_MILLISECOND,
    Delay,
    EffectRecorder,
    Gate,
    Link,
    NetworkSettings,
)
from kraftsim.world.simulated.pipe import Pipe, PipeSegment, SegmentKind
from kraftsim.world.simulated.server import SimulatedServer
from kraftsim.world.simulated.transport import SimulatedTransport

if TYPE_CHECKING:
    from kraftsim.world.simulated.loop import VirtualLoop


# --------------------------------------------------------------------------------------------------
# Sends bytes to a server once more, on a new connection whose answers are discarded: how a fault
# duplicates a request.

PATIENCE_SECONDS = 30.0


class ResponseDiscarder(asyncio.Protocol):
    """Reports the size of the first part of the answer, and discards the rest."""

    def __init__(self, on_answer: Callable[[int], object]) -> None:
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_answer = on_answer

    def data_received(self, data: bytes) -> None:
        """Report the answer."""
        if not self.is_over.done():
            self._on_answer(len(data))
            self.is_over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        if not self.is_over.done():
            self.is_over.set_result(None)


async def resend(
    loop: "VirtualLoop", address: str, port: int, data: bytes, on_answer: Callable[[int], object]
) -> None:
    """Connect, send the bytes, wait for a while for an answer, and close.

    An unreachable server is no error.
    """
    with suppress(OSError):
        transport, protocol = await loop.create_connection(
            lambda: ResponseDiscarder(on_answer), address, port
        )
        assert isinstance(transport, asyncio.Transport) and isinstance(
            protocol, ResponseDiscarder
        ), "a simulated connection"
        try:
            transport.write(data)
            with suppress(TimeoutError):
                await asyncio.wait_for(protocol.is_over, PATIENCE_SECONDS)
        finally:
            transport.close()


LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = "0.0.0.0"
FIRST_CONNECT_RETRY_NS = 1_000 * NANOSECONDS_PER_MILLISECOND
NANOSECONDS = 1_000_000_000
ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Network:
    """All links and connections of a simulation."""

    def __init__(self, loop: "VirtualLoop", seed: int, settings: NetworkSettings) -> None:
        self.loop = loop
        self.settings = settings
        self.hosts: dict[str, Host] = {}
        self.connections: dict[int, tuple[SimulatedTransport, SimulatedTransport]] = {}
        """Connections with at least one open end; the first end is the one that connected."""
        self.cut_count = 0
        self._seed = seed
        self._links: dict[tuple[str, str], Link] = {}
        self._next_connection = 1
        self.on_contact: Callable[[Process, str], object] | None = None
        """Called with a process and the name of the host that it is about to connect to."""
        self._frame_report: Callable[[FrameSeen, str], None] | None = None

    # ---- names

    def host_of(self, name: str | None, process: Process) -> Host:
        """Resolve a name or address for a process to a host.

        Raises gaierror, as a resolver does.
        """
        if name in (None, "", "localhost", LOOPBACK, EVERY_ADDRESS):
            return process.host
        host = self.hosts.get(str(name))
        if host is None:
            host = next((host for host in self.hosts.values() if host.address == name), None)
        if host is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return host

    def link(self, source: str, target: str) -> Link:
        """Return the link from one host to another, by their names."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[(source, target)] = Link(
                seed=self._seed, source=source, target=target, settings=self.settings
            )
        return found

    # ---- used by the loop for a process

    def listen(
        self, process: Process, make_protocol: ProtocolFactory, name: str | None, port: int
    ) -> SimulatedServer:
        """Open a port. Raises OSError if it is taken or the address is not this host's."""
        if self.host_of(name, process) is not process.host:
            raise OSError(
                errno.EADDRNOTAVAIL, f"could not bind on any address out of [('{name}', {port})]"
            )
        port = port or process.host.take_port()
        if port in process.servers:
            raise OSError(
                errno.EADDRINUSE,
                f"error while attempting to bind on address ('{name}', {port}): address already "
                "in use",
            )
        address = (
            name
            if name in (LOOPBACK, EVERY_ADDRESS)
            else LOOPBACK
            if name == "localhost"
            else process.host.address
            if name
            else EVERY_ADDRESS
        )
        server = SimulatedServer(self.loop, process, make_protocol, str(address), port)
        process.servers[port] = server
        return server

    async def connect(
        self, process: Process, make_protocol: ProtocolFactory, name: str, port: int
    ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
        """Connect, as `loop.create_connection` does.

        Raises ConnectionRefusedError, or TimeoutError if the host does not answer.
        """
        target = self.host_of(name, process)
        if self.on_contact is not None:
            self.on_contact(process, target.name)
        there, back = (
            self.link(process.host.name, target.name),
            self.link(target.name, process.host.name),
        )
        give_up_ns = self.loop.now_ns + self.settings.connect_limit_ns
        retry_ns = FIRST_CONNECT_RETRY_NS
        while True:
            await self._round_trip(there, back, give_up_ns)
            gate = there.gate()
            if gate is Gate.REFUSE:
                raise ConnectionRefusedError(
                    errno.ECONNREFUSED, f"Connect call failed {(name, port)}"
                )
            if target.is_powered and not there.is_shut and not back.is_shut and gate is None:
                break
            there.record_effect("a connect was held back")
            back.record_effect("a connect was held back")
            if target.is_powered and gate is None and not there.is_blocked and not back.is_blocked:
                await self._wait_for(there if there.is_clogged else back, give_up_ns)
                if self.loop.now_ns < give_up_ns:
                    continue
            if self.loop.now_ns + retry_ns > give_up_ns:
                await asyncio.sleep(max(0, give_up_ns - self.loop.now_ns) / NANOSECONDS)
                raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed {(name, port)}")
            await asyncio.sleep(retry_ns / NANOSECONDS)
            retry_ns *= 2
        server = target.process.servers.get(port)
        if server is None or (server.address == LOOPBACK and target is not process.host):
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {(name, port)}")
        transport = self._connected(
            process, server, target, port, is_loopback=name in ("localhost", LOOPBACK)
        )
        protocol = make_protocol()
        transport.set_protocol(protocol)
        for look in process.host.on_connect:
            look(transport)
        transport.begin(protocol)
        return transport, protocol

    async def _round_trip(self, there: Link, back: Link, give_up_ns: int) -> None:
        """Wait for the round trip of a connect; less, if a fault that delays it ends meanwhile.

        Raises TimeoutError if it is too long.
        """
        delay_ns = there.delay_ns() + back.delay_ns()
        if not there.is_slow and not back.is_slow:
            await asyncio.sleep(delay_ns / NANOSECONDS)
            return
        answered_ns = self.loop.now_ns + delay_ns
        await self._wait_for(there if there.is_slow else back, min(answered_ns, give_up_ns))
        if answered_ns > give_up_ns and self.loop.now_ns >= give_up_ns:
            raise TimeoutError(errno.ETIMEDOUT, "Connect call failed: no answer in time")

    async def _wait_for(self, link: Link, until_ns: int) -> None:
        """Delay a connect until the fault of a link ends, or until a time."""
        future: asyncio.Future[None] = self.loop.create_future()
        link.wake(future)
        with suppress(TimeoutError):
            await asyncio.wait_for(future, (until_ns - self.loop.now_ns) / NANOSECONDS)

    def _connected(
        self,
        process: Process,
        server: SimulatedServer,
        target: Host,
        port: int,
        *,
        is_loopback: bool,
    ) -> SimulatedTransport:
        local = (LOOPBACK if is_loopback else process.host.address, process.host.take_port())
        remote = (LOOPBACK if is_loopback else target.address, port)
        number, self._next_connection = self._next_connection, self._next_connection + 1
        near = SimulatedTransport(self, process, number=number, local=local, remote=remote)
        far = SimulatedTransport(self, target.process, number=number, local=remote, remote=local)
        near.out = Pipe(self, self.link(process.host.name, target.name), near, far)
        far.out = Pipe(self, self.link(target.name, process.host.name), far, near)
        far.server = server
        for end in (near, far):
            end.process.transports[(number, end.local)] = end
        self.connections[number] = (near, far)
        if self._frame_report is not None:
            near.watch = far.watch = FrameWatch(near, self._frame_report)
        near.out.send(PipeSegment(SegmentKind.OPENING))
        return near

    # ---- faults

    def block(self, source: str, target: str, record_effect: EffectRecorder) -> None:
        """Block all bytes from one host to another until `unblock` with the same function, which is
        called when something is held back.
        """
        self.link(source, target).block(record_effect)

    def unblock(self, source: str, target: str, record_effect: EffectRecorder) -> None:
        """End a block; held back bytes are retransmitted."""
        self.link(source, target).unblock(record_effect)
        for pipe in self._pipes():
            if pipe.link is self.link(source, target):
                pipe.retransmit()

    def clog(self, source: str, target: str, record_effect: EffectRecorder) -> None:
        """Hold all bytes from one host to another until `unclog` with the same function, which is
        called when something is held.
        """
        self.link(source, target).clog(record_effect)

    def unclog(self, source: str, target: str, record_effect: EffectRecorder) -> None:
        """End a clog; all held bytes arrive now, in order."""
        link = self.link(source, target)
        link.unclog(record_effect)
        if not link.is_clogged:
            for pipe in self._pipes():
                if pipe.link is link:
                    pipe.let_in()

    def slow(self, source: str, target: str, delay: Delay) -> None:
        """Delay segments from one host to another by the result of this function, until `hasten`
        with the same one.
        """
        self.link(source, target).slow(delay)

    def hasten(self, source: str, target: str, delay: Delay) -> None:
        """End a delay; if no other is left, bytes in flight arrive as if there had been none."""
        link = self.link(source, target)
        link.hasten(delay)
        if not link.is_slow:
            for pipe in self._pipes():
                if pipe.link is link:
                    pipe.hurry()

    def between(
        self, one: str, other: str | None
    ) -> list[tuple[SimulatedTransport, SimulatedTransport]]:
        """Return the connections between two hosts, or between one host and all others."""
        wanted = {one} if other is None else {one, other}
        return [
            ends
            for ends in self.connections.values()
            if wanted <= {end.process.host.name for end in ends}
        ]

    def cut(self, one: str, other: str | None = None) -> int:
        """Reset the connections between two hosts, losing bytes in flight.

        Returns how many of them had some.
        """
        busy = 0
        for ends in self.between(one, other):
            busy += ends[0].is_busy
            self.reset_connections(ends)
        return busy

    def reset_connections(self, ends: tuple[SimulatedTransport, SimulatedTransport]) -> None:
        """Reset one connection, losing bytes in flight."""
        self.cut_count += 1
        for end in ends:
            end.cut()

    def resend(
        self, client: Host, address: str, port: int, data: bytes, on_answer: Callable[[int], object]
    ) -> None:
        """Send bytes on a new connection of a host's process, if it runs, and discard the answer;
        the callback gets the size of its first part.
        """
        if client.is_alive:
            self.loop.create_task(
                resend(self.loop, address, port, data, on_answer),
                context=client.process.context.copy(),
            )

    def watch_frames(self, report: Callable[[FrameSeen, str], None]) -> None:
        """Report every frame, on open and on future connections."""
        self._frame_report = report
        for near, far in self.connections.values():
            if near.watch is None:
                near.watch = far.watch = FrameWatch(near, report)

    # ---- notifications by hosts

    def on_process_death(self, process: Process, *, power_loss: bool) -> None:
        """Take over the connections of a dead process."""
        for transport in list(process.transports.values()):
            transport.on_process_death(power_loss=power_loss)

    def on_power(self, host: Host) -> None:
        """A host has power again: it resets its former connections, once their other ends send
        something.
        """
        for pipe in self._pipes():
            if pipe.target.process.host is host and not pipe.target.process.is_alive:
                pipe.on_target_powered()

    def forget_if_over(self, end: SimulatedTransport) -> None:
        """Remove a connection once both ends are lost."""
        if end.is_lost and end.peer.is_lost:
            self.connections.pop(end.number, None)

    def _pipes(self) -> list[Pipe]:
        return [end.out for ends in self.connections.values() for end in ends]
