"""Envelope (58): a client request that a broker forwards to the active controller.

The enclosed request is complete, with its own header and version; so is the response, which the
broker passes to its client unchanged. Errors are checked in Kafka's order: the principal, the
client address, the header, whether the API may be forwarded, the body. An enclosed request that
cannot be parsed is answered with UNSUPPORTED_VERSION, so that the broker closes its client's
connection; other errors concern the broker itself.
Source: KIP-590, kafka.server.EnvelopeUtils, kafka.server.ControllerApis,
kafka.network.RequestChannel.
"""

from ipaddress import ip_address
from struct import Struct
from typing import ClassVar, Protocol, Self, cast

from kraftsim.metadata.deciding_controller import DecidingController, behind_gate
from kraftsim.server.api_offer import ApiOffer
from kraftsim.server.call import (
    Answer,
    Call,
    Closing,
    Deferred,
    Encoded,
    Failed,
    Handler,
    NoAnswer,
    reason_of,
)
from kraftsim.server.frame_server import ANSWERED, emit_failed, encoding_failed
from kraftsim.server.large_requests import encoded
from kraftsim.server.rules_authentication import Principal
from protocol.api_keys import FORWARDABLE, ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from protocol.requests import (
    RequestHead,
    UnsupportedApi,
    decode_request,
    read_request_head,
    response_chunks,
)
from protocol.schema import Message
from protocol.version_prefixed import parse_principal

SIZE_BYTES = 4
ADDRESS_BYTES = (4, 16)
CORRELATION_ID = Struct(">i").pack
FORWARDABLE_KEYS = {int(key): key for key in sorted(FORWARDABLE)}


class EnvelopeController(DecidingController, Protocol):
    """A controller that serves the requests of clients inside of envelopes."""

    @property
    def offer(self) -> ApiOffer:
        """The APIs that it serves."""
        ...

    def handler_of(self, key: ApiKey) -> Handler[Self] | None:
        """Return the handler of an API on this controller; None if the API is not served."""
        ...


def handle(controller: EnvelopeController, call: Call) -> Answer | Deferred:
    """Execute the enclosed request and wrap its response."""
    request = call.body
    assert isinstance(request, EnvelopeRequest), "dispatch decodes by API key"
    refused = _refuse_sender(request)
    if refused is not None:
        return EnvelopeResponse(error_code=refused)
    frame = bytes(request.request_data)
    try:
        head = read_request_head(frame)
        key = FORWARDABLE_KEYS.get(head.api_key)
        if key is None:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        handler, served = controller.handler_of(key), controller.offer.served.get(key)
        if handler is None or served is None or not served[0] <= head.api_version <= served[1]:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if call.is_large:
            return _in_turns(controller, call, handler, head, frame)
        inner = EnvelopedCall(head, decode_request(head, frame), call)
    except (UnsupportedApi, MalformedMessage):
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    answer = _carried_out(controller, handler, inner)
    return (
        _wrapped_later(handler, inner, answer)
        if isinstance(answer, Deferred)
        else _wrapped(handler, inner, answer)
    )


