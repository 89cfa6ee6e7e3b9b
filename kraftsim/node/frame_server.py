"""What a connection asks for each frame that arrives: a dispatcher, or a gate in front of it.   Source: kafka.server.ApiRequestHandler."""

from typing import TYPE_CHECKING, Protocol

from kraftsim.node.call import Answer, Call, Deferred
from kraftsim.node.inbox import Buffer
from protocol.errors import ErrorCode
from protocol.requests import RequestHead

if TYPE_CHECKING:
    from kraftsim.node.connection import ServerConnection


class FrameServer(Protocol):
    """What a connection asks for each frame: a dispatcher."""

    def serve_run(self, connection: "ServerConnection", buffer: Buffer, position: int, end: int) -> int:
        """Serve all frames of a stretch about which nothing is unusual; return where the first other one begins."""
        ...

    def read_head(self, frame: bytes) -> RequestHead:
        """Read who is asked for what. Raises MalformedMessage or UnsupportedApi."""
        ...

    def serve(self, head: RequestHead, frame: bytes, connection: "ServerConnection") -> Answer | Deferred:
        """Answer a request now or later. Raises MalformedMessage or UnsupportedApi."""
        ...

    def refuse(self, head: RequestHead, frame: bytes, connection: "ServerConnection", error: ErrorCode) -> Answer:
        """Return how an API says an error. Raises MalformedMessage."""
        ...

    def refuse_call(self, call: Call, error: ErrorCode) -> Answer:
        """The same for a request that is decoded already."""
        ...
