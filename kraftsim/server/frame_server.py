"""Interface of a connection to its request server: a dispatcher, or an authentication gate in front
of it.
Source: kafka.server.ApiRequestHandler.
"""

from collections.abc import Callable, Coroutine
from typing import Protocol

from kraftsim.server.call import Answer, Call, Connection, Deferred
from kraftsim.server.inbox import Buffer, ClientOf
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import Chunk, FileSlice
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.requests import RequestHead

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