def _in_turns(
    controller: EnvelopeController,
    call: Call,
    handler: Handler[EnvelopeController],
    head: RequestHead,
    frame: bytes,
) -> Deferred:
    """The same for a request that takes long to decode, or whose response takes long to encode:
    both are done in several turns.

    The decision itself takes one turn, as Kafka's controller handles one event at a time.
    """
    outer = Deferred()

    async def carry_out() -> None:
        try:
            body = await controller.world.aside(lambda: decode_request(head, frame))
        except MalformedMessage:
            outer.complete(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
            return
        await controller.shell.turns.next()
        inner = LargeEnvelopedCall(head, body, call)

        def serve(controller: EnvelopeController, _: Call) -> Answer | Deferred:
            return _carried_out(controller, handler, inner)

        answer = behind_gate(serve, _refuse, waits=False)(controller, call)
        if not isinstance(answer, Deferred):
            await wrap(inner, answer)
            return
        settled = answer

        def settle() -> None:
            assert settled.answer is not None, "called once the answer is complete"
            controller.shell.tasks.spawn(wrap(inner, settled.answer), "wrap-large-answer")

        if settled.answer is not None:
            settle()
        else:
            settled.attach(settle)
            outer.when_abandoned(settled.abandon)

    async def wrap(inner: EnvelopedCall, answer: Answer) -> None:
        if not isinstance(answer, EnvelopeResponse):
            answer = await encoded(controller.world, inner.api_key, inner.api_version, answer)
        outer.complete(_wrapped(handler, inner, answer))

    controller.shell.tasks.spawn(carry_out(), "serve-large-envelope")
    return outer


def _carried_out(
    controller: EnvelopeController, handler: Handler[EnvelopeController], inner: "EnvelopedCall"
) -> Answer | Deferred:
    try:
        return handler.handle(controller, inner)
    except AssertionError:
        raise
    # top-level handler: closing the broker's connection would make it retry the request
    except Exception as failure:
        return Failed(f"the handler failed: {reason_of(failure)}")


class EnvelopedCall(Call):
    """A request of a client that the Envelope identifies."""

    __slots__ = ("asked_from", "requester")

    def __init__(self, head: RequestHead, body: Message, outer: Call) -> None:
        super().__init__(head, body, outer.connection)
        request = outer.body
        assert isinstance(request, EnvelopeRequest), "an Envelope is what this call was in"
        self.requester = _principal(request)
        self.asked_from = str(ip_address(bytes(request.client_host_address)))

    @property
    def principal(self) -> Principal:
        """The principal of the broker's client."""
        return self.requester

    @property
    def host(self) -> str:
        """The client's address as seen by the broker."""
        return self.asked_from


class LargeEnvelopedCall(EnvelopedCall):
    """A request with many entries."""

    __slots__ = ()
    is_large: ClassVar[bool] = True


def _principal(request: EnvelopeRequest) -> Principal:
    found = parse_principal(bytes(request.request_principal or b""))
    return Principal(found.principal_type, found.name)


def _refuse_sender(request: EnvelopeRequest) -> ErrorCode | None:
    """Return the error for an undecodable principal or address of the client."""
    try:
        parse_principal(
            b"" if request.request_principal is None else bytes(request.request_principal)
        )
    except MalformedMessage:
        return ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    return None if len(request.client_host_address) in ADDRESS_BYTES else ErrorCode.INVALID_REQUEST


def _wrapped_later(
    handler: Handler[EnvelopeController], call: EnvelopedCall, inner: Deferred
) -> Answer | Deferred:
    if inner.answer is not None:
        return _wrapped(handler, call, inner.answer)
    outer = Deferred()

    def pass_on() -> None:
        assert inner.answer is not None, "called once the answer is complete"
        outer.complete(_wrapped(handler, call, inner.answer))

    inner.attach(pass_on)
    outer.when_abandoned(inner.abandon)
    return outer


def _wrapped(handler: Handler[EnvelopeController], call: EnvelopedCall, answer: Answer) -> Answer:
    """Return the answer inside an Envelope. One that cannot be encoded becomes
    UNKNOWN_SERVER_ERROR: the broker accepts that as an answer and does not retry.
    """
    if isinstance(answer, EnvelopeResponse):
        return answer  # leadership was lost: the broker must find the new controller
    if isinstance(answer, Closing):
        return EnvelopeResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION
        )  # upon which the broker closes its client's connection
    assert not isinstance(answer, NoAnswer), "what can be forwarded is answered with a message"
    if isinstance(answer, Encoded):
        return EnvelopeResponse(response_data=CORRELATION_ID(call.correlation_id) + answer.rest)
    if not isinstance(answer, Failed):
        try:
            return _envelope_of(call, answer)
        # a value that the protocol cannot carry, as a string of more than 32,767 bytes
        except Exception as failure:
            answer = encoding_failed(failure)
    emit_failed(answer, call, call.connection, ANSWERED)
    try:
        refused = (
            None if handler.refuse is None else handler.refuse(call, ErrorCode.UNKNOWN_SERVER_ERROR)
        )
        return _envelope_of(call, cast(Message, refused))
    # the refusal cannot be encoded either: the broker builds its own refusal, or closes the
    # connection
    except Exception:
        return EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


def _envelope_of(call: EnvelopedCall, answer: Message) -> EnvelopeResponse:
    chunks = response_chunks(call.api_key, call.api_version, call.correlation_id, answer)
    return EnvelopeResponse(response_data=b"".join(chunks)[SIZE_BYTES:])


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return EnvelopeResponse(error_code=error)


HANDLER: Handler[EnvelopeController] = Handler(key=ApiKey.ENVELOPE, handle=handle, refuse=_refuse)
