"""The socket object of a simulated connection or server: names and options, no descriptor."""

import socket
from typing import NoReturn

from kraftsim.world.simulated.call_site import escape


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
