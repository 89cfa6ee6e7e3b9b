"""Handmade requests, and checks of their responses: shared by the checks of the wire chapter.

No codec writes these requests, so that they can be malformed in exactly one place.
Source: the protocol guide (framing, request header v0 to v2, primitive types); KIP-482.
"""

from collections.abc import Mapping

from kraftsim.conformance.expect import Unmet, expect
from kraftsim.conformance.peer import Peer, PeerClosed, PeerSilent, framed
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.malformed import MalformedMessage
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.requests import UnsupportedApi, decode_response
from protocol.schema import Message

NO_CLIENT_ID = b"\xff\xff"
NO_TAGS = b"\x00"
NO_TOPICS = b"\x01"
"""A compact array of no elements; b"\\x00" would be null."""
FLEXIBLE_METADATA = 9
"""The first flexible version of Metadata."""
NOT_AN_API = 9999
UNBORN_VERSION = 99


def int16(value: int) -> bytes:
    """Write a number as two bytes."""
    return value.to_bytes(2, signed=True)


def int32(value: int) -> bytes:
    """Write a number as four bytes."""
    return value.to_bytes(4, signed=True)


def head(
    api_key: int, version: int, correlation_id: int = 1, client_id: bytes = NO_CLIENT_ID
) -> bytes:
    """Return request header v1; for v2 tagged fields follow."""
    return int16(api_key) + int16(version) + int32(correlation_id) + client_id


def string(content: bytes) -> bytes:
    """Return a string of a version that is not flexible: its length in two bytes, then its
    bytes.
    """
    return int16(len(content)) + content


def metadata(
    correlation_id: int = 1,
    *,
    header_tags: bytes = NO_TAGS,
    topics: bytes = NO_TOPICS,
    body_tags: bytes = NO_TAGS,
    client_id: bytes = NO_CLIENT_ID,
) -> bytes:
    """Return a request for Metadata in its first flexible version, without its size."""
    flags = bytes(3)  # no topic is created, no operations are returned
    return (
        head(ApiKey.METADATA, FLEXIBLE_METADATA, correlation_id, client_id)
        + header_tags
        + topics
        + flags
        + body_tags
    )


def api_versions(correlation_id: int = 1, client_id: bytes = NO_CLIENT_ID) -> bytes:
    """Return a request for ApiVersions in version 0, without its size: the shortest request that
    every node answers.
    """
    return head(ApiKey.API_VERSIONS, 0, correlation_id, client_id)


def api_versions_3(
    correlation_id: int = 1,
    *,
    name: bytes = b"\x02x",
    software_version: bytes = b"\x021",
    tags: bytes = NO_TAGS,
) -> bytes:
    """Return a request for ApiVersions in its first flexible version, without its size; the strings
    with their lengths.
    """
    return head(ApiKey.API_VERSIONS, 3, correlation_id) + NO_TAGS + name + software_version + tags


def answer_on(peer: Peer, payload: bytes, what: str) -> bytes:
    """Send a request on a connection and return the response frame.

    Raises Unmet if there is none, or if it does not match.
    """
    peer.send_bytes(framed(payload))
    return next_answer(peer, payload, what)


def next_answer(peer: Peer, payload: bytes, what: str) -> bytes:
    """Return the next frame, which must be the response to this request: its correlation id, and a
    body of its API and version.
    """
    return _next(peer, payload, what)[0]


def body_on(peer: Peer, payload: bytes, what: str) -> Message:
    """Send a request of a version that both sides support, and return the response body."""
    peer.send_bytes(framed(payload))
    body = _next(peer, payload, what)[1]
    assert body is not None, "the version is known here"
    return body


def _next(peer: Peer, payload: bytes, what: str) -> tuple[bytes, Message | None]:
    try:
        frame = peer.receive_frame()
    except (PeerClosed, PeerSilent) as trouble:
        raise Unmet(what, "an answer", str(trouble)) from trouble
    if frame[:4] != payload[4:8]:
        raise Unmet(
            f"{what}: correlation id",
            str(int.from_bytes(payload[4:8], signed=True)),
            str(int.from_bytes(frame[:4], signed=True)),
        )
    api_key, version = int.from_bytes(payload[:2]), int.from_bytes(payload[2:4], signed=True)
    try:
        return frame, decode_response(api_key, version, frame)[1]
    except UnsupportedApi:
        return frame, None  # an unknown version; the caller checks the bytes
    except MalformedMessage as trouble:
        raise Unmet(
            f"{what}: the answer cannot be read ({trouble})",
            "a body of this version",
            frame[:64].hex(" ", -2),
        ) from trouble


def answers(target: Target, payloads: Mapping[str, bytes]) -> None:
    """Each of these requests gets a response, and the connection stays usable."""
    for what, payload in payloads.items():
        with target.peer() as peer:
            answer_on(peer, payload, what)
            answer_on(
                peer, api_versions(77), f"{what}: a request on the same connection afterwards"
            )


def closes(target: Target, payloads: Mapping[str, bytes]) -> None:
    """Each of these requests closes its connection without a response, and the node still serves
    other connections.
    """
    for what, payload in payloads.items():
        closes_after(target, framed(payload), what)
    still_answers(target)


def closes_after(target: Target, data: bytes, what: str, address: str | None = None) -> None:
    """The node closes a connection after these bytes, without a response."""
    with target.peer(address) as peer:
        peer.send_bytes(data)
        expect_closed(peer, what)


def expect_closed(peer: Peer, what: str) -> None:
    """The node closes the connection without another byte."""
    if not peer.is_closed_by_node():
        raise Unmet(
            what,
            "the connection is closed without an answer",
            "it stays open, or something is answered",
        )


def still_answers(target: Target) -> None:
    """A new connection is served."""
    with target.peer() as peer:
        answer = peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    expect(bool(answer.api_keys), "ApiVersions answers nothing")
