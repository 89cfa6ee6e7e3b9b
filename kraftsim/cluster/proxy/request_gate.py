"""Faults of requests in the proxy: one connection as frames in both directions, without I/O.

Requests of APIs that no fault is about pass as bytes arrive; others are kept until they are whole,
because only the body says what they are about. A server answers the requests of a connection in
order, and so does the gate: before it acts on a request it waits for the answers to all earlier
ones, and what is behind it waits meanwhile. Requests that are not answered (Produce with acks=0) do
not count. A connection in a black hole carries nothing; what it holds passes when the fault ends.

In an embedded cluster a node carries out the same rules (`kraftsim.cluster.request_tap`).
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kraftsim.lab.faults.rules_request_faults import (
    Decided,
    RequestAction,
    RequestFault,
    RequestHit,
    RequestRules,
    SeenRequest,
    sender_of,
)
from kraftsim.lab.faults.rules_request_subjects import THROTTLE_TIME
from protocol.api_keys import ApiKey
from protocol.malformed import MalformedMessage
from protocol.messages.k00_produce import ACKS_NONE
from protocol.requests import (
    UnsupportedApi,
    decode_request,
    decode_response,
    read_request_head,
    response_chunks,
)
from protocol.schema import Message

REQUEST_HEAD: Final = struct.Struct(">ihhih")
"""Size, API key, version, correlation id, size of the client id."""
RESPONSE_HEAD: Final = struct.Struct(">ii")
SIZE_BYTES: Final = 4
FRAME_BYTES_MAX: Final = 1 << 28
"""No frame is larger, and the first bytes of a TLS record, read as a size, are."""
KNOWN_APIS: Final = frozenset(int(key) for key in ApiKey)
NO_REQUEST: Final = -1
PRODUCE_HEAD_BYTES: Final = 70_000
"""So many bytes of a Produce have its `acks`, whatever its client id and transactional id."""
FIRST_WITH_TRANSACTIONAL_ID, FIRST_FLEXIBLE_PRODUCE = 3, 9
OnEffect = Callable[[int, RequestFault, SeenRequest], None]
Effect = Callable[[], None]
"""Counts and reports that a fault has taken effect."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class UnderWay:
    """Where a connection is when its gate comes: the requests that wait for their answers, from
    correlation id to API key; the missing bytes of the request and of the response that have
    begun; the last request (API key and version) and its client id.
    """

    unanswered: Mapping[int, int] = field(default_factory=dict)
    request_left: int = 0
    response_left: int = 0
    last: tuple[int, int] | None = None
    client_id: str | None = None


