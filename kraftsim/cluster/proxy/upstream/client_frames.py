"""One connection of a client as frames in both directions, without I/O: which request each response
answers, and which responses are kept until they are whole, because they may have an address in
them.

Everything else passes in the pieces in which it arrives; only the first bytes of a frame are read:
fourteen of a request, eight of a response. A node answers the requests of a connection in order,
so the requests wait in a queue.

While there are faults of requests, a gate stands between this and the node. It is put there when
the first fault comes, in the middle of frames if need be, and it is taken away again.
Source: Kafka protocol guide; KIP-43, KIP-152 (tokens without a header after SaslHandshake v0).
"""

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

from kraftsim.cluster.proxy.request_gate import RequestGate, UnderWay, acks_end, acks_of
from kraftsim.cluster.proxy.upstream.fetch_walk import FetchWalk
from kraftsim.cluster.proxy.upstream.rules_addresses import FIRST_VERSIONS
from protocol.api_keys import ApiKey
from protocol.frames import SIZE, SOCKET_REQUEST_MAX_BYTES
from protocol.messages.k00_produce import ACKS_NONE
from protocol.requests import UnsupportedApi, route_of

REQUEST_HEAD: Final = Struct(">ihhi")
"""Size, API key, version, correlation id."""
RESPONSE_HEAD: Final = Struct(">ii")
"""Size and correlation id."""
SIZE_BYTES: Final = 4
REQUEST_HEAD_BYTES: Final = 14
"""The header with the size of the client id; only ControlledShutdown v0 has requests without it."""
CLIENT_ID_AT: Final = 12
"""Behind size, API key, version and correlation id."""
RESPONSE_HEAD_BYTES: Final = RESPONSE_HEAD.size
ACKS_WITHIN_BYTES: Final = 1024
"""A Produce has its `acks` in so many bytes, unless its client id and transactional id are long."""
UNANSWERED_MAX: Final = 10_000
KEPT_FETCH_BYTES_MAX: Final = 1 << 16
"""A larger response to Fetch passes in pieces, and loses its endpoints instead of having them
replaced: the client then asks for Metadata.
"""
TLS_HANDSHAKE: Final = b"\x16\x03"
PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
SASL_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE)
ENDLESS: Final = 1 << 62
"""The rest of a connection whose bytes are no frames of Kafka: it passes."""
Pending = tuple[int, int, int]
"""Correlation id, API key and version of a request without its answer so far."""
BARE_TOKEN: Final[Pending] = (0, -1, -1)
"""In the place of a request: a token of SASL without a header."""
Send = Callable[[bytes], None]
Rewrite = Callable[[int, int, bytes], bytes]
"""API key, version and whole frame of a response -> the frame to pass on."""


