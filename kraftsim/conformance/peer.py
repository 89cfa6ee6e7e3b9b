"""A minimal client: one blocking socket, requests in any version, and arbitrary bytes.

It checks nodes from outside, so it shares nothing with them but the codec.
"""

import itertools
import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from kraftsim.conformance.transcript import Transcript
from protocol.requests import decode_response, request_chunks
from protocol.schema import Message, declaration_of

Answer = TypeVar("Answer", bound=Message)

CLIENT_ID = "kraftsim-conformance"
ANSWER_SECONDS = 20.0
"""A time-out above every legitimate delay; a node that exceeds it is not answering."""


class PeerClosed(ConnectionError):
    """The node closed the connection instead of answering."""


class PeerSilent(TimeoutError):
    """The node keeps the connection open and sends nothing."""


class OutOfTime(Exception):
    """The check has used up its time."""


class Peer:
    """One connection. Use as a context manager.

    No operation waits beyond `give_up_at` (of time.monotonic), and all traffic is recorded in the
    transcript.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout_seconds: float = ANSWER_SECONDS,
        give_up_at: float | None = None,
        transcript: Transcript | None = None,
    ) -> None:
        self._correlation_ids = itertools.count(1)
        self._received = b""
        self._timeout_seconds = timeout_seconds
        self._give_up_at = give_up_at
        self._transcript = transcript or Transcript()
        self._number = self._transcript.next_connection()
        try:
            self._socket = socket.create_connection(
                (host, port), timeout=self._patience(timeout_seconds)
            )
        except TimeoutError as trouble:
            raise PeerSilent(f"no connection to {host}:{port}") from trouble
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def at(cls, address: str, timeout_seconds: float = ANSWER_SECONDS) -> "Peer":
        """Connect to HOST:PORT.

        Raises ValueError for anything else, OSError if the connection fails.
        """
        host, port = split_address(address)
        return cls(host, port, timeout_seconds)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the file descriptor of the connection, for `select`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def ask(self, body: Message, version: int, expected: type[Answer]) -> Answer:
        """Send a request and return its response.

        Raises PeerClosed or PeerSilent if there is none.
        """
        correlation_id = self.send(body, version)
        return self.receive(body, version, correlation_id, expected)

    def send(self, body: Message, version: int) -> int:
        """Send a request and return its correlation id."""
        correlation_id = next(self._correlation_ids)
        self.send_bytes(request_bytes(body, version, correlation_id))
        return correlation_id

    def receive(
        self, body: Message, version: int, correlation_id: int, expected: type[Answer]
    ) -> Answer:
        """Wait for the response to the request; it must be the next one on this connection."""
        found, answer = decode_response(api_key_of(body), version, self.receive_frame())
        assert isinstance(answer, expected), (
            f"{type(body).__name__} has the response {type(answer).__name__}"
        )
        if found != correlation_id:
            raise PeerClosed(
                f"the answer to {found} came where the one to {correlation_id} was due"
            )
        return answer

    def send_bytes(self, data: bytes) -> None:
        """Send raw bytes.

        If the node has already closed the connection, the missing response shows it.
        """
        self._transcript.sent(self._number, data)
        self._socket.settimeout(self._patience(self._timeout_seconds))
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return
        except TimeoutError as trouble:
            raise PeerSilent("the node does not read what is sent") from trouble

    def finish_sending(self) -> None:
        """Close the sending half; responses can still arrive."""
        self._transcript.ended(self._number, "this side has finished sending")
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Abort the connection like a crashed client: the node gets a reset."""
        self._transcript.ended(self._number, "this side resets the connection")
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def receive_frame(self, timeout_seconds: float | None = None) -> bytes:
        """Return the next frame without its size. Raises PeerClosed or PeerSilent."""
        size = int.from_bytes(self._receive(4, timeout_seconds), signed=True)
        frame = self._receive(size, timeout_seconds)
        self._transcript.came(self._number, frame)
        return frame

    def is_closed_by_node(self, within_seconds: float = 5.0) -> bool:
        """Return whether the node closes the connection, without sending a byte, in that time."""
        try:
            self._received = self._receive(1, within_seconds) + self._received
        except PeerClosed:
            return True
        except PeerSilent:
            return False
        self._write_down_what_came()
        return False

    def is_silent(self, for_seconds: float = 0.3) -> bool:
        """Return whether the node sends nothing for a while and keeps the connection open."""
        try:
            self._received = self._receive(1, for_seconds) + self._received
        except PeerSilent:
            return True
        except PeerClosed:
            return False
        self._write_down_what_came()
        return False

    def _write_down_what_came(self) -> None:
        """Report unexpected bytes: as a whole frame if they are one."""
        self._transcript.came(
            self._number, self._received[4:] if len(self._received) >= 8 else self._received
        )

    def _receive(self, size: int, timeout_seconds: float | None) -> bytes:
        wait_seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        while len(self._received) < size:
            self._socket.settimeout(self._patience(wait_seconds))
            try:
                data = self._socket.recv(65536)
            except TimeoutError as trouble:
                self._patience(wait_seconds)
                self._transcript.ended(self._number, f"nothing received for {wait_seconds:g} s")
                raise PeerSilent("no answer") from trouble
            except ConnectionResetError as trouble:
                self._transcript.ended(self._number, "the node reset the connection")
                raise PeerClosed("connection reset") from trouble
            if not data:
                self._transcript.ended(self._number, "the node closed the connection")
                raise PeerClosed("connection closed")
            self._received += data
        wanted, self._received = self._received[:size], self._received[size:]
        return wanted

    def _patience(self, wait_seconds: float) -> float:
        """Return how long one step may wait. Raises OutOfTime if the check has no time left."""
        if self._give_up_at is None:
            return wait_seconds
        left_seconds = self._give_up_at - time.monotonic()
        if left_seconds <= 0:
            raise OutOfTime
        return min(wait_seconds, left_seconds)


def api_key_of(body: Message) -> int:
    """Return the API key of a message."""
    api_key = declaration_of(type(body)).api_key
    assert api_key is not None, f"{type(body).__name__} is no request"
    return api_key


def request_bytes(
    body: Message, version: int, correlation_id: int, client_id: str | None = CLIENT_ID
) -> bytes:
    """Return a whole request with its size in front."""
    return b"".join(request_chunks(api_key_of(body), version, correlation_id, client_id, body))


def framed(payload: bytes) -> bytes:
    """Return bytes with their size in front."""
    return len(payload).to_bytes(4) + payload


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ValueError(f"{address}: write an address as HOST:PORT")
    return host.strip("[]"), int(port)


def joined(chunks: Sequence[bytes | memoryview]) -> bytes:
    """Return the chunks as one piece."""
    return b"".join(chunks)
