"""Interface of a connection to its request server: a dispatcher, or an authentication gate in front
of it.
Source: kafka.server.ApiRequestHandler.
"""

from typing import TYPE_CHECKING, Protocol

from kraftsim.server.call import Answer, Call, Deferred
from kraftsim.server.inbox import Buffer
from protocol.errors import ErrorCode
from protocol.requests import RequestHead

if TYPE_CHECKING:
    from kraftsim.server.connection import ServerConnection


class FrameServer(Protocol):
    """Serves the frames of connections: implemented by the dispatcher."""

    def serve_run(
        self, connection: "ServerConnection", buffer: Buffer, position: int, end: int
    ) -> int:
        """Serve all ordinary frames of a stretch; return the position of the first other one."""
        ...

    def read_head(self, frame: bytes) -> RequestHead:
        """Parse a request header. Raises MalformedMessage or UnsupportedApi."""
        ...

    def serve(
        self, head: RequestHead, frame: bytes, connection: "ServerConnection"
    ) -> Answer | Deferred:
        """Answer a request now or later. Raises MalformedMessage or UnsupportedApi."""
        ...

    def refuse(
        self, head: RequestHead, frame: bytes, connection: "ServerConnection", error: ErrorCode
    ) -> Answer:
        """Return the error response of an API. Raises MalformedMessage."""
        ...

    def refuse_call(self, call: Call, error: ErrorCode) -> Answer:
        """The same for a decoded request."""
        ...
