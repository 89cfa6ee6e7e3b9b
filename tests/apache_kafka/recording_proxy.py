"""A TCP proxy in front of a node that records requests of some API keys and forwards everything
unchanged.
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

    def _pass_on(self, source: socket.socket, target: socket.socket, records: bool) -> None:
        pending = b""
        try:
            while chunk := source.recv(CHUNK_BYTES):
                if records:
                    pending = self._look(pending + chunk)
                target.sendall(chunk)
        except OSError:
            pass
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _look(self, data: bytes) -> bytes:
        """Record complete frames, and return the rest."""
        while len(data) >= SIZE_BYTES and len(data) >= (
            end := SIZE_BYTES + int.from_bytes(data[:SIZE_BYTES], "big")
        ):
            frame, data = data[SIZE_BYTES:end], data[end:]
            if int.from_bytes(frame[:2], "big") in self._keys:
                head = read_request_head(frame)
                self.requests.append(
                    (head.api_version, head.client_id or "", decode_request(head, frame))
                )
        return data
