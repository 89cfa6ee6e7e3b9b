"""Sends bytes to a server once more, on a new connection whose answers are discarded: how a fault duplicates a request."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftsim.world.simulated.loop import VirtualLoop

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


async def resend(loop: "VirtualLoop", address: str, port: int, data: bytes, on_answer: Callable[[int], object]) -> None:
    """Connect, send the bytes, wait for a while for an answer, and close. An unreachable server is no error."""
    with suppress(OSError):
        transport, protocol = await loop.create_connection(lambda: ResponseDiscarder(on_answer), address, port)
        assert isinstance(transport, asyncio.Transport) and isinstance(protocol, ResponseDiscarder), "a simulated connection"
        try:
            transport.write(data)
            with suppress(TimeoutError):
                await asyncio.wait_for(protocol.is_over, PATIENCE_SECONDS)
        finally:
            transport.close()
