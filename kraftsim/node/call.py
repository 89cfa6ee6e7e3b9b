"""One request under way on a server: what a handler is given, and what it may give back.

A handler is synchronous. It returns the body of its answer, or a `Deferred` that somebody completes later: a purgatory, a pump, a peer's answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

from msgspec import Struct

from kraftsim.core.security.principal import Principal
from kraftsim.node.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.requests import RequestHead
from protocol.schema import Message

if TYPE_CHECKING:
    from kraftsim.node.connection import ServerConnection

N = TypeVar("N")
T = TypeVar("T")
M = TypeVar("M")
Allows = Callable[[str], bool]
"""Resource name -> whether the client has the right to it."""
REASON_CHARACTERS_MAX = 1000


class Call:
    """A request, decoded, and where it came from. One is made per request, so it is flat, and connections fill it in without calling `__init__`."""

    __slots__ = ("api_key", "api_version", "body", "client_id", "connection", "correlation_id")

    is_large: ClassVar[bool] = False
    """Whether it is served in several turns of the loop; then nothing behind it on its connection is served before it is answered."""
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

    def over_whole(self, compute: Callable[[M, int], T]) -> T:
        """Return what a function makes of the whole request, of which this call may be a part, and its version."""
        return compute(cast(M, self.body), self.api_version)


class LargeCall(Call):
    """A request of many entries, or a part of it; `whole` is the request that it is a part of, None for the request itself."""

    __slots__ = ("_asked", "_known", "_whole")

    is_large: ClassVar[bool] = True

    def __init__(self, head: RequestHead, body: Message, connection: "ServerConnection", whole: "LargeCall | None") -> None:
        super().__init__(head, body, connection)
        self._asked = body
        """The body as it came: a guard takes away from `body` what the client may not touch."""
        self._whole = whole
        self._known: dict[object, object] = {}

    def over_whole(self, compute: Callable[[M, int], T]) -> T:
        """The same, computed for the first part and kept for the others."""
        if self._whole is not None:
            return self._whole.over_whole(compute)
        if compute not in self._known:
            self._known[compute] = compute(cast(M, self._asked), self.api_version)
        return cast(T, self._known[compute])


class Encoded(Struct, frozen=True):
    """An answer as bytes: everything that follows the correlation id, the tags of the header included."""

    rest: bytes


class NoAnswer(Struct, frozen=True):
    """The request gets none (Produce with acks=0) and the next one may be served."""


class Closing(Struct, frozen=True):
    """Instead of an answer the connection is closed."""

    reason: str


class Failed(Struct, frozen=True):
    """The answer could not be built. The client gets UNKNOWN_SERVER_ERROR, or its connection is closed."""

    reason: str


NO_ANSWER = NoAnswer()
Answer = Message | Encoded | NoAnswer | Closing | Failed


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

    def complete_with(self, build: Callable[[], Answer]) -> None:
        """Give the answer that `build` returns. If `build` fails, this request fails, and not the code that happens to complete it.

        An AssertionError is raised all the same: the node is wrong about something.
        """
        if self.is_abandoned:
            return
        try:
            answer = build()
        except AssertionError:
            raise
        except Exception as failure:  # what completes a request is often another request, as the Fetch of a follower that commits a record
            answer = Failed(f"the answer could not be built: {reason_of(failure)}")
        self.complete(answer)

    def when_abandoned(self, callback: Callable[[], None]) -> None:
        """Call back if the client goes away before there is an answer, so that nothing is kept for it; at once, if it is gone already."""
        if self.is_abandoned and self.answer is None:
            callback()
            return
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


def reason_of(failure: Exception) -> str:
    """Return what went wrong, at a length that can be logged: a message may quote 32 KiB of the request."""
    text = f"{type(failure).__name__}: {failure}"
    return text if len(text) <= REASON_CHARACTERS_MAX else f"{text[:REASON_CHARACTERS_MAX]}... ({len(text)} characters)"


def completed_by(answer: Answer | Deferred, later: Deferred) -> None:
    """Give `later` an answer once it is there; who abandons the one abandons the other."""
    if not isinstance(answer, Deferred):
        later.complete(answer)
        return
    if answer.answer is not None:
        later.complete(answer.answer)
        return

    def pass_on() -> None:
        assert answer.answer is not None, "an answer woke this"
        later.complete(answer.answer)

    answer.attach(pass_on)
    later.when_abandoned(answer.abandon)


def without_records(call: Call) -> Call | RequestHead:
    """Return what is kept of a request while it waits for its answer: all but the records of Produce, which can be a hundred megabytes."""
    if call.api_key != ApiKey.PRODUCE:
        return call
    return RequestHead(call.api_key, call.api_version, call.correlation_id, call.client_id, 0)


@dataclass(frozen=True, slots=True)
class Handler(Generic[N]):
    """How a node of kind N serves one API.

    `refuse` builds the answer for a request that `handle` failed on in a way nobody foresaw; without one the connection is closed.
    `handle_allowed` serves a request whose body does not name all that it asks for: it applies a predicate over resource names
    (topic names for Fetch) to everything that the request reaches. A node with an authorizer calls it instead of `handle`.
    `slices` says how a large request is split; without it `handle` gets it whole.
    """

    key: ApiKey
    handle: Callable[[N, Call], Answer | Deferred]
    refuse: Callable[[Call, ErrorCode], Answer] | None = None
    handle_allowed: Callable[[N, Call, Allows], Answer | Deferred] | None = None
    slices: Slices | None = None
