"""Faults of requests inside nodes: what stands between the connections of a node of an embedded or
simulated cluster and its dispatcher.

Nothing stands there before the first fault is added. It sees requests behind TLS and SASL, and
while no fault waits it costs one call for each read of a connection. The order of answers needs no
care: a connection serves one request at a time, so a request that is never answered silences its
connection by itself.

In a cluster of processes the proxy carries out the same rules
(`kraftsim.cluster.proxy.request_gate`).
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from kraftsim.cluster.spec import ClusterSpec
from kraftsim.lab.faults.rules_request_faults import (
    SIZE_FIELD_BYTES,
    Decided,
    RequestAction,
    RequestFault,
    RequestFaultStatus,
    RequestHit,
    RequestRules,
    SeenRequest,
    client_ids_of_node,
    sender_of,
)
from kraftsim.lab.faults.rules_request_subjects import THROTTLE_TIME
from kraftsim.server.broker import Broker
from kraftsim.server.call import (
    NO_ANSWER,
    Answer,
    Call,
    Closing,
    Deferred,
    Encoded,
    Failed,
    NoAnswer,
    completed_by,
)
from kraftsim.server.combined import broker_of, controller_of
from kraftsim.server.controller import Controller
from kraftsim.server.dispatch import FRAME_BYTES_MIN, FRAME_START
from kraftsim.server.file_sender import read_slices
from kraftsim.server.frame_server import FrameServer, ServedConnection
from kraftsim.server.inbox import Buffer
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.requests import (
    RequestHead,
    UnsupportedApi,
    decode_request,
    decode_response,
    response_chunks,
)
from protocol.schema import Message

CORRELATION_ID_BYTES: Final = 4
FAULT_ENDS_CONNECTION: Final = "a fault ends the connection"
OnEffect = Callable[[int, RequestFault, SeenRequest], None]
"""Is called when a fault has taken effect: with its number, itself, and the request."""
OnHit = Callable[[RequestHit], None]
Soon = Callable[[Callable[[], None]], object]
"""Runs something as code of a node, in its next turn."""


class Later(Protocol):
    """Runs something so many ms later, as code of no node."""

    def __call__(self, delay_ms: float, work: Callable[[], object], /) -> object:
        """Run it then."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TapContext:
    """What a tap needs of its node: its name, the rules and client ids of nodes of its cluster, the
    clock of the rules, and what is called with each effect.
    """

    node: str
    rules: RequestRules
    client_ids: Mapping[str, str]
    now_ms: Callable[[], float]
    soon: Soon
    later: Later
    on_effect: OnEffect


