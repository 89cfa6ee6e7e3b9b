"""One client connection of a ZooKeeper server: splits received bytes into frames, sends responses.
A first frame of four letters is an operator command.

Source: org.apache.zookeeper.server.NIOServerCnxn.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from protocol.frames import BadFrameSize, FrameReader

COMMAND_BYTES: Final = 4


class ConnectionServer(Protocol):
    """Callbacks of a connection to its server."""

    frame_bytes_max: int

    def on_connected(self, connection: "ZookeeperConnection") -> bool:
        """A client has connected; return False if the connection limit is reached."""
        ...

    def on_command(self, connection: "ZookeeperConnection", word: str) -> bool:
        """Answer a four-letter command; return False if it is none."""
        ...

    def on_frames(self, connection: "ZookeeperConnection", frames: list[bytes]) -> None:
        """Serve received frames."""
        ...

    def on_disconnected(self, connection: "ZookeeperConnection") -> None:
        """The client has disconnected."""
        ...


class ZookeeperConnection(asyncio.Protocol):
    """`number` is unique in this incarnation of the server."""

    def __init__(self, number: int, server: ConnectionServer, now_ms: Callable[[], int]) -> None:
        self.number = number
        self.host = ""
        self.peer = "?"
        self.began_ms = now_ms()
        self.received = 0
        self.sent = 0
        self.has_session = False
        self.is_closed = False
        self._server = server
        self._first = b""
        self._reader: FrameReader | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport of an accepted connection."""
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self.host, self.peer = (
            (str(name[0]), f"/{name[0]}:{name[1]}") if isinstance(name, tuple) else ("", "?")
        )
        if not self._server.on_connected(self):
            self.close()

    def data_received(self, data: bytes) -> None:
        """Serve every frame that is now complete."""
        if self.is_closed:
            return
        if self._reader is None:
            self._first += data
            if len(self._first) < COMMAND_BYTES:
                return
            if self._server.on_command(self, self._first[:COMMAND_BYTES].decode("latin-1")):
                return
            self._reader, data = FrameReader(self._server.frame_bytes_max), self._first
        try:
            frames = self._reader.feed(data)
        except BadFrameSize as bad:
            self._take(bad.frames)
            self.close()
            return
        self._take(frames)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the server."""
        self._transport = None
        self.is_closed = True
        self._server.on_disconnected(self)

    def send(self, frame: bytes) -> None:
        """Send a frame with its length prefix."""
        if self._transport is not None and not self.is_closed:
            self.sent += 1
            self._transport.write(len(frame).to_bytes(COMMAND_BYTES) + frame)

    def send_text(self, text: str) -> None:
        """Send text without a length prefix, and close."""
        if self._transport is not None:
            self._transport.write(text.encode())
        self.close()

    def close(self) -> None:
        """Close after pending data is sent."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close immediately."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Pause reading until the received frames are served."""
        if self._transport is not None and not self.is_closed:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self._transport is not None and not self.is_closed:
            self._transport.resume_reading()

    def _take(self, frames: list[bytes]) -> None:
        if frames:
            self.received += len(frames)
            self._server.on_frames(self, frames)
