"""Faults of requests inside a node: what stands between the connections of a node of an embedded
cluster and its dispatcher.

Nothing is started for it, it sees requests behind TLS and SASL, and with no fault it costs one call
for each read of a connection. The order of answers needs no care: a connection serves one request
at a time, so a request that is never answered silences its connection by itself.

In a cluster of processes the proxy carries out the same rules
(`kraftsim.cluster.proxy.request_gate`).
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from kraftsim.lab.faults.rules_request_faults import (
    Decided,
    RequestAction,
    RequestFault,
    RequestRules,
    SeenRequest,
    sender_of,
)
from kraftsim.server.call import Answer, Call, Closing, Deferred, NoAnswer, completed_by
from kraftsim.server.frame_server import FrameServer, ServedConnection
from kraftsim.server.inbox import Buffer
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.requests import RequestHead, decode_request

OnEffect = Callable[[int, RequestFault, SeenRequest], None]
"""Is called when a fault has taken effect: with its number, itself, and the request."""


class RequestTap:
    """The faults of requests of one node. `rules` are those of its cluster, `client_ids` map the
    client ids of nodes to their names.
    """

    def __init__(
        self,
        server: FrameServer,
        node: str,
        *,
        rules: RequestRules,
        client_ids: Mapping[str, str],
        on_effect: OnEffect,
    ) -> None:
        self._server = server
        self._serve_run = server.serve_run
        self._node = node
        self._rules = rules
        self._client_ids = client_ids
        self._on_effect = on_effect
        self._loop = asyncio.get_running_loop()

    def serve_run(
        self, connection: ServedConnection, buffer: Buffer, position: int, end: int
    ) -> int:
        """Pass on; while there is a fault, leave each frame to `serve`."""
        if self._rules.is_empty:
            return self._serve_run(connection, buffer, position, end)
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
        if self._rules.is_empty:
            return self._server.serve(head, frame, connection)
        request = SeenRequest(
            node=self._node,
            sender=sender_of(head.client_id, self._client_ids),
            api_key=head.api_key,
            api_version=head.api_version,
            client_id=head.client_id,
            body=partial(decode_request, head, frame),
        )
        decided = self._rules.decide(request, self._loop.time() * 1000)
        if decided is None:
            return self._server.serve(head, frame, connection)
        take_effect = partial(self._on_effect, decided.number, decided.fault, request)
        serve = partial(self._server.serve, head, frame, connection)
        if decided.fault.done:
            return self._on_answer(decided.fault, serve(), take_effect)
        return self._on_request(decided, serve, take_effect)

    def _on_request(
        self,
        decided: Decided,
        serve: Callable[[], Answer | Deferred],
        take_effect: Callable[[], None],
    ) -> Answer | Deferred:
        match decided.fault.action:
            case RequestAction.ERROR:
                assert decided.answer is not None, "a request without an answer does not match"
                take_effect()
                return decided.answer
            case RequestAction.DROP:
                take_effect()
                return Deferred()
            case RequestAction.DELAY:
                later = Deferred()
                self._later(decided.fault, lambda: self._serve_late(serve, later, take_effect))
                return later
            case RequestAction.DUPLICATE:
                answer = serve()
                self._later(decided.fault, lambda: self._serve_copy(serve, take_effect))
                return answer
            case RequestAction.DISCONNECT:
                take_effect()
                return Closing("a fault ends the connection")

    def _on_answer(
        self, fault: RequestFault, answer: Answer | Deferred, take_effect: Callable[[], None]
    ) -> Answer | Deferred:
        """Let the fault meet the answer when it is there."""
        later = Deferred()

        def on_answer(answer: Answer) -> None:
            if isinstance(answer, NoAnswer | Closing):
                later.complete(answer)
            elif fault.action is RequestAction.DELAY:
                self._later(fault, lambda: _complete_late(answer, later, take_effect))
            elif fault.action is RequestAction.DISCONNECT:
                take_effect()
                later.complete(Closing("a fault ends the connection"))
            else:
                take_effect()  # and `later` is never completed

        _when_answered(answer, on_answer)
        if isinstance(answer, Deferred):
            later.when_abandoned(answer.abandon)
        return later

    def _serve_late(
        self,
        serve: Callable[[], Answer | Deferred],
        later: Deferred,
        take_effect: Callable[[], None],
    ) -> None:
        if later.is_abandoned:
            return  # its client has given up, and the bytes never arrived
        take_effect()
        completed_by(_served(serve), later)

    def _serve_copy(
        self, serve: Callable[[], Answer | Deferred], take_effect: Callable[[], None]
    ) -> None:
        _when_answered(_served(serve), lambda answer: take_effect())

    def _later(self, fault: RequestFault, work: Callable[[], object]) -> None:
        self._loop.call_later(fault.delay_ms / 1000, work)


def _complete_late(answer: Answer, later: Deferred, take_effect: Callable[[], None]) -> None:
    take_effect()
    later.complete(answer)


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
