"""Envelope (58): a client's request that a broker forwards, with the client's principal and
address.

Source: KIP-590; EnvelopeUtils.handleEnvelopeRequest, ControllerApis; DefaultKafkaPrincipalBuilder.
"""

from kraftsim.conformance.expect import Unmet, expect_equal, expect_error
from kraftsim.conformance.peer import request_bytes
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k03_metadata import MetadataRequest
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from protocol.requests import decode_response

REQUIREMENTS = Requirements("controller", 5, "Requests in envelopes")
UTILS = "EnvelopeUtils.handleEnvelopeRequest"
ANONYMOUS = b"\x00\x00\x05User\x0aANONYMOUS\x00\x00"
"""The principal of an unauthenticated client: DefaultPrincipalData version 0 after its version
prefix.
"""
LOOPBACK = bytes((127, 0, 0, 1))
INNER_VERSION = 5


def _create(target: Target, version: int = INNER_VERSION, correlation_id: int = 77) -> bytes:
    """A request with validate_only, without its size."""
    topic = CreatableTopic(name=target.fresh_name(), num_partitions=1, replication_factor=1)
    return request_bytes(
        CreateTopicsRequest(topics=[topic], timeout_ms=15000, validate_only=True),
        version,
        correlation_id,
        "inner",
    )[4:]


def _put(
    target: Target, inner: bytes, principal: bytes | None = ANONYMOUS, address: bytes = LOOPBACK
) -> EnvelopeResponse:
    with target.controller_peer() as peer:
        asked = EnvelopeRequest(
            request_data=inner, request_principal=principal, client_host_address=address
        )
        return peer.ask(asked, 0, EnvelopeResponse)


def _refused(
    target: Target,
    error: ErrorCode,
    what: str,
    inner: bytes,
    principal: bytes | None = ANONYMOUS,
    address: bytes = LOOPBACK,
) -> None:
    answer = _put(target, inner, principal, address)
    expect_error(answer.error_code, error, what)
    expect_equal(answer.response_data, None, f"{what}: the embedded response")


def _taken(
    target: Target, inner: bytes, what: str, version: int = INNER_VERSION, address: bytes = LOOPBACK
) -> int:
    """The embedded request gets an embedded response; return its correlation id."""
    answer = _put(target, inner, address=address)
    expect_error(answer.error_code, ErrorCode.NONE, what)
    if answer.response_data is None:
        raise Unmet(what, "an embedded response", "null")
    try:
        correlation_id, body = decode_response(
            ApiKey.CREATE_TOPICS, version, bytes(answer.response_data)
        )
    except MalformedMessage as trouble:
        raise Unmet(
            f"{what} ({trouble})",
            "a valid embedded response",
            bytes(answer.response_data)[:64].hex(" ", -2),
        ) from trouble
    assert isinstance(body, CreateTopicsResponse), "the request was CreateTopics"
    expect_equal(
        [topic.error_code for topic in body.topics],
        [int(ErrorCode.NONE)],
        f"{what}: embedded error codes",
    )
    return correlation_id


@REQUIREMENTS.that(
    1,
    "the embedded request is processed, and its complete response is embedded in the envelope "
    "response",
    source=f"KIP-590; {UTILS}",
)
def carried_out(target: Target) -> None:
    for version in target.versions(
        ApiKey.CREATE_TOPICS, since=1, address=target.controller_address()
    ):
        _taken(target, _create(target, version), f"CreateTopics v{version}", version)


@REQUIREMENTS.that(
    2,
    "the embedded response has the correlation id of the embedded request",
    source="RequestContext.buildResponseEnvelopePayload",
)
def inner_correlation_id(target: Target) -> None:
    for correlation_id in (0, 77, -1, 2**31 - 1):
        expect_equal(
            _taken(target, _create(target, correlation_id=correlation_id), "CreateTopics"),
            correlation_id,
            "embedded correlation id",
        )