class RequestGate:
    """The faults of requests of one connection to a node. `source` is the node that has opened it;
    empty for another client. `topic_name` returns the name of a topic id, where that is known.

    A connection that is `under_way` already goes on from there.
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
        topic_name: Callable[[bytes], str | None] | None = None,
        under_way: "UnderWay | None" = None,
    ) -> None:
        begun = under_way or UnderWay()
        self._node = node
        self._source = source
        self._client_ids = client_ids
        self._rules = rules
        self._actions = actions
        self._on_effect = on_effect
        self._topic_name = topic_name
        self._requests = b""
        self._passing_request = begun.request_left
        """Bytes of the current request that pass as they arrive."""
        self._unanswered: dict[int, int] = dict(begun.unanswered)
        """Correlation id -> API key."""
        self._ready: tuple[Decided, bytes, SeenRequest] | None = None
        """A request that waits for earlier answers."""
        self._is_held = False
        self._is_silent = False
        self._is_opaque = False
        """Whether the bytes are no frames, such as those of TLS: then all of them pass."""
        self._awaited: _Awaited | None = None
        self._responses = b""
        self._passing_response = begun.response_left
        self._answering: int | None = None
        self._api_key, self._api_version = begun.last or (NO_REQUEST, NO_REQUEST)
        """Those of the last request, if there was one; it says who the client is."""
        self._name = b"" if begun.client_id is None else begun.client_id.encode()
        self._client_id = begun.client_id
        self._sender = source or sender_of(begun.client_id, client_ids)
        self._black_hole: int | None = None
        """The fault that lets the connection carry nothing now."""
        self._kept_for_node = self._kept_for_client = b""
        """What would have passed since then."""
        self._kept_ends: list[Callable[[], None]] = []
        self._forget_wait: Callable[[], None] = _nothing
        self._forget_black_hole: Callable[[], None] = _nothing
        """These take back what the rules would call."""

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing and waits for nothing: bytes could pass without it."""
        return not (
            self._requests
            or self._responses
            or self._ready is not None
            or self._awaited is not None
            or self._is_held
            or self._is_silent
            or self._black_hole is not None
        )

    def feed_request(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self._is_opaque:
            self._actions.to_node(data)
            return
        self._requests += data
        self._go_on()

    def feed_response(self, data: bytes) -> None:
        """Take bytes of the node."""
        if self._is_silent:
            return
        if self._is_opaque:
            self._actions.to_client(data)
            return
        self._responses += data
        self._pass_responses()
        if self._ready is not None:
            self._act()
        if self._requests:
            self._go_on()

    def keeps_end(self, end: Callable[[], None]) -> bool:
        """Return whether the end of one side is not to be seen by the other now; then it is called
        when it is.
        """
        if self._black_hole is None:
            return False
        self._kept_ends.append(end)
        return True

    def close(self) -> None:
        """The connection is gone."""
        self._is_silent = True
        self._forget_wait()
        self._forget_black_hole()

    # Requests
    # ----------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        while (
            self._requests
            and not self._is_held
            and not self._is_silent
            and self._ready is None
            and (not self._rules.has_black_holes or not self._is_in_black_hole())
            and self._pass_request()
        ):
            if self._ready is not None:
                self._act()

    def _pass_request(self) -> bool:
        """Pass a part of the bytes, or decide about a request; False while more must arrive."""
        data = self._requests
        if self._passing_request:
            self._pass_some(self._passing_request)
            return True
        if len(data) < REQUEST_HEAD.size:
            return False
        size, api_key, version, correlation_id, name_bytes = REQUEST_HEAD.unpack_from(data)
        if not 0 <= size <= FRAME_BYTES_MAX:
            self._is_opaque = True
            requests, self._requests = self._requests, b""
            responses, self._responses = self._responses, b""
            self._to_node(requests)
            self._to_client(responses)
            return True
        whole, head_bytes = SIZE_BYTES + size, REQUEST_HEAD.size + max(0, name_bytes)
        if api_key not in KNOWN_APIS:  # a raw token of SASL
            self._pass_some(whole)
            return True
        if len(data) < min(whole, PRODUCE_HEAD_BYTES if api_key == ApiKey.PRODUCE else head_bytes):
            return False
        self._api_key, self._api_version = api_key, version
        name = data[REQUEST_HEAD.size : head_bytes]
        if name != self._name:
            self._name = name
            self._client_id = None if name_bytes < 0 else name.decode(errors="replace")
            self._sender = self._source or sender_of(self._client_id, self._client_ids)
        if self._rules.has_black_holes and self._is_in_black_hole():
            return False
        if not self._rules.may_concern(api_key):
            if api_key != ApiKey.PRODUCE or acks_of(data, version) != ACKS_NONE:
                self._unanswered[correlation_id] = api_key
            self._pass_some(whole)
            return True
        if len(data) < whole:
            return False
        frame, self._requests = data[:whole], data[whole:]
        self._decide(frame)
        return True

    def _pass_some(self, size: int) -> None:
        """Pass so many bytes of a request, or as many of them as have arrived."""
        data = self._requests
        if len(data) <= size:
            part, self._requests = data, b""
        else:
            part, self._requests = data[:size], data[size:]
        self._passing_request = size - len(part)
        self._to_node(part)
        if self._rules.has_waiting and not self._passing_request:
            self._on_passed()

    def _decide(self, frame: bytes) -> None:
        try:
            head = read_request_head(frame[SIZE_BYTES:])
        except (UnsupportedApi, ValueError):
            self._to_node(frame)
            return
        body = partial(decode_request, head, frame[SIZE_BYTES:])
        request = self._request(head.api_key, head.api_version, body)
        decided = self._rules.decide(request, self._actions.now_ms())
        if decided is None:
            self._forward(frame)
        elif decided.fault.action is RequestAction.BLACKHOLE:
            self._enter_black_hole(decided.number, request)
            self._forward(frame)
        else:
            self._ready = decided, frame, request

    def _request(self, api_key: int, version: int, body: Callable[[], Message]) -> SeenRequest:
        return SeenRequest(
            node=self._node,
            sender=self._sender,
            api_key=api_key,
            api_version=version,
            client_id=self._client_id,
            body=body,
            topic_name=self._topic_name,
        )

    def _forward(self, frame: bytes) -> None:
        _, api_key, version, correlation_id, _ = REQUEST_HEAD.unpack_from(frame)
        if api_key != ApiKey.PRODUCE or acks_of(frame, version) != ACKS_NONE:
            self._unanswered[correlation_id] = api_key
        self._to_node(frame)
        self._on_passed()

    def _act(self) -> None:
        """Carry out the fault of a request, once all earlier requests are answered."""
        if (
            self._ready is None
            or self._unanswered
            or self._is_silent
            or self._black_hole is not None
        ):
            return
        (decided, frame, request), self._ready = self._ready, None
        _, _, _, correlation_id, _ = REQUEST_HEAD.unpack_from(frame)
        if decided.fault.done or decided.fault.throttle_ms:
            self._awaited = _Awaited(correlation_id, decided, request)
            self._is_held = True
            self._forward(frame)
        else:
            self._act_on_request(decided, frame, request, correlation_id)

    def _act_on_request(
        self, decided: Decided, frame: bytes, request: SeenRequest, correlation_id: int
    ) -> None:
        fault = decided.fault
        take_effect = partial(self._take_effect, decided.number, request)
        match fault.action:
            case RequestAction.ERROR:
                assert decided.answer is not None, "a request without an answer does not match"
                take_effect()
                self._to_client(_reply_of(request, correlation_id, decided.answer))
            case RequestAction.DROP:
                take_effect()
                self._is_silent = True
            case RequestAction.DELAY:
                self._hold_request(fault.delay_ms, frame, take_effect)
            case RequestAction.THROTTLE:
                self._hold_request(len(frame) * 1000 / fault.bytes_per_second, frame, take_effect)
            case RequestAction.REORDER:
                self._is_held = True
                self._wait_for_others(
                    decided, request, lambda effect: self._release(frame, effect), take_effect
                )
            case RequestAction.DUPLICATE:
                self._forward(frame)
                self._actions.copy(frame, fault.delay_ms, take_effect)
            case RequestAction.TRUNCATE:
                left = _truncated(frame, fault)
                if left is not None:
                    take_effect()
                    self._unanswered[correlation_id] = request.api_key
                    self._to_node(left)
                else:
                    self._forward(frame)
            case RequestAction.DISCONNECT:
                take_effect()
                self._is_silent = True
                if fault.after_bytes is None:
                    self._actions.reset()
                else:
                    self._to_node(frame[: fault.after_bytes])
                    self._actions.end_requests()
            case RequestAction.BLACKHOLE:
                raise AssertionError("decided at once")

    def _hold_request(self, delay_ms: float, frame: bytes, take_effect: Effect) -> None:
        self._is_held = True
        self._actions.later(delay_ms, lambda: self._release(frame, take_effect))

    def _release(self, frame: bytes, take_effect: Effect) -> None:
        if self._is_silent:
            return
        take_effect()
        self._is_held = False
        self._forward(frame)
        self._go_on()

    # Answers
    # ----------------------------------------------------------------------------------------------

    def _pass_responses(self) -> None:
        while (
            self._responses
            and not self._is_silent
            and (not self._rules.has_black_holes or not self._is_in_black_hole())
            and self._pass_response()
        ):
            pass

    def _pass_response(self) -> bool:
        data = self._responses
        if self._passing_response:
            self._pass_some_of_response(self._passing_response)
            return True
        if len(data) < RESPONSE_HEAD.size:
            return False
        size, correlation_id = RESPONSE_HEAD.unpack_from(data)
        whole = SIZE_BYTES + size
        if self._awaited is None or self._awaited.correlation_id != correlation_id:
            self._answering = correlation_id
            self._pass_some_of_response(whole)
            return True
        if len(data) < whole:
            return False
        self._responses = data[whole:]
        self._unanswered.pop(correlation_id, None)
        self._on_awaited(self._awaited, data[:whole])
        return True

    def _pass_some_of_response(self, size: int) -> None:
        data = self._responses
        if len(data) <= size:
            part, self._responses = data, b""
        else:
            part, self._responses = data[:size], data[size:]
        self._passing_response = size - len(part)
        self._to_client(part)
        if not self._passing_response and self._answering is not None:
            api_key = self._unanswered.pop(self._answering, None)
            if api_key is not None and self._rules.has_waiting:
                self._passes(api_key, is_reply=True)

    def _on_awaited(self, awaited: _Awaited, frame: bytes) -> None:
        self._awaited = None
        fault, request = awaited.decided.fault, awaited.request
        take_effect = partial(self._take_effect, awaited.decided.number, request)
        match fault.action:
            case RequestAction.ERROR:
                take_effect()
                self._answer(_refused(awaited, frame), request)
            case RequestAction.DELAY:
                self._hold_reply(fault.delay_ms, frame, request, take_effect)
            case RequestAction.THROTTLE if fault.bytes_per_second:
                delay_ms = len(frame) * 1000 / fault.bytes_per_second
                self._hold_reply(delay_ms, frame, request, take_effect)
            case RequestAction.THROTTLE:
                changed = _with_throttle_time(request, frame, fault.throttle_ms)
                if changed is None:
                    self._answer(frame, request)
                    return
                take_effect()
                self._to_client(changed)
                self._passes(request.api_key, is_reply=True)
                self._actions.later(fault.throttle_ms, self._unmute)
            case RequestAction.REORDER:
                self._wait_for_others(
                    awaited.decided,
                    request,
                    lambda effect: self._answer_late(frame, request, effect),
                    take_effect,
                )
            case RequestAction.TRUNCATE:
                left = _truncated(frame, fault)
                if left is not None:
                    take_effect()
                self._answer(frame if left is None else left, request)
            case RequestAction.DISCONNECT if fault.after_bytes is not None:
                take_effect()
                self._is_silent = True
                self._to_client(frame[: fault.after_bytes])
                self._actions.end_responses()
            case RequestAction.DISCONNECT:
                take_effect()
                self._is_silent = True
                self._actions.reset()
            case _:  # dropped
                take_effect()
                self._is_silent = True

    def _hold_reply(
        self, delay_ms: float, frame: bytes, request: SeenRequest, take_effect: Effect
    ) -> None:
        self._actions.later(delay_ms, lambda: self._answer_late(frame, request, take_effect))

    def _answer_late(self, frame: bytes, request: SeenRequest, take_effect: Effect) -> None:
        if self._is_silent:
            return
        take_effect()
        self._answer(frame, request)
        self._go_on()

    def _answer(self, frame: bytes, request: SeenRequest) -> None:
        self._is_held = False
        self._to_client(frame)
        self._passes(request.api_key, is_reply=True)

    def _unmute(self) -> None:
        self._is_held = False
        self._go_on()

    # Order
    # ----------------------------------------------------------------------------------------------

    def _wait_for_others(
        self,
        decided: Decided,
        request: SeenRequest,
        go_on: Callable[[Effect], None],
        take_effect: Effect,
    ) -> None:
        """Go on when others have passed, when it has waited for long enough, or when the fault
        ends; only the first is an effect.
        """
        is_due = False

        def due(is_overtaken: bool) -> None:
            nonlocal is_due
            if not is_due:
                is_due = True
                self._forget_wait()
                self._forget_wait = _nothing
                go_on(take_effect if is_overtaken else _nothing)

        self._forget_wait = self._rules.wait_for_others(decided.number, request, self, due)
        if decided.fault.wait_ms:
            self._actions.later(decided.fault.wait_ms, lambda: due(False))

    def _on_passed(self) -> None:
        """A request was handed to the node."""
        if self._api_key != NO_REQUEST:
            self._passes(self._api_key, is_reply=False)

    def _passes(self, api_key: int, *, is_reply: bool) -> None:
        if self._rules.has_waiting:
            self._rules.passed(self._node, self._sender, api_key, self, is_reply=is_reply)

    # Black holes
    # ----------------------------------------------------------------------------------------------

    def _is_in_black_hole(self) -> bool:
        """Return whether the connection carries nothing; called when there is something."""
        if self._black_hole is None and self._rules.has_black_holes and self._api_key != NO_REQUEST:
            number = self._rules.black_hole_of(
                self._node, self._sender, self._client_id, self._actions.now_ms()
            )
            if number is not None:
                self._enter_black_hole(
                    number, self._request(self._api_key, self._api_version, _not_kept)
                )
        return self._black_hole is not None

    def _enter_black_hole(self, number: int, request: SeenRequest) -> None:
        self._black_hole = number
        self._take_effect(number, request)
        self._forget_black_hole = self._rules.when_over(number, self._leave_black_hole)

    def _leave_black_hole(self) -> None:
        self._black_hole = None
        self._forget_black_hole = _nothing
        for_client, self._kept_for_client = self._kept_for_client, b""
        for_node, self._kept_for_node = self._kept_for_node, b""
        if self._is_silent:
            return
        if for_client:
            self._to_client(for_client)
        if for_node:
            self._to_node(for_node)
        self._pass_responses()
        self._act()
        self._go_on()
        ends, self._kept_ends = self._kept_ends, []
        for end in ends:
            if not self.keeps_end(end):
                end()

    def _to_node(self, data: bytes) -> None:
        if self._black_hole is None:
            self._actions.to_node(data)
        else:
            self._kept_for_node += data

    def _to_client(self, data: bytes) -> None:
        if self._black_hole is None:
            self._actions.to_client(data)
        else:
            self._kept_for_client += data

    def _take_effect(self, number: int, request: SeenRequest) -> None:
        self._rules.took_effect(number, RequestHit.of(request))
        fault = self._rules.fault_of(number)
        if fault is not None:
            self._on_effect(number, fault, request)


