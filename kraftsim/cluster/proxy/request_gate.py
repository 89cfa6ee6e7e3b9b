"""Faults of requests in the proxy: one connection as frames in both directions, without I/O.

Requests of APIs that no fault is about pass as bytes arrive; others are kept until they are whole,
because only the body says what they are about. A server answers the requests of a connection in
order, and so does the gate: before it acts on a request it waits for the answers to all earlier
ones, and what is behind it waits meanwhile. Requests that are not answered (Produce with acks=0) do
not count.

In an embedded cluster a node carries out the same rules (`kraftsim.cluster.request_tap`).
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from kraftsim.lab.faults.rules_request_faults import (
    Decided,
    RequestAction,
    RequestFault,
    RequestRules,
    SeenRequest,
    sender_of,
)
from protocol.api_keys import ApiKey
from protocol.messages.k00_produce import ACKS_NONE
from protocol.requests import UnsupportedApi, decode_request, read_request_head, response_chunks

REQUEST_HEAD: Final = struct.Struct(">ihhih")
"""Size, API key, version, correlation id, size of the client id."""
RESPONSE_HEAD: Final = struct.Struct(">ii")
SIZE_BYTES: Final = 4
PRODUCE_HEAD_BYTES: Final = 70_000
"""So many bytes of a Produce have its `acks`, whatever its client id and transactional id."""
FIRST_WITH_TRANSACTIONAL_ID, FIRST_FLEXIBLE_PRODUCE = 3, 9
OnEffect = Callable[[int, RequestFault, SeenRequest], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class GateActions:
    """What a gate does to its connection."""

    to_node: Callable[[bytes], None]
    to_client: Callable[[bytes], None]
    reset: Callable[[], None]
    end_requests: Callable[[], None]
    """Closes the direction to the node (FIN) once what was passed has left."""
    end_responses: Callable[[], None]
    """The same towards the client."""
    copy: Callable[[bytes, float, Callable[[], None]], None]
    """Sends a request to the node again on a connection of its own, so many ms later; calls back
    when it was answered.
    """
    later: Callable[[float, Callable[[], None]], object]
    """Calls back so many ms later."""
    now_ms: Callable[[], float]
    """The clock of the rules."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A request whose answer gets the fault."""

    correlation_id: int
    decided: Decided
    request: SeenRequest