@REQUIREMENTS.that(
    3,
    "a client address of 4 or 16 bytes is accepted, any other is rejected with INVALID_REQUEST",
    source=f"{UTILS}: InetAddress.getByAddress",
)
def addresses(target: Target) -> None:
    for address in (LOOPBACK, bytes(15) + b"\x01"):
        _taken(target, _create(target), f"an address of {len(address)} bytes", address=address)
    for address in (b"", b"abc", bytes(5), bytes(17)):
        _refused(
            target,
            ErrorCode.INVALID_REQUEST,
            f"an address of {len(address)} bytes",
            _create(target),
            address=address,
        )


@REQUIREMENTS.that(
    4,
    "a missing or malformed principal is rejected with PRINCIPAL_DESERIALIZATION_FAILURE",
    source=f"{UTILS}; KafkaPrincipalSerde",
)
def principals(target: Target) -> None:
    for principal in (None, b"", b"xx", ANONYMOUS[:8]):
        _refused(
            target,
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
            f"a principal of {principal!r}",
            _create(target),
            principal,
        )


@REQUIREMENTS.that(
    5,
    "an API that is not forwardable is rejected with INVALID_REQUEST",
    source="ApiKeys.forwardable",
)
def not_forwardable(target: Target) -> None:
    inner = _create(target)
    nested = request_bytes(
        EnvelopeRequest(
            request_data=inner, request_principal=ANONYMOUS, client_host_address=LOOPBACK
        ),
        0,
        9,
    )[4:]
    rows = {
        "ApiVersions": request_bytes(ApiVersionsRequest(), 0, 5)[4:],
        "Metadata": request_bytes(MetadataRequest(topics=[]), 9, 5)[4:],
        "an envelope": nested,
    }
    for what, payload in rows.items():
        _refused(target, ErrorCode.INVALID_REQUEST, f"{what} inside", payload)


@REQUIREMENTS.that(
    6,
    "a version that the controller does not support is rejected with UNSUPPORTED_VERSION",
    source=f"{UTILS}: parseForwardedRequestHeader",
)
def unsupported_version(target: Target) -> None:
    inner = _create(target)
    above = target.range_of(ApiKey.CREATE_TOPICS, target.controller_address())[1] + 1
    _refused(
        target,
        ErrorCode.UNSUPPORTED_VERSION,
        f"CreateTopics v{above} inside",
        inner[:2] + above.to_bytes(2) + inner[4:],
    )


@REQUIREMENTS.that(
    7,
    "an embedded request that is malformed is rejected with UNSUPPORTED_VERSION",
    source=f"{UTILS}: parseForwardedRequest",
)
def unreadable(target: Target) -> None:
    inner = _create(target)
    rows = {
        "nothing": b"",
        "random bytes": b"\xff" * 20,
        "an unknown api key": b"\x27\x0f" + inner[2:],
        "a body that is cut": inner[:-3],
    }
    for what, payload in rows.items():
        _refused(target, ErrorCode.UNSUPPORTED_VERSION, f"{what} inside", payload)


@REQUIREMENTS.that(8, "bytes after the embedded request are ignored", source=UTILS)
def bytes_behind(target: Target) -> None:
    _taken(target, _create(target) + b"more", "a request with trailing bytes")


@REQUIREMENTS.that(9, "the connection stays usable after a rejected envelope", source=UTILS)
def stays_usable(target: Target) -> None:
    with target.controller_peer() as peer:
        for inner in (b"", _create(target), b"\xff" * 20, _create(target)):
            asked = EnvelopeRequest(
                request_data=inner, request_principal=ANONYMOUS, client_host_address=LOOPBACK
            )
            answer = peer.ask(asked, 0, EnvelopeResponse)
            expect_equal(
                answer.response_data is not None,
                len(inner) > 20,
                f"whether there is an embedded response, for {len(inner)} bytes",
            )
