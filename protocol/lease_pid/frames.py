"""Request and response headers of lease_pid, and the message of each API key.

The header has Kafka's fields in Kafka's order, so that the API key alone distinguishes the two
protocols.
Source: the lease_pid draft; RequestHeader v1 of Kafka.
"""

from enum import IntEnum
from typing import Final

from protocol.codec.message_codec import compiled
from protocol.lease_pid.messages import (
    LeasedFetchRequest,
    LeasedFetchResponse,
    LeasedLeadersRequest,
    LeasedLeadersResponse,
    LeasedProduceRequest,
    LeasedProduceResponse,
    LeasePidRequest,
    LeasePidResponse,
)
from protocol.malformed import MalformedMessage
from protocol.schema import Message, int16, int32, message, string


class LeaseApi(IntEnum):
    """Above all API keys of Kafka, and above those of its forks."""

    LEASE_PID = 1000
    PRODUCE = 1001
    FETCH = 1002
    LEADERS = 1003


@message(kind="lease-pid", versions="0")
class LeasedRequestHeader:
    """The request header; a response carries `correlation_id` alone."""

    api_key: int = int16()
    api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(nullable="0+")


@message(kind="lease-pid", versions="0")
class LeasedResponseHeader:
    """The request of the response."""

    correlation_id: int = int32()


REQUESTS: Final[dict[int, type]] = {
    LeaseApi.LEASE_PID: LeasePidRequest,
    LeaseApi.PRODUCE: LeasedProduceRequest,
    LeaseApi.FETCH: LeasedFetchRequest,
    LeaseApi.LEADERS: LeasedLeadersRequest,
}
RESPONSES: Final[dict[int, type]] = {
    LeaseApi.LEASE_PID: LeasePidResponse,
    LeaseApi.PRODUCE: LeasedProduceResponse,
    LeaseApi.FETCH: LeasedFetchResponse,
    LeaseApi.LEADERS: LeasedLeadersResponse,
}
LATEST: Final[dict[int, int]] = {
    LeaseApi.LEASE_PID: 1,
    LeaseApi.PRODUCE: 0,
    LeaseApi.FETCH: 0,
    LeaseApi.LEADERS: 0,
}


def build_request(header: LeasedRequestHeader, body: Message) -> bytes:
    """Return the frame of a request, without its size."""
    return compiled(LeasedRequestHeader, 0).encode(header) + compiled(
        type(body), header.api_version
    ).encode(body)


def parse_request(frame: bytes) -> tuple[LeasedRequestHeader, Message]:
    """Decode a request. Raises MalformedMessage, also for an unknown key or version."""
    header: LeasedRequestHeader
    header, position = compiled(LeasedRequestHeader, 0).decode(frame, 0)
    latest = LATEST.get(header.api_key)
    if latest is None or not 0 <= header.api_version <= latest:
        raise MalformedMessage(
            header.api_key,
            header.api_version,
            "",
            "no such API of lease_pid, or no such version of it",
        )
    body: Message
    body, end = compiled(REQUESTS[header.api_key], header.api_version).decode(frame, position)
    _refuse_rest(header.api_key, header.api_version, frame, end)
    return header, body


def build_response(correlation_id: int, api_version: int, body: Message) -> bytes:
    """Return the frame of a response, without its size."""
    return compiled(LeasedResponseHeader, 0).encode(
        LeasedResponseHeader(correlation_id=correlation_id)
    ) + compiled(type(body), api_version).encode(body)


def correlation_id_of(frame: bytes) -> int:
    """Return the correlation id of a response. Raises MalformedMessage."""
    header: LeasedResponseHeader = compiled(LeasedResponseHeader, 0).decode(frame, 0)[0]
    return header.correlation_id


def parse_response(api_key: int, api_version: int, frame: bytes) -> Message:
    """Decode the response to a request of this key and version. Raises MalformedMessage."""
    _, position = compiled(LeasedResponseHeader, 0).decode(frame, 0)
    body: Message
    body, end = compiled(RESPONSES[api_key], api_version).decode(frame, position)
    _refuse_rest(api_key, api_version, frame, end)
    return body


def _refuse_rest(api_key: int, api_version: int, frame: bytes, end: int) -> None:
    if end != len(frame):
        raise MalformedMessage(
            api_key, api_version, "", f"{len(frame) - end} bytes behind the message"
        )
