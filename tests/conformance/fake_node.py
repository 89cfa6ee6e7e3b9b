"""Fake nodes for tests of the suite: a function maps each frame to a response, to silence, or to a
close.
"""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

SILENT = None
"""The return value of such a function for a request without a response."""


class CloseConnection(Exception):
    """Raised by such a function to close the connection."""


Answering = Callable[[bytes], bytes | None]


@contextmanager
def fake_node(answering: Answering) -> Iterator[str]:
    """Serve as long as the block lasts; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=_serve, args=(connection, answering), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def api_versions_0(frame: bytes, ranges: Mapping[int, tuple[int, int]]) -> bytes:
    """Return an ApiVersions version 0 response with these ranges, in this order."""
    rows = b"".join(
        key.to_bytes(2) + first.to_bytes(2) + last.to_bytes(2)
        for key, (first, last) in ranges.items()
    )
    return frame[4:8] + b"\x00\x00" + len(ranges).to_bytes(4) + rows


def asks_api_versions(frame: bytes) -> bool:
    """Return whether a frame is an ApiVersions version 0 request."""
    return frame[:4] == b"\x00\x12\x00\x00"


def _serve(connection: socket.socket, answering: Answering) -> None:
    with connection, suppress(OSError, CloseConnection), connection.makefile("rb") as stream:
        while len(size := stream.read(4)) == 4:
            answer = answering(stream.read(int.from_bytes(size)))
            if answer is not None:
                connection.sendall(len(answer).to_bytes(4) + answer)