def _nothing() -> None:
    """Take nothing back, and have no effect."""


def _not_kept() -> Message:
    raise MalformedMessage(None, None, "", "the body of a request that was served is not kept")


def _reply_of(request: SeenRequest, correlation_id: int, answer: Message) -> bytes:
    return b"".join(response_chunks(request.api_key, request.api_version, correlation_id, answer))


def _refused(awaited: _Awaited, frame: bytes) -> bytes:
    """Return the error response to a request that the node has served."""
    # As in the rules: a proxy without such a fault does not import construct.
    from kraftsim.lab.faults.rules_error_responses import says_more, with_error

    request, refused = awaited.request, awaited.decided.answer
    assert refused is not None, "a request without an answer does not match"
    if says_more(request.api_key):
        served = decode_response(request.api_key, request.api_version, frame[SIZE_BYTES:])[1]
        refused = with_error(request.api_key, served, refused)
    return _reply_of(request, awaited.correlation_id, refused)


def _truncated(frame: bytes, fault: RequestFault) -> bytes | None:
    """Return the beginning of a frame as a frame; None if it is not longer than that."""
    left_bytes = fault.after_bytes or 0
    if len(frame) <= left_bytes:
        return None
    return (left_bytes - SIZE_BYTES).to_bytes(SIZE_BYTES) + frame[SIZE_BYTES:left_bytes]


