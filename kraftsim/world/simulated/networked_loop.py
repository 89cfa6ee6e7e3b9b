"""The event loop that simulated code sees: virtual time, simulated connections, and an error for
everything outside of the simulation.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import NoReturn

from kraftsim.world.simulated.errors import escape
from kraftsim.world.simulated.host import Process, current_process
from kraftsim.world.simulated.loop import VirtualLoop
from kraftsim.world.simulated.network import Network
from kraftsim.world.simulated.server import SimulatedServer

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]


class NetworkedLoop(VirtualLoop):
    """Adds asyncio's networking to the loop, as far as unmodified clients use it."""

    network: Network

    async def getaddrinfo(  # type: ignore[override]  # only streams over IPv4 here
        self,
        host: str | bytes | None,
        port: str | int | None,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[AddressInfo]:
        """Resolve the name of a simulated host."""
        await asyncio.sleep(0)
        name = host.decode() if isinstance(host, bytes) else host
        found = self.network.host_of(name, self._process())
        address = name if name == "127.0.0.1" else found.address
        return [
            (
                socket.AF_INET,
                socket.SOCK_STREAM,
                socket.IPPROTO_TCP,
                "",
                (str(address), int(port or 0)),
            )
        ]

    # override: only streams over IPv4 here
    async def getnameinfo(self, sockaddr: tuple[str, int], flags: int = 0) -> tuple[str, str]:  # type: ignore[override]
        """Return the name of the simulated host at an address."""
        return self.network.host_of(sockaddr[0], self._process()).name, str(sockaddr[1])

    async def create_connection(  # type: ignore[override]  # only streams over IPv4 here
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **options: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to a port of a simulated host.

        Options that tune real sockets are accepted and change nothing.
        """
        if ssl:
            raise escape("TLS")
        if sock is not None:
            raise escape("a connection over a socket of the caller's")
        assert host is not None and port is not None, (
            "a simulated connection needs a host and a port"
        )
        return await self.network.connect(self._process(), protocol_factory, host, int(port))

    async def create_server(  # type: ignore[override]  # only streams over IPv4 here
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **options: object,
    ) -> SimulatedServer:
        """Listen on a port of the own host.

        Options that tune real sockets are accepted and change nothing.
        """
        if ssl:
            raise escape("TLS")
        if sock is not None:
            raise escape("a server over a socket of the caller's")
        name = host if host is None or isinstance(host, str) else host[0]
        return self.network.listen(self._process(), protocol_factory, name, int(port or 0))

    def _process(self) -> Process:
        return current_process.get(self.harness)


# --------------------------------------------------------------------------------------------------
# The methods of an event loop that would use the real machine: each raises an error with the call
# site

FORBIDDEN = (
    "add_reader",
    "add_writer",
    "remove_reader",
    "remove_writer",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendfile",
    "sock_sendto",
    "sendfile",
    "start_tls",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_datagram_endpoint",
    "create_unix_connection",
    "create_unix_server",
    "subprocess_exec",
    "subprocess_shell",
)


def forbid(loop: type[asyncio.BaseEventLoop]) -> None:
    """Replace the forbidden methods of a loop class by ones that raise SimulationEscape."""
    for name in FORBIDDEN:
        assert hasattr(loop, name), f"asyncio has no {name} any more"
        setattr(loop, name, _refusing(name))


def _refusing(name: str) -> object:
    def refuse(self: object, *args: object, **options: object) -> NoReturn:
        raise escape(f"loop.{name}")

    return refuse


forbid(NetworkedLoop)
