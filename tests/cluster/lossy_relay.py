"""A relay in front of a broker that drops responses: the request is processed, its response is
lost, and the connection is closed.

Producers retry then, and idempotence must prevent a duplicate; a kill rarely hits this point in
time.
"""

import asyncio
import threading
from collections import deque
from contextlib import suppress
from types import TracebackType

from protocol.api_keys import ApiKey
from protocol.frames import FrameReader


class LossyRelay:
    """Forwards to HOST:PORT of a broker.

    Every `every`-th Produce response is lost, at most `times` of them. Use as a context manager.
    """

    def __init__(self, *, every: int = 5, times: int = 10) -> None:
        self.lost = 0
        self.target = ("", 0)
        """The address of the broker; may be set after the start."""
        self.port = 0
        self._every = every
        self._times = times
        self._answers = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="lossy relay", daemon=True
        )
        self._server: asyncio.Server | None = None

    def __enter__(self) -> "LossyRelay":
        self._thread.start()
        started = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(started, self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None, "the relay was started"
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def reset(self) -> None:
        """Reset the counters."""
        self._answers = self.lost = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: deque[int] = deque()
        with suppress(OSError):
            broker_reader, broker_writer = await asyncio.open_connection(*self.target)
            requests = asyncio.ensure_future(self._forward_requests(reader, broker_writer, asked))
            await self._forward_answers(broker_reader, writer, asked)
            requests.cancel()
            broker_writer.close()
        writer.close()

    async def _forward_requests(
        self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter, asked: deque[int]
    ) -> None:
        frames = FrameReader()
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                asked.extend(int.from_bytes(frame[:2]) for frame in frames.feed(data))
                broker.write(data)
                await broker.drain()
        broker.close()

    async def _forward_answers(
        self, broker: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[int]
    ) -> None:
        frames = FrameReader()
        while data := await broker.read(1 << 16):
            for frame in frames.feed(data):
                if asked.popleft() == ApiKey.PRODUCE and self._loses():
                    return
                writer.write(len(frame).to_bytes(4) + frame)
            await writer.drain()

    def _loses(self) -> bool:
        self._answers += 1
        if self._answers % self._every or self.lost == self._times:
            return False
        self.lost += 1
        return True
