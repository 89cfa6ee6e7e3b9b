"""A listening port of a simulated process, and the socket object that it and connections show."""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from kraftsim.world.simulated.errors import escape

if TYPE_CHECKING:
    from kraftsim.world.simulated.host import Process


class SimulatedSocket:
    """Has the parts of `asyncio.trsock.TransportSocket` that clients use."""

    __slots__ = ("_local", "_remote")

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, local: tuple[str, int], remote: tuple[str, int] | None) -> None:
        self._local = local
        self._remote = remote

    def getsockname(self) -> tuple[str, int]:
        """Return the own address."""
        return self._local

    def getpeername(self) -> tuple[str, int]:
        """Return the other end's address. Raises OSError on a server."""
        if self._remote is None:
            raise OSError("not connected")
        return self._remote

    def setsockopt(self, *args: object) -> None:
        """Do nothing: options have no effect here."""

    def getsockopt(self, *args: object) -> int:
        """Return 0."""
        return 0

    def fileno(self) -> NoReturn:
        """Raise an error: there is no descriptor."""
        raise escape("a socket's descriptor")


class SimulatedServer(asyncio.AbstractServer):
    """The result of `loop.create_server`.

    Closing it does not close its connections, as in asyncio.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: "Process",
        make_protocol: Callable[[], asyncio.BaseProtocol],
        address: str,
        port: int,
    ) -> None:
        self.make_protocol = make_protocol
        self.address = address
        self.port = port
        self._loop = loop
        self._process = process
        self._closed: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> tuple[SimulatedSocket, ...]:
        """One socket with the address that this server listens on; none once it is closed."""
        return (SimulatedSocket((self.address, self.port), None),) if self.is_serving() else ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the simulation's loop."""
        return self._loop

    def is_serving(self) -> bool:
        """Return whether connections are accepted."""
        return self._process.servers.get(self.port) is self

    def close(self) -> None:
        """Accept no more connections."""
        if self.is_serving():
            del self._process.servers[self.port]
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    async def start_serving(self) -> None:
        """Do nothing: a server accepts connections from the start."""

    async def serve_forever(self) -> None:
        """Wait until the server is closed."""
        self._closed = self._loop.create_future()
        try:
            await self._closed
        finally:
            self.close()

    async def wait_closed(self) -> None:
        """Return at once, as asyncio of Python 3.11 does."""
