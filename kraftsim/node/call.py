"""One request under way on a server: what a handler is given, and what it may give back.

A handler is synchronous. It returns the body of its answer, or a `Deferred` that somebody completes later: a purgatory, a pump, a peer's answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from kraftsim.core.security.principal import Principal
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.requests import RequestHead
from protocol.schema import Message

if TYPE_CHECKING:
    from kraftsim.node.connection import ServerConnection

N = TypeVar("N")


class Call:
    """A request, decoded, and where it came from. One is made per request, so it is flat, and connections fill it in without calling `__init__`."""

    __slots__ = ("api_key", "api_version", "body", "client_id", "connection", "correlation_id")

    api_key: int
    api_version: int
    """The version the client chose: the answer is built in the same one."""
    correlation_id: int
    client_id: str | None
    """What the client calls itself; None and '' mean the same."""
    body: Message
    connection: "ServerConnection"

    def __init__(self, head: RequestHead, body: Message, connection: "ServerConnection") -> None:
        self.api_key = head.api_key
        self.api_version = head.api_version
        self.correlation_id = head.correlation_id
        self.client_id = head.client_id
        self.body = body
        self.connection = connection

    @property
    def listener(self) -> str:
        """The listener through which the client came."""
        return self.connection.listener

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.connection.principal

    @property
    def host(self) -> str:
        """The address that the client has, without its port."""
        return self.connection.peer.rpartition(":")[0]


class Encoded(Struct, frozen=True):
    """An answer as bytes: everything that follows the correlation id, the tags of the header included."""

    rest: bytes


class NoAnswer(Struct, frozen=True):
    """The request gets none (Produce with acks=0) and the next one may be served."""


class Closing(Struct, frozen=True):
    """Instead of an answer the connection is closed."""

    reason: str


NO_ANSWER = NoAnswer()
Answer = Message | Encoded | NoAnswer | Closing


class Deferred:
    """An answer that comes later. Completed exactly once, unless the client goes away first."""

    __slots__ = ("_on_abandoned", "_on_answer", "answer", "is_abandoned")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.is_abandoned = False
        self._on_answer: Callable[[], None] | None = None
        self._on_abandoned: Callable[[], None] | None = None

    def complete(self, answer: Answer) -> None:
        """Give the answer. After the client went away this does nothing."""
        if self.is_abandoned:
            return
        assert self.answer is None, "a request is answered once"
        self.answer = answer
        on_answer, self._on_answer, self._on_abandoned = self._on_answer, None, None  # who was answered is let go of: no cycle is left to collect
        if on_answer is not None:
            on_answer()

    def when_abandoned(self, callback: Callable[[], None]) -> None:
        """Call back if the client goes away before there is an answer, so that nothing is kept for it."""
        self._on_abandoned = callback

    def attach(self, on_answer: Callable[[], None]) -> None:
        """Name the connection that waits. Only the connection calls this."""
        self._on_answer = on_answer

    def abandon(self) -> None:
        """The client went away. Only the connection calls this."""
        self.is_abandoned = True
        self._on_answer = None
        if self.answer is None and self._on_abandoned is not None:
            self._on_abandoned()


@dataclass(frozen=True, slots=True)
class Handler(Generic[N]):
    """How a node of kind N serves one API.

    `refuse` builds the answer for a request that `handle` failed on in a way nobody foresaw; without one the connection is closed.
    """

    key: ApiKey
    handle: Callable[[N, Call], Answer | Deferred]
    refuse: Callable[[Call, ErrorCode], Answer] | None = None
