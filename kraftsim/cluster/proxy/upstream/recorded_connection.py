"""A connection whose bytes are recorded: what the client wrote when it arrives, and what it gets
when it is written to it.
"""

import asyncio
from collections.abc import Callable, Iterable

from kraftsim.cluster.proxy.upstream.client_frames import ClientFrames

Record = Callable[[bytes], None]


class RecordedFrames:
    """Records the bytes of a client, and passes them on to its frames."""

    __slots__ = (
        "_frames",
        "_record",
        "end_requests",
        "end_responses",
        "feed_response",
        "keeps_end",
    )

    def __init__(self, frames: ClientFrames, record: Record) -> None:
        self._frames = frames
        self._record = record
        self.feed_response = frames.feed_response
        self.end_requests = frames.end_requests
        self.keeps_end = frames.keeps_end
        self.end_responses = frames.end_responses

    def feed_request(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._record(data)
        self._frames.feed_request(data)


class RecordedTransport(asyncio.Transport):
    """Records the bytes for a client when they leave."""

    def __init__(self, transport: asyncio.Transport, record: Record) -> None:
        super().__init__()
        self._transport = transport
        self._record = record

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes."""
        self._record(bytes(data))
        self._transport.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write several pieces."""
        for data in list_of_data:
            self.write(data)

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._transport.is_closing()

    def can_write_eof(self) -> bool:
        """Whether one direction can end."""
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        """End this direction."""
        self._transport.write_eof()

    def close(self) -> None:
        """Close it once everything is written."""
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """Bytes that wait in the transport."""
        return self._transport.get_write_buffer_size()