def _with_throttle_time(request: SeenRequest, frame: bytes, throttle_ms: int) -> bytes | None:
    """Return an answer with another throttle time; None for one that does not follow its version,
    such as that of ApiVersions in a version that the node does not know.
    """
    try:
        correlation_id, answer = decode_response(
            request.api_key, request.api_version, frame[SIZE_BYTES:]
        )
    except ValueError:
        return None
    if _reply_of(request, correlation_id, answer) != frame:
        return None
    setattr(answer, THROTTLE_TIME, max(throttle_ms, getattr(answer, THROTTLE_TIME)))
    return _reply_of(request, correlation_id, answer)


def acks_of(frame: bytes, version: int) -> int | None:
    """Return `acks` of a Produce, of which only the beginning may be there; None if it is
    malformed.
    """
    end = acks_end(frame, version)
    return None if end is None else int.from_bytes(frame[end - 2 : end], signed=True)


def acks_end(frame: bytes, version: int) -> int | None:
    """Return the position behind `acks`; None if it is malformed."""
    try:
        position = REQUEST_HEAD.size + max(0, REQUEST_HEAD.unpack_from(frame)[4])
        if version >= FIRST_FLEXIBLE_PRODUCE:
            position += 1  # no client sends tagged fields in this header
            size, position = _varint(frame, position)
            position += max(0, size - 1)
        elif version >= FIRST_WITH_TRANSACTIONAL_ID:
            (size,) = struct.unpack_from(">h", frame, position)
            position += 2 + max(0, size)
    except (struct.error, IndexError):
        return None
    return position + 2 if position + 2 <= len(frame) else None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
