"""One request in progress on a server: the input of a handler, and its possible results.

A handler is synchronous. It returns the response body, or a `Deferred` that is completed later: by
a purgatory, a pump, or a peer's response.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Generic, Never, Protocol, TypeVar, cast

from msgspec import Struct

from kraftsim.catalogue import Catalogue
from kraftsim.events.event import Event
from kraftsim.server.rules_authentication import Principal
from kraftsim.server.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.requests import RequestHead
from protocol.schema import Message

N_contra = TypeVar("N_contra", contravariant=True)
T = TypeVar("T")
M = TypeVar("M")
Allows = Callable[[str], bool]
"""Resource name -> whether the client is authorized."""
REASON_CHARACTERS_MAX = 1000


class AuthenticationGate(Protocol):
    """The gate of a connection with SASL, which serves its authentication requests."""

    def on_handshake(self, call: "Call") -> "Answer | Deferred":
        """Start a re-authentication of the client, if allowed."""
        ...

    def on_authenticate(self, call: "Call") -> "Answer | Deferred":
        """Take the next token of the client."""
        ...


class Connection(Protocol):
    """The connection of a request, as handlers see it."""

    number: int
    """Unique in this incarnation of the node."""
    listener: str
    peer: str
    """The client's address and port."""
    principal: Principal

    @property
    def gate(self) -> AuthenticationGate | None:
        """The authentication gate; None on a listener without SASL."""
        ...

    def emit(self, event: Event) -> None:
        """Emit an event of a request."""
        ...

    def emit_refused(self, asked: "RequestHead | Call", reason: str, *, action: str) -> None:
        """Emit an event with the reason why a request was not served."""
        ...

    def pause_writing(self) -> None:
        """Serve no request until `resume_writing`."""
        ...

    def resume_writing(self) -> None:
        """End a pause."""
        ...

    def limit_frames(self, frame_bytes_max: int) -> None:
        """Limit the frame size from now on."""
        ...

    def close(self, reason: str) -> None:
        """Close the connection after pending responses have been written."""
        ...

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Call back when the connection is lost, to release what is bound to it."""
        ...


class Call:
    """A decoded request and its connection. One is created per request, so the class is flat, and
    connections fill it in without calling `__init__`.
    """

    __slots__ = ("api_key", "api_version", "body", "client_id", "connection", "correlation_id")

    is_large: ClassVar[bool] = False
    """Whether it is served in several event-loop turns; then no later request of its connection is
    served before it is answered.
    """
    api_key: int
    api_version: int
    """The version of the request: the response is built in the same one."""
    correlation_id: int
    client_id: str | None
    """The client id; None and '' mean the same."""
    body: Message
    connection: Connection

    def __init__(self, head: RequestHead, body: Message, connection: Connection) -> None:
        self.api_key = head.api_key
        self.api_version = head.api_version
        self.correlation_id = head.correlation_id
        self.client_id = head.client_id
        self.body = body
        self.connection = connection

    @property
    def listener(self) -> str:
        """The listener of the client's connection."""
        return self.connection.listener

    @property
    def principal(self) -> Principal:
        """The principal of the client."""
        return self.connection.principal

    @property
    def host(self) -> str:
        """The client's IP address, without the port."""
        return self.connection.peer.rpartition(":")[0]

    def over_whole(self, compute: Callable[[M, int], T]) -> T:
        """Return the result of a function of the whole request, of which this call may be a part,
        and its version.
        """
        return compute(cast(M, self.body), self.api_version)


class LargeCall(Call):
    """A request with many entries, or a part of it; `whole` is the request that it is a part of,
    None for the request itself.
    """

    __slots__ = ("_asked", "_known", "_whole")

    is_large: ClassVar[bool] = True

    def __init__(
        self,
        head: RequestHead,
        body: Message,
        connection: Connection,
        whole: "LargeCall | None",
    ) -> None:
        super().__init__(head, body, connection)
        self._asked = body
        """The original body: a guard removes from `body` what the client is not authorized for."""
        self._whole = whole
        self._known: dict[object, object] = {}

    def over_whole(self, compute: Callable[[M, int], T]) -> T:
        """The same, computed for the first part and cached for the others."""
        if self._whole is not None:
            return self._whole.over_whole(compute)
        if compute not in self._known:
            self._known[compute] = compute(cast(M, self._asked), self.api_version)
        return cast(T, self._known[compute])


class Encoded(Struct, frozen=True):
    """An encoded response: everything after the correlation id, including the tagged fields of the
    header.
    """

    rest: bytes


class NoAnswer(Struct, frozen=True):
    """The request gets no response (Produce with acks=0), and the next one may be served."""


class Closing(Struct, frozen=True):
    """The connection is closed instead of a response."""

    reason: str


