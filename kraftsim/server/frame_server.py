"""Interface of a connection to its request server: a dispatcher, or an authentication gate in front
of it.
Source: kafka.server.ApiRequestHandler.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

from kraftsim.server.call import (
    Answer,
    Call,
    Closing,
    Connection,
    Deferred,
    Encoded,
    Failed,
    NoAnswer,
    reason_of,
)
from kraftsim.server.events_connections import MessageFailed
from kraftsim.server.inbox import Buffer, ClientOf
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import Chunk, FileSlice
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.requests import RequestHead, response_chunks

NO_HEAD = RequestHead(-1, -1, -1, None, 0)
"""Stands for the header of a frame that has none."""


class ServedConnection(Connection, Protocol):
    """A connection whose frames are served, with its state between two frames."""

    frame_bytes_max: int
    has_frame_events: bool
    out: list[Chunk | FileSlice]
    """Responses to be written."""
    close_reason: str | None
    client_of: ClientOf
    """Returns the client id of a frame."""
    pauses: int
    """The number of active pauses."""

    @property
    def is_ready(self) -> bool:
        """Whether the next request may be served."""
        ...

    def ends_turn(self) -> bool:
        """Return whether this client has used up its time slice."""
        ...

    def give(self, answer: Answer | Deferred, call: Call) -> None:
        """Process a response or a deferred response."""
        ...

    def spawn(self, work: Callable[[NodeShell], Coroutine[None, None, None]], name: str) -> None:
        """Spawn a task of the node that serves a request in several turns."""
        ...

    def end_with(
        self, failure: AssertionError | MalformedMessage, asked: RequestHead | Call
    ) -> None:
        """Fail: close this connection, or stop the node if it has a bug."""
        ...

    def emit_received(self, asked: RequestHead | Call, size_bytes: int) -> None:
        """Emit the event of a received request."""
        ...


class FrameServer(Protocol):
    """Serves the frames of connections: implemented by the dispatcher."""

    def serve_run(
        self, connection: ServedConnection, buffer: Buffer, position: int, end: int
    ) -> int:
        """Serve all ordinary frames of a stretch; return the position of the first other one."""
        ...

    def read_head(self, frame: bytes) -> RequestHead:
        """Parse a request header. Raises MalformedMessage or UnsupportedApi."""
        ...

    def serve(
        self, head: RequestHead, frame: bytes, connection: ServedConnection
    ) -> Answer | Deferred:
        """Answer a request now or later. Raises MalformedMessage or UnsupportedApi."""
        ...

    def refuse(
        self, head: RequestHead, frame: bytes, connection: ServedConnection, error: ErrorCode
    ) -> Answer:
        """Return the error response of an API. Raises MalformedMessage."""
        ...

    def refuse_call(self, call: Call, error: ErrorCode) -> Answer:
        """The same for a decoded request."""
        ...


# --------------------------------------------------------------------------------------------------
# The error response that replaces a response that could not be built or encoded
#
# A client controls what a response quotes, so it can cause one that cannot be encoded, such as an
# error message that contains a name of 32,767 bytes. Such a request fails alone: its client gets
# UNKNOWN_SERVER_ERROR in the form of its API, and if even that cannot be encoded its connection is
# closed. Messages are not shortened below the maximum string size of the protocol: Kafka sends
# messages of up to 32,767 bytes unchanged, and UNKNOWN_SERVER_ERROR instead of longer ones.
#
# Source: kafka.server.RequestHandlerHelper.handleError; checked against Apache Kafka 3.9.1 and
# 4.4.0.

ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
ANSWERED, CLOSED = "answered", "closed"


def encoding_failed(failure: Exception) -> Failed:
    """Return the result for a response that the encoder refused."""
    return Failed(f"the answer cannot be encoded: {reason_of(failure)}")


def answer_instead(
    failed: Failed,
    server: FrameServer,
    asked: RequestHead | Call,
    frame: bytes | None,
    connection: ServedConnection,
) -> Sequence[Chunk] | None:
    """Return the frame of the error response, with its size; None: the connection must be closed.

    Both emit an event.

    `frame` is the request if `asked` is only its header; without it there is no error response.
    """
    chunks = None
    try:
        if isinstance(asked, Call):
            chunks = _encoded(server.refuse_call(asked, ERROR), asked)
        elif frame is not None:
            chunks = _encoded(server.refuse(asked, frame, connection, ERROR), asked)
    except Exception:
        pass
    emit_failed(failed, asked, connection, ANSWERED if chunks is not None else CLOSED)
    return chunks


def emit_failed(
    failed: Failed, asked: RequestHead | Call, connection: Connection, action: str
) -> None:
    """Emit the event of a failed response."""
    connection.emit(
        MessageFailed(
            connection=connection.number,
            api_key=asked.api_key,
            api_version=asked.api_version,
            correlation_id=asked.correlation_id,
            is_response=True,
            reason=failed.reason,
            action=action,
        )
    )


def _encoded(refused: Answer, asked: RequestHead | Call) -> Sequence[Chunk] | None:
    if isinstance(refused, Encoded | NoAnswer | Closing | Failed):
        return None
    return response_chunks(asked.api_key, asked.api_version, asked.correlation_id, refused)
