"""What stands before each request and each answer of lease_pid, and which message an API key names.

The header has Kafka's fields in Kafka's order, so that the two can be told apart by the key alone and read by the same eyes.
Source: the lease_pid draft; RequestHeader v1 of Kafka.
"""

from enum import IntEnum
from typing import Final

from protocol.lease_pid.leasing import LeasePidRequest, LeasePidResponse
from protocol.lease_pid.reading import LeasedFetchRequest, LeasedFetchResponse, LeasedLeadersRequest, LeasedLeadersResponse
from protocol.lease_pid.writing import LeasedProduceRequest, LeasedProduceResponse
from protocol.malformed import MalformedMessage
from protocol.message_codec import compiled
from protocol.schema import Message, int16, int32, message, string


class LeaseApi(IntEnum):
    """Above all keys of Kafka's, and above those that its forks have taken."""

    LEASE_PID = 1000
    PRODUCE = 1001
    FETCH = 1002
    LEADERS = 1003


@message(kind="lease-pid", versions="0")
class LeasedRequestHeader:
    """Who asks for what; the answer carries `correlation_id` alone."""

    api_key: int = int16()
    api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(nullable="0+")


@message(kind="lease-pid", versions="0")
class LeasedResponseHeader:
    """Which request is answered."""

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
LATEST: Final[dict[int, int]] = {LeaseApi.LEASE_PID: 1, LeaseApi.PRODUCE: 0, LeaseApi.FETCH: 0, LeaseApi.LEADERS: 0}


def build_request(header: LeasedRequestHeader, body: Message) -> bytes:
    """Return the frame of a request, without its size."""
    return compiled(LeasedRequestHeader, 0).encode(header) + compiled(type(body), header.api_version).encode(body)


def parse_request(frame: bytes) -> tuple[LeasedRequestHeader, Message]:
    """Read a request. Raises MalformedMessage, also for a key or a version that is none of ours."""
    header: LeasedRequestHeader
    header, position = compiled(LeasedRequestHeader, 0).decode(frame, 0)
    latest = LATEST.get(header.api_key)
    if latest is None or not 0 <= header.api_version <= latest:
        raise MalformedMessage(header.api_key, header.api_version, "", "no such API of lease_pid, or no such version of it")
    body: Message
    body, end = compiled(REQUESTS[header.api_key], header.api_version).decode(frame, position)
    _refuse_rest(header.api_key, header.api_version, frame, end)
    return header, body


def build_response(correlation_id: int, api_version: int, body: Message) -> bytes:
    """Return the frame of an answer, without its size."""
    return compiled(LeasedResponseHeader, 0).encode(LeasedResponseHeader(correlation_id=correlation_id)) + compiled(type(body), api_version).encode(
        body
    )


def correlation_id_of(frame: bytes) -> int:
    """Return which request an answer is for. Raises MalformedMessage."""
    header: LeasedResponseHeader = compiled(LeasedResponseHeader, 0).decode(frame, 0)[0]
    return header.correlation_id


def parse_response(api_key: int, api_version: int, frame: bytes) -> Message:
    """Read the answer to a request of this key and version. Raises MalformedMessage."""
    _, position = compiled(LeasedResponseHeader, 0).decode(frame, 0)
    body: Message
    body, end = compiled(RESPONSES[api_key], api_version).decode(frame, position)
    _refuse_rest(api_key, api_version, frame, end)
    return body


def _refuse_rest(api_key: int, api_version: int, frame: bytes, end: int) -> None:
    if end != len(frame):
        raise MalformedMessage(api_key, api_version, "", f"{len(frame) - end} bytes behind the message")