class Failed(Struct, frozen=True):
    """The response could not be built.

    The client gets UNKNOWN_SERVER_ERROR, or its connection is closed.
    """

    reason: str


NO_ANSWER = NoAnswer()
Answer = Message | Encoded | NoAnswer | Closing | Failed


class Deferred:
    """A response that is completed later: exactly once, unless the client disconnects first."""

    __slots__ = ("_on_abandoned", "_on_answer", "answer", "is_abandoned")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.is_abandoned = False
        self._on_answer: Callable[[], None] | None = None
        self._on_abandoned: Callable[[], None] | None = None

    def complete(self, answer: Answer) -> None:
        """Complete with a response. After the client has disconnected this does nothing."""
        if self.is_abandoned:
            return
        assert self.answer is None, "a request is answered once"
        self.answer = answer
        on_answer, self._on_answer, self._on_abandoned = (
            self._on_answer,
            None,
            None,
        )  # break reference cycles
        if on_answer is not None:
            on_answer()

    def complete_with(self, build: Callable[[], Answer]) -> None:
        """Complete with the response that `build` returns.

        If `build` fails, this request fails, and not the code that completes it.

        An AssertionError is still raised: it means a bug in the node.
        """
        if self.is_abandoned:
            return
        try:
            answer = build()
        except AssertionError:
            raise
        # often another request completes this one, such as the Fetch of a follower that commits a
        # record
        except Exception as failure:
            answer = Failed(f"the answer could not be built: {reason_of(failure)}")
        self.complete(answer)

    def when_abandoned(self, callback: Callable[[], None]) -> None:
        """Call back if the client disconnects before the response, to release resources;
        immediately, if it has already.
        """
        if self.is_abandoned and self.answer is None:
            callback()
            return
        self._on_abandoned = callback

    def attach(self, on_answer: Callable[[], None]) -> None:
        """Register the waiting connection. Only the connection calls this."""
        self._on_answer = on_answer

    def abandon(self) -> None:
        """The client has disconnected. Only the connection calls this."""
        self.is_abandoned = True
        self._on_answer = None
        if self.answer is None and self._on_abandoned is not None:
            self._on_abandoned()


def reason_of(failure: Exception) -> str:
    """Return a loggable description of a failure: a message may quote 32 KiB of the request."""
    text = f"{type(failure).__name__}: {failure}"
    return (
        text
        if len(text) <= REASON_CHARACTERS_MAX
        else f"{text[:REASON_CHARACTERS_MAX]}... ({len(text)} characters)"
    )


def completed_by(answer: Answer | Deferred, later: Deferred) -> None:
    """Complete `later` with an answer once it is available; abandoning one abandons the other."""
    if not isinstance(answer, Deferred):
        later.complete(answer)
        return
    if answer.answer is not None:
        later.complete(answer.answer)
        return

    def pass_on() -> None:
        assert answer.answer is not None, "called once the answer is complete"
        later.complete(answer.answer)

    answer.attach(pass_on)
    later.when_abandoned(answer.abandon)


def without_records(call: Call) -> Call | RequestHead:
    """Return what is retained of a request while it waits for its response: everything but the
    records of Produce, which can be a hundred megabytes.
    """
    if call.api_key != ApiKey.PRODUCE:
        return call
    return RequestHead(call.api_key, call.api_version, call.correlation_id, call.client_id, 0)


@dataclass(frozen=True, slots=True)
class Handler(Generic[N_contra]):
    """How a node of kind N serves one API. N is a protocol with what the handler uses of its node;
    every node that has that is served.

    `refuse` builds the error response if `handle` raises an unexpected exception; without it the
    connection is closed. `handle_allowed` serves a request whose body does not name all resources
    it accesses: it applies a predicate over resource names (topic names for Fetch) to everything
    that the request reaches. A node with an authorizer calls it instead of `handle`. `slices`
    defines how a large request is split; without it `handle` gets the whole request.
    """

    key: ApiKey
    handle: Callable[[N_contra, Call], Answer | Deferred]
    refuse: Callable[[Call, ErrorCode], Answer] | None = None
    handle_allowed: Callable[[N_contra, Call, Allows], Answer | Deferred] | None = None
    slices: Slices | None = None

    @property
    def name(self) -> str:
        """The name by which a catalogue sorts it: that of the file of its API's messages."""
        return f"k{int(self.key):02}_{self.key.name.lower()}"


@cache
def controller_handlers() -> tuple[Handler[Never], ...]:
    """Return the handlers of a controller in the order of their file names.

    Cached, because a simulation starts many controllers, and handlers have no state.
    """
    found: tuple[Handler[Never], ...] = Catalogue(
        "kraftsim.*.controller_handlers", "HANDLER", Handler
    ).all()
    return found
