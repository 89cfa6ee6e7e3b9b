"""The messages of lease_pid: a producer leases an id from the leader of a partition, writes
messages that carry it, and followers and consumers read them.

Version 0 of the lease request is that of the draft, for one partition; version 1 is the batch that
the draft mentions, and the check whether a lease still holds, where its text ends. Each message
identifies its producer: id, generation and sequence number are fields of the message itself, so
that they are replicated with it, and the next leader has the state of the previous one. For reads,
and for the leaders of partitions, the draft leaves everything as in Kafka at the time. Source: the
lease_pid draft.
"""

from enum import IntEnum
from typing import Final

from protocol.codec.message_codec import compiled
from protocol.malformed import MalformedMessage
from protocol.schema import (
    Message,
    array,
    boolean,
    byte_string,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    structure,
    uint32,
)

NOT_IDEMPOTENT: Final = 0
"""The id of unnumbered messages: generation and sequence have no meaning."""
ASKS_FOR_ONE: Final = 2**32 - 1
"""-1 in four bytes: the producer has no id yet.

Ids are unsigned, since the draft assumes four billion of them.
"""


@structure
class WantedLease:
    """A requested lease. `is_check`: return its state, and change nothing."""

    topic: str = string()
    partition: int = int32()
    producer_id: int = uint32(default=ASKS_FOR_ONE, kafka_name="pid")
    expire_ms: int = int64()
    is_check: bool = boolean()


@structure
class GrantedLease:
    """`sequence_number` is the next one that the partition accepts."""

    topic: str = string()
    partition: int = int32()
    error_code: int = int16(kafka_name="error")
    producer_id: int = uint32(default=ASKS_FOR_ONE, kafka_name="pid")
    generation: int = int32(default=-1)
    sequence_number: int = int32(default=-1)
    expire_ms: int = int64(default=-1)


@message(kind="lease-pid", versions="0-1")
class LeasePidRequest:
    """lease_pid_request => topic partition pid expire_ms."""

    topic: str = string(until=0)
    partition: int = int32(until=0)
    producer_id: int = uint32(until=0, default=ASKS_FOR_ONE, kafka_name="pid")
    expire_ms: int = int64(until=0)
    leases: list[WantedLease] = array(WantedLease, since=1)


@message(kind="lease-pid", versions="0-1")
class LeasePidResponse:
    """lease_pid_response => error pid generation sequence_number expire_ms."""

    error_code: int = int16(until=0, kafka_name="error")
    producer_id: int = uint32(until=0, default=ASKS_FOR_ONE, kafka_name="pid")
    generation: int = int32(until=0, default=-1)
    sequence_number: int = int32(until=0, default=-1)
    expire_ms: int = int64(until=0, default=-1)
    leases: list[GrantedLease] = array(GrantedLease, since=1)


@structure
class LeasedMessage:
    """One message. With `producer_id` 0 the other two numbers have no meaning."""

    producer_id: int = uint32(kafka_name="pid")
    generation: int = int32()
    sequence_number: int = int32()
    timestamp_ms: int = int64()
    key: bytes = byte_string()
    value: bytes = byte_string()


@message(kind="lease-pid", versions="0")
class LeasedProduceRequest:
    """Append these messages, one after the other, to one partition; the first rejected one ends
    it.
    """

    topic: str = string()
    partition: int = int32()
    timeout_ms: int = int32()
    messages: list[LeasedMessage] = array(LeasedMessage)


@message(kind="lease-pid", versions="0")
class LeasedProduceResponse:
    """`taken` of the messages are in the log, on every replica that may become leader: those
    appended now, from `base_offset` on, and duplicates.

    `repeated` of them were duplicates. `error_code` is why the next one is not in the log.
    `generation` is the one that the partition uses.
    """

    error_code: int = int16(kafka_name="error")
    taken: int = int32()
    repeated: int = int32()
    base_offset: int = int64(default=-1)
    generation: int = int32(default=-1)


@structure
class FoundMessage:
    """A message with its offset in the log, and the leader epoch in which it was written."""

    offset: int = int64()
    leader_epoch: int = int32()
    content: LeasedMessage = struct(LeasedMessage)


@message(kind="lease-pid", versions="0")
class LeasedFetchRequest:
    """Read from an offset on.

    A follower sends its replica id (-1: a consumer) and the leader epoch of the previous message.
    """

    replica_id: int = int32(default=-1)
    topic: str = string()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    offset: int = int64()
    last_epoch: int = int32(default=-1)
    max_wait_ms: int = int32()
    messages_max: int = int32(default=500)


@message(kind="lease-pid", versions="0")
class LeasedFetchResponse:
    """`diverging_offset`: the follower's log diverges from here on, at the latest; it truncates its
    log there and fetches again.
    """

    error_code: int = int16(kafka_name="error")
    leader_epoch: int = int32(default=-1)
    high_watermark: int = int64(default=-1)
    diverging_offset: int = int64(default=-1)
    messages: list[FoundMessage] = array(FoundMessage)


@message(kind="lease-pid", versions="0")
class LeasedLeadersRequest:
    """Request the leaders of the partitions of a topic."""

    topic: str = string()


@structure
class LeasedLeader:
    """-1: no leader."""

    partition: int = int32()
    leader_id: int = int32(default=-1)
    host: str = string()
    port: int = int32()


@message(kind="lease-pid", versions="0")
class LeasedLeadersResponse:
    """Every partition of the topic, in order."""

    error_code: int = int16(kafka_name="error")
    partitions: list[LeasedLeader] = array(LeasedLeader)


# --------------------------------------------------------------------------------------------------
# Request and response headers of lease_pid, and the message of each API key
#
# The header has Kafka's fields in Kafka's order, so that the API key alone distinguishes the two
# protocols.
# Source: the lease_pid draft; RequestHeader v1 of Kafka.


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
