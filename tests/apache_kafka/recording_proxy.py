"""A TCP proxy in front of a node that records requests of some API keys and forwards everything,
unchanged unless a subclass changes responses.
"""

import contextlib
import socket
import threading
from types import TracebackType

from protocol.requests import decode_request, read_request_head
from protocol.schema import Message

SIZE_BYTES = 4
CHUNK_BYTES = 1 << 16


class RecordingProxy:
    """Use as a context manager.

    `requests` are (version, client id, body) of the recorded keys, in order of arrival.
    """

    def __init__(self, keys: tuple[int, ...]) -> None:
        self._keys = keys
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target = 0
        """The port of the proxied node."""
        self.requests: list[tuple[int, str, Message]] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> "RecordingProxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                node = socket.create_connection(("127.0.0.1", self.target), timeout=5)
            except OSError:
                client.close()
                continue
            node.settimeout(None)
            self._sockets += [client, node]
            threading.Thread(target=self._pass_on, args=(client, node, True), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(node, client, False), daemon=True).start()

    def on_request(self, connection: int, frame: bytes) -> None:
        """See a request, by the file descriptor of the client's connection."""

    def changed(self, connection: int, frame: bytes) -> bytes:
        """Return a response as the client gets it."""
        return frame

    def _pass_on(self, source: socket.socket, target: socket.socket, records: bool) -> None:
        pending = b""
        client = (source if records else target).fileno()
        try:
            while chunk := source.recv(CHUNK_BYTES):
                frames, pending = _split(pending + chunk)
                for frame in frames:
                    if records:
                        self._look(client, frame)
                    sent = frame if records else self.changed(client, frame)
                    target.sendall(len(sent).to_bytes(SIZE_BYTES, "big") + sent)
        except OSError:
            pass
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _look(self, client: int, frame: bytes) -> None:
        self.on_request(client, frame)
        if int.from_bytes(frame[:2], "big") in self._keys:
            head = read_request_head(frame)
            self.requests.append(
                (head.api_version, head.client_id or "", decode_request(head, frame))
            )


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the complete frames, without their sizes, and the rest."""
    frames = []
    while len(data) >= SIZE_BYTES and len(data) >= (
        end := SIZE_BYTES + int.from_bytes(data[:SIZE_BYTES], "big")
    ):
        frames.append(data[SIZE_BYTES:end])
        data = data[end:]
    return frames, data