class ClientFrames:
    """The frames of one connection. `to_node` and `to_client` take what passes; `rewrite` gets each
    response that may have an address in it; `on_tls` is called for a client that speaks TLS.
    """

    __slots__ = (
        "_acks_bytes",
        "_acks_version",
        "_awaited",
        "_gate",
        "_held",
        "_held_for",
        "_held_missing",
        "_last",
        "_on_tls",
        "_request_head",
        "_request_left",
        "_response_head",
        "_response_left",
        "_rewrite",
        "_sends_bare_tokens",
        "_to_client",
        "_to_node",
        "_walk",
    )

    def __init__(
        self, *, to_node: Send, to_client: Send, rewrite: Rewrite, on_tls: Callable[[], None]
    ) -> None:
        self._to_node = to_node
        self._to_client = to_client
        self._rewrite = rewrite
        self._on_tls = on_tls
        self._gate: RequestGate | None = None
        self._awaited: deque[Pending] = deque()
        self._last: tuple[int, int] | None = None
        """API key and version of the last request."""
        self._acks_version = -1
        self._acks_bytes = b""
        """The bytes of the last Produce with an answer, from the client id to `acks`."""
        self._request_head = b""
        """The beginning of a header; it waits for the rest."""
        self._request_left = 0
        """Bytes of the present request that did not arrive yet."""
        self._response_head = b""
        self._response_left = 0
        self._held: list[bytes] = []
        """The pieces of a response that is kept until it is whole, and what it answers."""
        self._held_for = BARE_TOKEN
        self._held_missing = 0
        self._walk: FetchWalk | None = None
        self._sends_bare_tokens = False

    @property
    def has_gate(self) -> bool:
        """Whether faults of requests may meet this connection."""
        return self._gate is not None

    def open_gate(self, make: Callable[[UnderWay], RequestGate], client_id: str | None) -> None:
        """Put a gate between the client and the node, at any time."""
        head, self._response_head = self._response_head, b""
        self._gate = make(
            UnderWay(
                unanswered={
                    correlation_id: api_key
                    for correlation_id, api_key, _ in self._awaited
                    if api_key >= 0
                },
                request_left=self._request_left,
                response_left=self._held_missing or self._response_left,
                last=self._last,
                client_id=client_id,
            )
        )
        if head:
            self._gate.feed_response(head)

    def close_gate(self) -> bool:
        """Take the gate away if it holds nothing; return whether there is none any more."""
        if self._gate is not None and self._gate.is_idle:
            self._gate.close()
            self._gate = None
        return self._gate is None

    def keeps_end(self, end: Callable[[], None]) -> bool:
        """Return whether a fault hides the end of one side from the other now."""
        return self._gate is not None and self._gate.keeps_end(end)

    def close(self) -> None:
        """The connection is gone."""
        if self._gate is not None:
            self._gate.close()

    # Requests
    # ----------------------------------------------------------------------------------------------

    def feed_request(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self._request_head:
            data, self._request_head = self._request_head + data, b""
        size_bytes, position = len(data), self._request_left
        while position + REQUEST_HEAD_BYTES <= size_bytes:
            size, api_key, version, correlation_id = REQUEST_HEAD.unpack_from(data, position)
            if size < 0:
                position = ENDLESS
                break
            self._note(data, position, api_key, version, correlation_id)
            position += SIZE_BYTES + size
        if position < size_bytes:
            position = self._behind_short_frames(data, position)
            if position < size_bytes:
                data, self._request_head = data[:position], data[position:]
                size_bytes = position
        self._request_left = position - size_bytes
        if data:
            (self._to_node if self._gate is None else self._gate.feed_request)(data)

    def end_requests(self) -> None:
        """The client sends no more: pass what was kept."""
        data, self._request_head = self._request_head, b""
        if data:
            (self._to_node if self._gate is None else self._gate.feed_request)(data)

    def _note(
        self, data: bytes, position: int, api_key: int, version: int, correlation_id: int
    ) -> None:
        """A request begins: remember what its answer answers."""
        if self._last is None and data.startswith(TLS_HANDSHAKE):
            self._on_tls()
        if api_key == PRODUCE:
            if not self._is_answered(data, position, version):
                return
        elif api_key == SASL_HANDSHAKE:
            self._sends_bare_tokens = version == 0
        elif self._sends_bare_tokens:
            if not _is_declared(api_key, version):
                self._awaited.append(BARE_TOKEN)
                return
            self._sends_bare_tokens = False
        self._last = api_key, version
        self._awaited.append((correlation_id, api_key, version))
        if len(self._awaited) > UNANSWERED_MAX:
            self._awaited.popleft()

    def _is_answered(self, data: bytes, position: int, version: int) -> bool:
        """Return whether the node answers a Produce.

        Its `acks` is found once: a producer repeats the bytes from its client id to there.
        """
        if version == self._acks_version and data.startswith(
            self._acks_bytes, position + CLIENT_ID_AT
        ):
            return True
        begin = data if not position else data[position : position + ACKS_WITHIN_BYTES]
        if acks_of(begin, version) == ACKS_NONE:
            return False
        if (end := acks_end(begin, version)) is not None:
            self._acks_version, self._acks_bytes = version, begin[CLIENT_ID_AT:end]
        return True

    def _behind_short_frames(self, data: bytes, position: int) -> int:
        """Return the position behind whole frames that are shorter than a header: tokens."""
        while position + SIZE_BYTES <= len(data):
            size: int = SIZE.unpack_from(data, position)[0]
            if not 0 <= size <= SOCKET_REQUEST_MAX_BYTES:
                return ENDLESS
            if size > len(data) - position - SIZE_BYTES:
                break
            if self._sends_bare_tokens:
                self._awaited.append(BARE_TOKEN)
            position += SIZE_BYTES + size
        return position

    # Responses
    # ----------------------------------------------------------------------------------------------

    def feed_response(self, data: bytes) -> None:
        """Take bytes of the node."""
        (self.pass_response if self._gate is None else self._gate.feed_response)(data)

    def end_responses(self) -> None:
        """The node sends no more: pass what was kept."""
        pieces = [*self._held, self._response_head]
        self._held, self._held_missing, self._response_head = [], 0, b""
        if rest := b"".join(pieces):
            self._to_client(rest)

    def pass_response(self, data: bytes) -> None:
        """Take bytes that no fault keeps from the client."""
        if self._held_missing:
            data = self._complete(data)
        if self._response_head:
            data, self._response_head = self._response_head + data, b""
        if self._walk is not None:
            data = self._walk.feed(data)
        size_bytes, begin, position = len(data), 0, self._response_left
        while position + SIZE_BYTES <= size_bytes:
            awaited = self._awaited[0] if self._awaited else None
            if awaited is BARE_TOKEN:
                self._awaited.popleft()
                position += SIZE_BYTES + max(0, SIZE.unpack_from(data, position)[0])
                continue
            if position + RESPONSE_HEAD_BYTES > size_bytes:
                break
            size, correlation_id = RESPONSE_HEAD.unpack_from(data, position)
            if size < 0:
                position = ENDLESS
                break
            _, api_key, version = awaited = self._answered(correlation_id)
            end = position + SIZE_BYTES + size
            first_version = FIRST_VERSIONS.get(api_key)
            if first_version is None or version < first_version:
                position = end
            elif end <= size_bytes:
                if begin < position:
                    self._to_client(data[begin:position])
                frame = data if size_bytes == end - position else data[position:end]
                self._to_client(self._rewrite(api_key, version, frame))
                begin = position = end
            elif api_key == FETCH and size > KEPT_FETCH_BYTES_MAX:
                self._walk = FetchWalk(size + SIZE_BYTES)
                data = data[:position] + self._walk.feed(data[position:])
                position = end
            else:
                if begin < position:
                    self._to_client(data[begin:position])
                self._hold(awaited, data[position:], end - size_bytes)
                return
        self._response_left = max(0, position - size_bytes)
        if self._response_left == 0:
            self._walk = None
        if position < size_bytes:
            self._response_head = data[position:]
            data = data[begin:position]
        elif begin:
            data = data[begin:]
        if data:
            self._to_client(data)

    def _answered(self, correlation_id: int) -> Pending:
        """Return the request that a response answers; those before it are never answered."""
        awaited = self._awaited
        if awaited and awaited[0][0] == correlation_id:
            return awaited.popleft()
        if any(each[0] == correlation_id for each in awaited):
            while awaited[0][0] != correlation_id:
                awaited.popleft()
            return awaited.popleft()
        return BARE_TOKEN

    def _hold(self, awaited: Pending, begin: bytes, missing: int) -> None:
        self._held_for = awaited
        self._held, self._held_missing, self._response_left = [begin], missing, 0

    def _complete(self, data: bytes) -> bytes:
        """Add to the response that is kept; return what is behind it."""
        self._held.append(data[: self._held_missing])
        rest = data[self._held_missing :]
        self._held_missing -= len(self._held[-1])
        if not self._held_missing:
            _, api_key, version = self._held_for
            frame, self._held = b"".join(self._held), []
            self._to_client(self._rewrite(api_key, version, frame))
        return rest


def _is_declared(api_key: int, version: int) -> bool:
    try:
        route_of(api_key, version)
    except UnsupportedApi:
        return False
    return True
