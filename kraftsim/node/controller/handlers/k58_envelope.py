"""Envelope (58): a request that a client sent to a broker, and only the controller can decide.

The request inside is complete, with its own header and version; so is the answer, which the broker hands to its client as it is.
Source: KIP-590, kafka.server.EnvelopeUtils, kafka.server.ControllerApis.
"""

from typing import TYPE_CHECKING

from kraftsim.node.call import Answer, Call, Closing, Deferred, Encoded, Handler, NoAnswer
from kraftsim.node.controller.handlers import k19_create_topics
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from protocol.requests import RequestHead, UnsupportedApi, decode_request, read_request_head, response_chunks

if TYPE_CHECKING:
    from kraftsim.node.controller.controller import Controller

SIZE_BYTES = 4
FORWARDED = {int(ApiKey.CREATE_TOPICS): k19_create_topics.HANDLER}
"""What can be forwarded; everything else is answered UNSUPPORTED_VERSION until it is built."""


def handle(controller: "Controller", call: Call) -> Answer | Deferred:
    """Carry out the request inside and wrap its answer."""
    request = call.body
    assert isinstance(request, EnvelopeRequest), "dispatch decodes by API key"
    frame = bytes(request.request_data)
    try:
        head = read_request_head(frame)
        handler = FORWARDED.get(head.api_key)
        served = controller.offer.served.get(handler.key) if handler is not None else None
        if handler is None or served is None or not served[0] <= head.api_version <= served[1]:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        inner = Call(head, decode_request(head, frame), call.connection)
    except UnsupportedApi:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    except MalformedMessage:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    answer = handler.handle(controller, inner)
    return _wrapped_later(head, answer) if isinstance(answer, Deferred) else _wrapped(head, answer)


def _wrapped_later(head: RequestHead, inner: Deferred) -> Answer | Deferred:
    if inner.answer is not None:
        return _wrapped(head, inner.answer)
    outer = Deferred()

    def pass_on() -> None:
        assert inner.answer is not None, "an answer woke this envelope"
        outer.complete(_wrapped(head, inner.answer))

    inner.attach(pass_on)
    outer.when_abandoned(inner.abandon)
    return outer


def _wrapped(head: RequestHead, answer: Answer) -> Answer:
    if isinstance(answer, EnvelopeResponse):
        return answer  # leadership was lost: the broker must look for another controller, whatever it asked
    assert not isinstance(answer, Encoded | NoAnswer | Closing), "what can be forwarded is answered with a message"
    chunks = response_chunks(head.api_key, head.api_version, head.correlation_id, answer)
    return EnvelopeResponse(response_data=b"".join(chunks)[SIZE_BYTES:])


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return EnvelopeResponse(error_code=error)


HANDLER: "Handler[Controller]" = Handler(key=ApiKey.ENVELOPE, handle=handle, refuse=_refuse)
