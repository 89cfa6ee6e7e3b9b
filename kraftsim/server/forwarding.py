"""Forwarding: requests that only the controller can process are wrapped in an Envelope with the
client's principal.

Source: KIP-590, kafka.server.ForwardingManager, kafka.server.EnvelopeUtils,
DefaultKafkaPrincipalBuilder.
"""

import copy
import ipaddress
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Never, Protocol

from kraftsim.catalogue import Catalogue
from kraftsim.server.call import (
    Answer,
    Call,
    Closing,
    Deferred,
    Encoded,
    Failed,
    Handler,
    NoAnswer,
    controller_handlers,
    reason_of,
)
from kraftsim.server.controller_channel import ControllerChannel
from kraftsim.server.outbound import NoCommonVersion
from kraftsim.server.rules_authentication import ANONYMOUS as ANONYMOUS_PRINCIPAL
from kraftsim.server.rules_authentication import Principal
from kraftsim.server.serving_broker import RunningBroker
from kraftsim.server.shell import NodeShell
from protocol.api_keys import FORWARDABLE, ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from protocol.requests import decode_response_body, request_chunks
from protocol.schema import Message
from protocol.version_prefixed import DefaultPrincipalData, build_principal

ANONYMOUS = build_principal(DefaultPrincipalData(principal_type="User", name="ANONYMOUS"))
LOOPBACK_ADDRESS = ipaddress.ip_address("127.0.0.1").packed
SIZE_BYTES = 4
CORRELATION_ID_BYTES = 4
Refuse = Callable[[Call, ErrorCode], Answer]


class RequestForwarder(Protocol):
    """Forwards the requests that only the controller can process."""

    def forward(self, call: Call, later: Deferred, refuse: Refuse) -> None:
        """Complete `later` with the controller's response to the request of `call`, or with
        `refuse(call, error)` if there is none.
        """
        ...


class ForwardingNode(Protocol):
    """A broker that forwards."""

    @property
    def forwarding(self) -> RequestForwarder:
        """Forwards to the active controller."""
        ...


class Forwarding:
    """Forwards requests to the active controller."""

    def __init__(self, shell: NodeShell, channel: ControllerChannel) -> None:
        self._shell = shell
        self._channel = channel

    def forward(self, call: Call, later: Deferred, refuse: Refuse) -> None:
        """Complete `later` with the controller's response to the request of `call`, or with
        `refuse(call, error)` if there is none.
        """
        if call.is_large:
            self._shell.tasks.spawn(
                self._forward_large(call, later, refuse), "forward-large-request"
            )
            return
        self._channel.send(
            _envelope(call),
            lambda answer: later.complete_with(lambda: _unwrapped(call, answer, refuse)),
        )

    async def _forward_large(self, call: Call, later: Deferred, refuse: Refuse) -> None:
        """The same for a large request: it is encoded in a thread."""
        try:
            envelope = await self._shell.world.aside(lambda: _envelope(call))
        except Exception as failure:  # a value that the protocol cannot carry
            later.complete(Failed(f"the request cannot be forwarded: {reason_of(failure)}"))
            return
        self._channel.send(
            envelope, lambda answer: later.complete_with(lambda: _unwrapped(call, answer, refuse))
        )


def _envelope(call: Call) -> EnvelopeRequest:
    chunks = request_chunks(
        call.api_key, call.api_version, call.correlation_id, call.client_id, call.body
    )
    return EnvelopeRequest(
        request_data=b"".join(chunks)[SIZE_BYTES:],
        request_principal=ANONYMOUS
        if call.principal == ANONYMOUS_PRINCIPAL
        else _named(call.principal),
        client_host_address=_packed_address(call.connection.peer),
    )


def _named(principal: Principal) -> bytes:
    return build_principal(DefaultPrincipalData(principal_type=principal.kind, name=principal.name))


def _unwrapped(call: Call, answer: Message | OSError, refuse: Refuse) -> Answer:
    """Return the client's response.

    The embedded response starts with the client's own correlation id, so it is passed on unchanged.
    """
    if isinstance(answer, NoCommonVersion):
        return refuse(call, ErrorCode.UNKNOWN_SERVER_ERROR)
    if isinstance(answer, OSError):
        return refuse(call, ErrorCode.REQUEST_TIMED_OUT)
    assert isinstance(answer, EnvelopeResponse), "the response of an Envelope"
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        return Closing("the controller does not support this version")
    if answer.error_code != ErrorCode.NONE or answer.response_data is None:
        return refuse(call, ErrorCode.UNKNOWN_SERVER_ERROR)
    return Encoded(bytes(answer.response_data[CORRELATION_ID_BYTES:]))


def _packed_address(peer: str) -> bytes:
    """Return the bytes of the client's address, in the format of InetAddress.getAddress."""
    try:
        return ipaddress.ip_address(peer.rpartition(":")[0]).packed
    except ValueError:
        return LOOPBACK_ADDRESS


# --------------------------------------------------------------------------------------------------
# The APIs that a broker serves: those with a handler here, and those that it forwards to the
# controller
#
# A forwardable API that has a handler on the controller and none here is forwarded. If no
# controller is available, the broker responds with the error response of the controller's own
# handler.
# Source: KIP-590, kafka.server.KafkaApis.{maybeForwardToController, forwardToControllerOrFail}.

FORWARDED = FORWARDABLE - {ApiKey.ALLOCATE_PRODUCER_IDS}
"""AllocateProducerIds is for brokers only; a client's request is not forwarded."""


@cache
def broker_handlers() -> tuple[Handler[Never], ...]:
    """Return the handlers of a broker in the order of their file names, its own first.

    Cached, because a simulation starts many brokers, and handlers have no state. What each uses of
    its broker is known to its file only: tests/node/test_handler_types.py shows that a broker has
    it.
    """
    own: tuple[Handler[Never], ...] = Catalogue(
        "kraftsim.*.broker_handlers", "HANDLER", Handler
    ).all()
    served = [handler.key for handler in own]
    return own + tuple(
        _forwarding_handler(handler.key, handler.refuse)
        for handler in controller_handlers()
        if handler.key in FORWARDED and handler.key not in served and handler.refuse is not None
    )


def _forwarding_handler(key: ApiKey, refuse: Refuse) -> Handler[ForwardingNode]:
    def handle(broker: ForwardingNode, call: Call) -> Deferred:
        later = Deferred()
        broker.forwarding.forward(call, later, refuse)
        return later

    return Handler(key=key, handle=handle, refuse=refuse)


# --------------------------------------------------------------------------------------------------
# Requests that a broker processes in part and forwards in part: the responses are merged
#
# Source: KIP-590, kafka.server.KafkaApis.


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