class RequestGate:
    """The faults of requests of one connection to a node. `source` is the node that has opened it;
    empty for another client.
    """

    def __init__(
        self,
        node: str,
        source: str,
        *,
        rules: RequestRules,
        actions: GateActions,
        on_effect: OnEffect,
        client_ids: Mapping[str, str],
    ) -> None:
        self._node = node
        self._source = source
        self._client_ids = client_ids
        self._rules = rules
        self._actions = actions
        self._on_effect = on_effect
        self._requests = b""
        self._passing_request = 0
        """Bytes of the current request that pass as they arrive."""
        self._unanswered: dict[int, None] = {}
        self._ready: tuple[Decided, bytes, SeenRequest] | None = None
        """A request that waits for earlier answers."""
        self._is_held = False
        self._is_silent = False
        self._awaited: _Awaited | None = None
        self._responses = b""
        self._passing_response = 0
        self._answering: int | None = None

    def feed_request(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._requests += data
        self._go_on()

    def feed_response(self, data: bytes) -> None:
        """Take bytes of the node."""
        if self._is_silent:
            return
        self._responses += data
        while self._responses and not self._is_silent and self._pass_response():
            pass
        self._act()
        self._go_on()

    # Requests
    # ----------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        while (
            self._requests
            and not self._is_held
            and not self._is_silent
            and self._ready is None
            and self._pass_request()
        ):
            self._act()

    def _pass_request(self) -> bool:
        """Pass a part of the bytes, or decide about a request; False while more must arrive."""
        data = self._requests
        if self._passing_request:
            part, self._requests = data[: self._passing_request], data[self._passing_request :]
            self._passing_request -= len(part)
            self._actions.to_node(part)
            return True
        if len(data) < REQUEST_HEAD.size:
            return False
        size, api_key, version, correlation_id, _ = REQUEST_HEAD.unpack_from(data)
        whole = SIZE_BYTES + size
        if api_key == ApiKey.PRODUCE and len(data) < min(whole, PRODUCE_HEAD_BYTES):
            return False
        if not self._rules.may_concern(api_key):
            if api_key != ApiKey.PRODUCE or acks_of(data, version) != ACKS_NONE:
                self._unanswered[correlation_id] = None
            self._passing_request = whole
            return True
        if len(data) < whole:
            return False
        frame, self._requests = data[:whole], data[whole:]
        self._decide(frame)
        return True

    def _decide(self, frame: bytes) -> None:
        try:
            head = read_request_head(frame[SIZE_BYTES:])
        except (UnsupportedApi, ValueError):
            self._actions.to_node(frame)
            return
        request = SeenRequest(
            node=self._node,
            sender=self._source or sender_of(head.client_id, self._client_ids),
            api_key=head.api_key,
            api_version=head.api_version,
            client_id=head.client_id,
            body=partial(decode_request, head, frame[SIZE_BYTES:]),
        )
        decided = self._rules.decide(request, self._actions.now_ms())
        if decided is None:
            self._forward(frame)
        else:
            self._ready = decided, frame, request

    def _forward(self, frame: bytes) -> None:
        _, api_key, version, correlation_id, _ = REQUEST_HEAD.unpack_from(frame)
        if api_key != ApiKey.PRODUCE or acks_of(frame, version) != ACKS_NONE:
            self._unanswered[correlation_id] = None
        self._actions.to_node(frame)

    def _act(self) -> None:
        """Carry out the fault of a request, once all earlier requests are answered."""
        if self._ready is None or self._unanswered or self._is_silent:
            return
        (decided, frame, request), self._ready = self._ready, None
        fault = decided.fault
        _, _, _, correlation_id, _ = REQUEST_HEAD.unpack_from(frame)
        take_effect = partial(self._on_effect, decided.number, fault, request)
        if fault.done:
            self._awaited = _Awaited(correlation_id, decided, request)
            self._is_held = True
            self._forward(frame)
            return
        match fault.action:
            case RequestAction.ERROR:
                assert decided.answer is not None, "a request without an answer does not match"
                take_effect()
                self._actions.to_client(
                    b"".join(
                        response_chunks(
                            request.api_key, request.api_version, correlation_id, decided.answer
                        )
                    )
                )
            case RequestAction.DROP:
                take_effect()
                self._is_silent = True
            case RequestAction.DELAY:
                self._is_held = True
                self._actions.later(fault.delay_ms, lambda: self._release(frame, take_effect))
            case RequestAction.DUPLICATE:
                self._forward(frame)
                self._actions.copy(frame, fault.delay_ms, take_effect)
            case RequestAction.DISCONNECT:
                take_effect()
                self._is_silent = True
                self._actions.reset()

    def _release(self, frame: bytes, take_effect: Callable[[], None]) -> None:
        take_effect()
        self._is_held = False
        self._forward(frame)
        self._go_on()

    # Answers
    # ----------------------------------------------------------------------------------------------

    def _pass_response(self) -> bool:
        data = self._responses
        if self._passing_response:
            part, self._responses = data[: self._passing_response], data[self._passing_response :]
            self._passing_response -= len(part)
            self._actions.to_client(part)
            if not self._passing_response and self._answering is not None:
                self._unanswered.pop(self._answering, None)
            return True
        if len(data) < RESPONSE_HEAD.size:
            return False
        size, correlation_id = RESPONSE_HEAD.unpack_from(data)
        whole = SIZE_BYTES + size
        if self._awaited is None or self._awaited.correlation_id != correlation_id:
            self._passing_response, self._answering = whole, correlation_id
            return True
        if len(data) < whole:
            return False
        self._responses = data[whole:]
        self._unanswered.pop(correlation_id, None)
        self._on_awaited(self._awaited, data[:whole])
        return True

    def _on_awaited(self, awaited: _Awaited, frame: bytes) -> None:
        self._awaited = None
        fault = awaited.decided.fault
        take_effect = partial(self._on_effect, awaited.decided.number, fault, awaited.request)
        if fault.action is RequestAction.DELAY:
            self._actions.later(fault.delay_ms, lambda: self._answer_late(frame, take_effect))
            return
        take_effect()
        self._is_silent = True
        if fault.action is RequestAction.DISCONNECT:
            self._actions.reset()

    def _answer_late(self, frame: bytes, take_effect: Callable[[], None]) -> None:
        take_effect()
        self._actions.to_client(frame)
        self._is_held = False
        self._go_on()


def acks_of(frame: bytes, version: int) -> int | None:
    """Return `acks` of a Produce, of which only the beginning may be there; None if it is
    malformed.
    """
    try:
        position = REQUEST_HEAD.size + max(0, REQUEST_HEAD.unpack_from(frame)[4])
        if version >= FIRST_FLEXIBLE_PRODUCE:
            position += 1  # no client sends tagged fields in this header
            size, position = _varint(frame, position)
            position += max(0, size - 1)
        elif version >= FIRST_WITH_TRANSACTIONAL_ID:
            (size,) = struct.unpack_from(">h", frame, position)
            position += 2 + max(0, size)
        (acks,) = struct.unpack_from(">h", frame, position)
    except (struct.error, IndexError):
        return None
    return int(acks)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