class RequestTap:
    """The faults of requests of one node; `of` is the part whose connections it serves."""

    def __init__(self, server: FrameServer, of: Broker | Controller, context: TapContext) -> None:
        self._server = server
        self._serve_run = server.serve_run
        self._of = of
        self._context = context
        self._rules = context.rules

    def serve_run(
        self, connection: ServedConnection, buffer: Buffer, position: int, end: int
    ) -> int:
        """Pass on; but leave a frame to `serve` if a fault may be about its API."""
        watched = self._rules.watched_apis
        if watched is None:
            return position
        if not watched:
            return self._serve_run(connection, buffer, position, end)
        while end - position >= FRAME_BYTES_MIN:
            size, key_and_version, _ = FRAME_START(buffer, position)
            frame_end = position + SIZE_FIELD_BYTES + size
            if frame_end > end or key_and_version >> 16 in watched:
                break
            served_to = self._serve_run(connection, buffer, position, frame_end)
            if served_to == position:
                break
            position, watched = served_to, self._rules.watched_apis
            if (
                watched is None
                or position == end
                or not connection.is_ready
                or connection.ends_turn()
            ):
                break
        return position

    def read_head(self, frame: bytes) -> RequestHead:
        """Parse a request header. Raises MalformedMessage or UnsupportedApi."""
        return self._server.read_head(frame)

    def refuse(
        self, head: RequestHead, frame: bytes, connection: ServedConnection, error: ErrorCode
    ) -> Answer:
        """Return the error response of an API. Raises MalformedMessage."""
        return self._server.refuse(head, frame, connection, error)

    def refuse_call(self, call: Call, error: ErrorCode) -> Answer:
        """The same for a decoded request."""
        return self._server.refuse_call(call, error)

    def serve(
        self, head: RequestHead, frame: bytes, connection: ServedConnection
    ) -> Answer | Deferred:
        """Serve a request, unless it gets a fault. Raises MalformedMessage or UnsupportedApi."""
        rules = self._rules
        if rules.is_empty:
            next_number = rules.next_number
            answer = self._server.serve(head, frame, connection)
            if rules.next_number == next_number:
                return answer
            served = self._served(head, frame, connection, is_answered=True)
            return served.late(answer, next_number)
        served = self._served(head, frame, connection)
        hole = self._black_hole_of(served.request)
        if hole is not None:
            return served.held_by(hole)
        decided = rules.decide(served.request, self._context.now_ms())
        if decided is not None:
            return served.under(decided)
        next_number = rules.next_number
        answer = served.plainly()
        return answer if rules.next_number == next_number else served.late(answer, next_number)

    def _served(
        self,
        head: RequestHead,
        frame: bytes,
        connection: ServedConnection,
        *,
        is_answered: bool = False,
    ) -> "_Served":
        context = self._context
        request = SeenRequest(
            node=context.node,
            sender=sender_of(head.client_id, context.client_ids),
            api_key=head.api_key,
            api_version=head.api_version,
            client_id=head.client_id,
            body=partial(decode_request, head, frame),
            topic_name=self._topic_name,
            is_answered=is_answered and head.api_key != ApiKey.PRODUCE,
        )
        return _Served(self, head, frame, connection, request)

    def meet_replies(self, number: int) -> None:
        """A fault of replies has come that is about requests in progress, too: answers that are
        deferred now meet it.
        """
        for connection in self._of.connections():
            unwritten = connection.unwritten
            if unwritten is None:
                continue
            asked, frame = unwritten
            body = _not_kept
            if isinstance(asked, Call):
                body = partial(_same, asked.body)
            elif frame is not None:
                body = partial(decode_request, asked, frame)
            request = SeenRequest(
                node=self._context.node,
                sender=sender_of(asked.client_id, self._context.client_ids),
                api_key=asked.api_key,
                api_version=asked.api_version,
                client_id=asked.client_id,
                body=body,
                topic_name=self._topic_name,
                is_answered=True,
            )
            decided = self._rules.decide(request, self._context.now_ms(), since=number)
            if decided is not None:
                head = RequestHead(
                    asked.api_key, asked.api_version, asked.correlation_id, asked.client_id, 0
                )
                served = _Served(self, head, b"", connection, request)
                connection.divert(partial(served.met_by, decided))

    def hold_replies(self, number: int) -> None:
        """A black hole has opened: answers that are deferred now are held by it, too."""
        for connection in self._of.connections():
            asked = connection.deferred
            if asked is None:
                continue
            request = SeenRequest(
                node=self._context.node,
                sender=sender_of(asked.client_id, self._context.client_ids),
                api_key=asked.api_key,
                api_version=asked.api_version,
                client_id=asked.client_id,
                body=_not_kept,
            )
            if self._black_hole_of(request) == number:
                connection.divert(partial(self.reply_held_by, number, request))

    def reply_held_by(self, number: int, request: SeenRequest, answer: Deferred) -> Deferred:
        """Return an answer that comes when the black hole ends."""
        later = Deferred()

        def on_answer(answer: Answer) -> None:
            self.take_effect(number, request)
            forget = self._rules.when_over(
                number, lambda: self._context.soon(lambda: later.complete(answer))
            )
            later.when_abandoned(forget)

        later.when_abandoned(answer.abandon)
        _when_answered(answer, on_answer)
        return later

    def take_effect(self, number: int, request: SeenRequest) -> None:
        """Count and report that a fault has taken effect."""
        self._rules.took_effect(number, RequestHit.of(request))
        fault = self._rules.fault_of(number)
        if fault is not None:
            self._context.on_effect(number, fault, request)

    @property
    def context(self) -> TapContext:
        """What it needs of its node."""
        return self._context

    @property
    def server(self) -> FrameServer:
        """What serves the requests that pass."""
        return self._server

    def _black_hole_of(self, request: SeenRequest) -> int | None:
        if not self._rules.has_black_holes:
            return None
        return self._rules.black_hole_of(
            request.node, request.sender, request.client_id, self._context.now_ms()
        )

    def _topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, as the node knows it; a controller is asked for no ids."""
        topic = self._of.image.topic_by_id(topic_id) if isinstance(self._of, Broker) else None
        return None if topic is None else topic.name


class _Served:
    """One request and what becomes of it."""

    def __init__(
        self,
        tap: RequestTap,
        head: RequestHead,
        frame: bytes,
        connection: ServedConnection,
        request: SeenRequest,
    ) -> None:
        self._tap = tap
        self._context = tap.context
        self._rules = tap.context.rules
        self._head = head
        self._frame = frame
        self._connection = connection
        self._request = request

    @property
    def request(self) -> SeenRequest:
        """The request."""
        return self._request

    def late(self, answer: Answer | Deferred, since: int) -> Answer | Deferred:
        """Let a fault that came while the request was served meet its answer."""
        decided = self._rules.decide(self._request, self._context.now_ms(), since=since)
        return answer if decided is None else self._met(decided, answer)

    def met_by(self, decided: Decided, answer: Deferred) -> Deferred:
        """Let a fault meet an answer that is deferred."""
        later = self._met(decided, answer)
        assert isinstance(later, Deferred), "it waits for the answer"
        return later

    def _met(self, decided: Decided, answer: Answer | Deferred) -> Answer | Deferred:
        return self._on_answer(
            decided, answer, partial(self._tap.take_effect, decided.number, self._request)
        )

    def plainly(self) -> Answer | Deferred:
        """Serve it without a fault; it may overtake others."""
        answer = self._tap.server.serve(self._head, self._frame, self._connection)
        if not self._rules.has_waiting:
            return answer
        self._passes(is_reply=False)
        if not isinstance(answer, Deferred):
            self._passes(is_reply=True)
            return answer
        later = Deferred()

        def on_answer(answer: Answer) -> None:
            later.complete(answer)
            self._passes(is_reply=True)

        later.when_abandoned(answer.abandon)
        _when_answered(answer, on_answer)
        return later

    def held_by(self, black_hole: int) -> Deferred:
        """Serve it when the black hole ends."""
        later = Deferred()
        self._tap.take_effect(black_hole, self._request)
        forget = self._rules.when_over(
            black_hole, lambda: self._context.soon(lambda: self._serve_late(later))
        )
        later.when_abandoned(forget)
        return later

    def under(self, decided: Decided) -> Answer | Deferred:
        """Carry out a fault."""
        fault = decided.fault
        take_effect = partial(self._tap.take_effect, decided.number, self._request)
        if fault.action is RequestAction.BLACKHOLE:
            return self.held_by(decided.number)
        if fault.done or fault.throttle_ms:
            return self._on_answer(decided, self.plainly(), take_effect)
        return self._on_request(decided, take_effect)

    # Before it is served
    # ----------------------------------------------------------------------------------------------

    def _on_request(self, decided: Decided, take_effect: Callable[[], None]) -> Answer | Deferred:
        fault = decided.fault
        match fault.action:
            case RequestAction.ERROR:
                assert decided.answer is not None, "a request without an answer does not match"
                take_effect()
                return decided.answer
            case RequestAction.DUPLICATE:
                answer = self.plainly()
                self._later(fault.delay_ms, lambda: self._serve_copy(take_effect))
                return answer
            case RequestAction.DISCONNECT:
                return self._end(fault, take_effect)
            case RequestAction.TRUNCATE:
                return self._truncated(fault, take_effect)
            case RequestAction.DELAY:
                return self._delayed(fault.delay_ms, take_effect)
            case RequestAction.THROTTLE:
                size_bytes = SIZE_FIELD_BYTES + len(self._frame)
                return self._delayed(size_bytes * 1000 / fault.bytes_per_second, take_effect)
            case RequestAction.REORDER:
                later = Deferred()
                self._wait_for_others(decided, later, take_effect, lambda: self._serve_late(later))
                return later
            case _:  # dropped
                take_effect()
                return Deferred()

    def _delayed(self, delay_ms: float, take_effect: Callable[[], None]) -> Deferred:
        later = Deferred()

        def serve() -> None:
            if not later.is_abandoned:  # else its client has gone, and the bytes never arrived
                take_effect()
                self._serve_late(later)

        self._later(delay_ms, serve)
        return later

    def _end(self, fault: RequestFault, take_effect: Callable[[], None]) -> Answer | Deferred:
        """End the connection; a request whose last byte has arrived before that is served."""
        take_effect()
        if (fault.after_bytes or 0) >= SIZE_FIELD_BYTES + len(self._frame):
            _served(self.plainly)
        return self._close(FAULT_ENDS_CONNECTION)

    def _truncated(self, fault: RequestFault, take_effect: Callable[[], None]) -> Answer | Deferred:
        left_bytes = (fault.after_bytes or 0) - SIZE_FIELD_BYTES
        if len(self._frame) <= left_bytes:
            return self.plainly()
        take_effect()
        frame = self._frame[:left_bytes]
        server = self._tap.server
        try:
            return server.serve(server.read_head(frame), frame, self._connection)
        except (MalformedMessage, UnsupportedApi) as unreadable:
            return self._close(f"a fault truncated a request: {unreadable}")

    def _close(self, reason: str) -> Answer:
        """Close the connection; it is not the node that refuses the request."""
        self._connection.close(reason)
        return NO_ANSWER

    def _serve_late(self, later: Deferred) -> None:
        if not later.is_abandoned:
            completed_by(_served(self.plainly), later)

    def _serve_copy(self, take_effect: Callable[[], None]) -> None:
        _when_answered(_served(self.plainly), lambda answer: take_effect())

    # After it was served
    # ----------------------------------------------------------------------------------------------

    def _on_answer(
        self, decided: Decided, answer: Answer | Deferred, take_effect: Callable[[], None]
    ) -> Answer | Deferred:
        """Let the fault meet the answer when it is there."""
        later = Deferred()

        def on_answer(answer: Answer) -> None:
            if isinstance(answer, NoAnswer | Closing | Failed):
                later.complete(answer)
            else:
                self._meet(decided, answer, later, take_effect)

        if isinstance(answer, Deferred):
            later.when_abandoned(answer.abandon)
        _when_answered(answer, on_answer)
        return later

    def _meet(
        self,
        decided: Decided,
        answer: Message | Encoded,
        later: Deferred,
        take_effect: Callable[[], None],
    ) -> None:
        fault = decided.fault

        def complete() -> None:
            take_effect()
            later.complete(answer)

        match fault.action:
            case RequestAction.ERROR:
                assert decided.answer is not None, "a request without an answer does not match"
                take_effect()
                later.complete(self._refused(answer, decided.answer))
            case RequestAction.DELAY:
                self._later(fault.delay_ms, complete)
            case RequestAction.REORDER:
                self._wait_for_others(decided, later, take_effect, lambda: later.complete(answer))
            case RequestAction.THROTTLE if fault.throttle_ms:
                take_effect()
                self._mute(fault.throttle_ms)
                later.complete(self._with_throttle_time(answer, fault.throttle_ms))
            case RequestAction.THROTTLE:
                delay_ms = len(self._bytes_of(answer)) * 1000 / fault.bytes_per_second
                self._later(delay_ms, complete)
            case RequestAction.TRUNCATE:
                frame = self._bytes_of(answer)
                if len(frame) <= (fault.after_bytes or 0):
                    later.complete(answer)
                    return
                take_effect()
                head_bytes = SIZE_FIELD_BYTES + CORRELATION_ID_BYTES
                later.complete(Encoded(frame[head_bytes : fault.after_bytes]))
            case RequestAction.DISCONNECT:
                take_effect()
                if fault.after_bytes:
                    self._connection.out.append(self._bytes_of(answer)[: fault.after_bytes])
                later.complete(self._close(FAULT_ENDS_CONNECTION))
            case _:  # dropped: `later` is never completed
                take_effect()

    def _with_throttle_time(self, answer: Message | Encoded, throttle_ms: int) -> Message:
        changed = copy(self._decoded(answer))
        setattr(changed, THROTTLE_TIME, max(throttle_ms, getattr(changed, THROTTLE_TIME)))
        return changed

    def _refused(self, answer: Message | Encoded, refused: Message) -> Message:
        """Return the error response to a request that was served."""
        # As in the rules: a cluster without such a fault does not import construct.
        from kraftsim.lab.faults.rules_error_responses import says_more, with_error

        api_key = self._head.api_key
        return (
            with_error(api_key, self._decoded(answer), refused) if says_more(api_key) else refused
        )

    def _decoded(self, answer: Message | Encoded) -> Message:
        if not isinstance(answer, Encoded):
            return answer
        key, version = self._head.api_key, self._head.api_version
        return decode_response(key, version, bytes(CORRELATION_ID_BYTES) + answer.rest)[1]

    def _mute(self, throttle_ms: float) -> None:
        """Read no more of the connection for a while, as after a quota."""
        self._connection.pause_writing()
        self._later(throttle_ms, self._connection.resume_writing)

    def _bytes_of(self, answer: Message | Encoded) -> bytes:
        """Return the frame of an answer."""
        if isinstance(answer, Encoded):
            size = CORRELATION_ID_BYTES + len(answer.rest)
            head = size.to_bytes(SIZE_FIELD_BYTES) + self._head.correlation_id.to_bytes(
                CORRELATION_ID_BYTES, signed=True
            )
            return head + answer.rest
        head_fields = self._head.api_key, self._head.api_version, self._head.correlation_id
        return b"".join(read_slices(response_chunks(*head_fields, answer)))

    # Order
    # ----------------------------------------------------------------------------------------------

    def _wait_for_others(
        self,
        decided: Decided,
        later: Deferred,
        take_effect: Callable[[], None],
        go_on: Callable[[], None],
    ) -> None:
        """Go on when others have passed, when it has waited for long enough, or when the fault
        ends; only the first is an effect.
        """
        is_due = False

        def due(*, is_overtaken: bool) -> None:
            nonlocal is_due
            if is_due or later.is_abandoned:
                return
            is_due = True
            give_up()
            if is_overtaken:
                take_effect()
            go_on()

        give_up = self._rules.wait_for_others(
            decided.number,
            self._request,
            self._connection,
            lambda is_overtaken: self._context.soon(partial(due, is_overtaken=is_overtaken)),
        )
        later.when_abandoned(give_up)
        if decided.fault.wait_ms:
            self._later(decided.fault.wait_ms, partial(due, is_overtaken=False))

    def _passes(self, *, is_reply: bool) -> None:
        request = self._request
        self._rules.passed(
            request.node, request.sender, request.api_key, self._connection, is_reply=is_reply
        )

    def _later(self, delay_ms: float, work: Callable[[], None]) -> None:
        self._context.later(delay_ms, lambda: self._context.soon(work))


def _same(body: Message) -> Message:
    return body


def _not_kept() -> Message:
    raise MalformedMessage(None, None, "", "the body of a request that was served is not kept")


def _served(serve: Callable[[], Answer | Deferred]) -> Answer | Deferred:
    try:
        return serve()
    except MalformedMessage as malformed:
        return Closing(str(malformed))


def _when_answered(answer: Answer | Deferred, then: Callable[[Answer], None]) -> None:
    if not isinstance(answer, Deferred):
        then(answer)
        return
    later = Deferred()
    completed_by(answer, later)
    if later.answer is not None:
        then(later.answer)
        return

    def on_answer() -> None:
        assert later.answer is not None, "called once the answer is complete"
        then(later.answer)

    later.attach(on_answer)


# --------------------------------------------------------------------------------------------------
# The taps of all nodes of a cluster in this process


@dataclass(frozen=True, slots=True)
class _Part:
    """A broker or controller that runs, and its tap once it has one."""

    of: Broker | Controller
    context: TapContext
    taps: list[RequestTap]


class RequestTaps:
    """The faults of requests of a cluster whose nodes run in this process, embedded or simulated.

    `client_ids` map the client ids of nodes to their names, `now_ms` is one clock for all nodes,
    and `later` waits by it.
    """

    def __init__(
        self,
        client_ids: Mapping[str, str],
        *,
        seed: int,
        now_ms: Callable[[], float],
        later: Later,
    ) -> None:
        self._client_ids = client_ids
        self._now_ms = now_ms
        self._later = later
        self._rules = RequestRules(seed, self._on_black_hole, on_late_fault=self._on_late_fault)
        self._on_hits: dict[int, OnHit] = {}
        self._parts: dict[str, list[_Part]] = {}
        self._is_used = False

    def expect(self, fault: RequestFault) -> None:
        """A fault of replies may come that is about requests in progress, too: watch them."""
        self._use()
        self._rules.expect(fault)

    def add(
        self,
        fault: RequestFault,
        on_hit: OnHit,
        *,
        key: str | None = None,
        in_progress: bool = False,
    ) -> int:
        """Add a fault; return its number. `on_hit` is called for each request that it takes effect
        on; `key` names its random numbers, and `in_progress` is for those served now
        (`RequestRules.add`).
        """
        self._use()
        self._on_hits[self._rules.next_number] = on_hit
        number = self._rules.add(fault, self._now_ms(), key=key, in_progress=in_progress)
        if fault.duration_ms is not None:
            self._later(fault.duration_ms, lambda: self._rules.expire(self._now_ms()))
        return number

    def remove(self, number: int) -> None:
        """End a fault; nothing, if it is over."""
        self._rules.remove(number)
        self._on_hits.pop(number, None)

    def status(self) -> tuple[RequestFaultStatus, ...]:
        """Return all faults and what became of them."""
        return self._rules.status(self._now_ms())

    def follow(self, name: str, node: object, soon: Soon) -> None:
        """A node starts: it carries out the faults."""
        context = TapContext(
            node=name,
            rules=self._rules,
            client_ids=self._client_ids,
            now_ms=self._now_ms,
            soon=soon,
            later=self._later,
            on_effect=self._on_effect,
        )
        found = (controller_of(node), broker_of(node))
        parts = self._parts[name] = [_Part(of, context, []) for of in found if of is not None]
        if self._is_used:
            for part in parts:
                _put_in_front(part)

    def forget(self, name: str) -> None:
        """A node is gone."""
        self._parts.pop(name, None)

    def _use(self) -> None:
        if not self._is_used:
            self._is_used = True
            for parts in self._parts.values():
                for part in parts:
                    _put_in_front(part)

    def _on_late_fault(self, number: int) -> None:
        for parts in self._parts.values():
            for part in parts:
                for tap in part.taps:
                    tap.meet_replies(number)

    def _on_black_hole(self, number: int) -> None:
        for parts in self._parts.values():
            for part in parts:
                for tap in part.taps:
                    tap.hold_replies(number)

    def _on_effect(self, number: int, fault: RequestFault, request: SeenRequest) -> None:
        on_hit = self._on_hits.get(number)
        if on_hit is not None:
            on_hit(RequestHit.of(request))


def node_client_ids(spec: ClusterSpec) -> dict[str, str]:
    """Return the client ids of the nodes of a cluster, and the names of these."""
    return {
        client_id: node.name
        for node in spec.nodes()
        for client_id in client_ids_of_node(node.node_id)
    }


def _put_in_front(part: _Part) -> None:
    def in_front(server: FrameServer) -> RequestTap:
        tap = RequestTap(server, part.of, part.context)
        part.taps.append(tap)
        return tap

    part.of.put_in_front(in_front)
