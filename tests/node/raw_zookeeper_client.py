"""A ZooKeeper client that exposes everything: its requests and the responses, byte for byte, over a
plain socket.
"""

import socket
from dataclasses import dataclass, field
from types import TracebackType

from protocol.codec.message_codec import compiled
from protocol.frames import FrameReader
from protocol.schema import Message
from protocol.zookeeper.op_codes import NOTIFICATION_XID, OpCode
from protocol.zookeeper.znodes import (
    ConnectRequest,
    ConnectResponse,
    WatcherEvent,
    ZookeeperReplyHeader,
    ZookeeperRequestHeader,
)

HEADER_BYTES = 16
SECONDS = 10.0


@dataclass(slots=True)
class ZooKeeperResponse:
    """A response: its header, its body, and the notifications that preceded it."""

    header: ZookeeperReplyHeader
    body: bytes
    notified: list[tuple[int, int, str]] = field(default_factory=list)
    """Type, state and path of each."""

    def read(self, cls: type[Message]) -> Message:
        """Return the body as a message."""
        return compiled(cls, 0).parse(self.body)


class ZooKeeperClient:
    """One session. `had` is a former one to resume: (session, password)."""

    def __init__(
        self,
        port: int,
        *,
        timeout_ms: int = 30_000,
        had: tuple[int, bytes] | None = None,
        last_zxid: int = 0,
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._reader = FrameReader()
        self._frames: list[bytes] = []
        self._xid = 0
        session, password = had or (0, bytes(16))
        request = ConnectRequest(
            timeout_ms=timeout_ms, session_id=session, password=password, last_zxid_seen=last_zxid
        )
        self._send(compiled(ConnectRequest, 1).encode(request))
        self.connected: ConnectResponse = compiled(ConnectResponse, 1).parse(self.next_frame())

    def __enter__(self) -> "ZooKeeperClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    @property
    def session(self) -> tuple[int, bytes]:
        """The credentials to resume the session."""
        return self.connected.session_id, self.connected.password or b""

    def ask(
        self, op_code: int, body: Message | bytes = b"", *, version: int = 0, xid: int | None = None
    ) -> ZooKeeperResponse:
        """Send a request and return its response."""
        if xid is None:
            self._xid += 1
            xid = self._xid
        content = body if isinstance(body, bytes) else compiled(type(body), version).encode(body)
        self._send(
            compiled(ZookeeperRequestHeader, 0).encode(
                ZookeeperRequestHeader(xid=xid, op_code=op_code)
            )
            + content
        )
        notified: list[tuple[int, int, str]] = []
        while True:
            frame = self.next_frame()
            header = compiled(ZookeeperReplyHeader, 0).parse(frame)
            if header.xid != NOTIFICATION_XID:
                assert header.xid == xid, f"an answer to {header.xid} where {xid} was asked"
                return ZooKeeperResponse(header, frame[HEADER_BYTES:], notified)
            notified.append(_event(frame))

    def ping(self) -> ZooKeeperResponse:
        """Return the response to a ping, with all notifications before it."""
        return self.ask(OpCode.PING, xid=-2)

    def notification(self) -> tuple[int, int, str]:
        """Wait for a notification."""
        return _event(self.next_frame())

    def next_frame(self) -> bytes:
        """Wait for a frame. Raises ConnectionError if the connection ends."""
        while not self._frames:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server has closed the connection")
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def _send(self, content: bytes) -> None:
        self.send_raw(len(content).to_bytes(4) + content)


def _event(frame: bytes) -> tuple[int, int, str]:
    event = compiled(WatcherEvent, 0).decode(frame, HEADER_BYTES)[0]
    return event.event_type, event.state, event.path


def word(port: int, text: str) -> str:
    """Return the response to a four-letter word."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.sendall(text.encode())
        pieces = []
        while data := connection.recv(1 << 16):
            pieces.append(data)
    return b"".join(pieces).decode()
