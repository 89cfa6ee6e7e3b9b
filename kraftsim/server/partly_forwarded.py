"""Requests that a broker processes in part and forwards in part: the responses are merged.

Source: KIP-590, kafka.server.KafkaApis.
"""

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from kraftsim.server.call import Answer, Call, Closing, Deferred, Encoded, Failed, NoAnswer
from kraftsim.server.forwarding import ForwardingNode, Refuse
from kraftsim.server.serving_broker import RunningBroker
from protocol.malformed import MalformedMessage
from protocol.requests import decode_response_body
from protocol.schema import Message

CORRELATION_ID_BYTES = 4


class RestForwardingBroker(ForwardingNode, RunningBroker, Protocol):
    """A broker that forwards a part of a request."""


def forward_rest(
    broker: RestForwardingBroker,
    call: Call,
    rest: Message | None,
    join: Callable[[Message | None], Answer],
    refuse: Refuse,
) -> Answer | Deferred:
    """Return `join(response)` of the controller's response to `rest`; at once if there is no rest.

    `refuse` builds errors for the rest only.
    """
    if rest is None:
        return join(None)
    asked = copy.copy(call)
    asked.body = rest
    later, inner = Deferred(), Deferred()

    def joined() -> Answer:
        answer = inner.answer
        assert answer is not None and not isinstance(answer, NoAnswer), (
            "called on the controller's response"
        )
        if isinstance(answer, Encoded):
            answer = _decoded(call, answer.rest)
        return answer if isinstance(answer, Closing | Failed) else join(answer)

    async def join_aside() -> None:
        """The same for a large response: it is decoded in a thread."""
        answer = inner.answer
        if isinstance(answer, Encoded):
            encoded = answer.rest
            with suppress(MalformedMessage):  # `joined` raises it again, which fails the request
                inner.answer = await broker.world.aside(lambda: _decoded(call, encoded))
            await broker.shell.turns.next()
        later.complete_with(joined)

    def settle() -> None:
        if call.is_large:
            broker.shell.tasks.spawn(join_aside(), "join-large-answer")
        else:
            later.complete_with(joined)

    inner.attach(settle)
    later.when_abandoned(inner.abandon)
    broker.forwarding.forward(asked, inner, refuse)
    return later


def _decoded(call: Call, encoded: bytes) -> Message:
    return decode_response_body(
        call.api_key, call.api_version, bytes(CORRELATION_ID_BYTES) + encoded
    )
