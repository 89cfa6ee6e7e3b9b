"""The bytes of lease_pid: the fields of the draft in its order, and unknown frames.

Source: the lease_pid draft.
"""

from collections.abc import Mapping
from copy import copy
from typing import TypeVar

import pytest
from crc32c import crc32c

from protocol.lease_pid.messages import (
    ASKS_FOR_ONE,
    REQUESTS,
    FoundMessage,
    GrantedLease,
    LeaseApi,
    LeasedMessage,
    LeasedRequestHeader,
    LeasePidRequest,
    LeasePidResponse,
    WantedLease,
    build_request,
    build_response,
    correlation_id_of,
    parse_request,
    parse_response,
)
from protocol.lease_pid.stored import (
    SIZE_AND_CHECKSUM,
    StoredMessage,
    StoredPartition,
    StoredSnapshot,
    build_stored,
    parse_snapshot,
    split_stored,
)
from protocol.malformed import MalformedMessage
from tools.bench.bench_leases import message_bytes
from tools.claims.recording import Figures

CORRELATION_ID_BYTES = 4
HEADER_BYTES = 2 + 2 + CORRELATION_ID_BYTES + 2 + 1
"""API, version, correlation id, and a client id of one letter."""
T = TypeVar("T")


def replaced(body: T, **changed: object) -> T:
    """Return a message with other values."""
    other = copy(body)
    for name, value in changed.items():
        setattr(other, name, value)
    return other


def header(api: int, version: int) -> LeasedRequestHeader:
    return LeasedRequestHeader(api_key=api, api_version=version, correlation_id=7, client_id="a")


def in_order(plain: bytes, others: Mapping[str, bytes]) -> list[str]:
    """Return the fields of a frame in order, determined by the bytes that change with the value of
    a field.
    """
    first = {
        name: next(
            place for place, pair in enumerate(zip(plain, other, strict=True)) if pair[0] != pair[1]
        )
        for name, other in others.items()
    }
    return sorted(first, key=first.__getitem__)


def test_the_draft_request_is_topic_partition_pid_expire_ms(figures: Figures) -> None:
    plain = LeasePidRequest(topic="t", partition=1, expire_ms=5)
    frame = build_request(header(LeaseApi.LEASE_PID, 0), plain)
    assert (
        frame.hex()
        == "03e80000000000070001" + "61" + "000174" + "00000001" + "ffffffff" + "0000000000000005"
    )
    others = {"topic": "u", "partition": 2, "producer_id": 9, "expire_ms": 6}
    frames = {
        name: build_request(header(LeaseApi.LEASE_PID, 0), replaced(plain, **{name: value}))
        for name, value in others.items()
    }
    fields = in_order(frame, frames)
    assert fields == list(others)
    figures(request_fields=fields, request_bytes=len(frame) - HEADER_BYTES)


def test_the_draft_response_is_error_pid_generation_sequence_expire_ms(figures: Figures) -> None:
    body = LeasePidResponse(
        error_code=0, producer_id=1, generation=2, sequence_number=0, expire_ms=5
    )
    frame = build_response(7, 0, body)
    assert (
        frame.hex()
        == "00000007" + "0000" + "00000001" + "00000002" + "00000000" + "0000000000000005"
    )
    assert correlation_id_of(frame) == 7
    assert parse_response(LeaseApi.LEASE_PID, 0, frame) == body
    others = {
        "error_code": 3,
        "producer_id": 9,
        "generation": 9,
        "sequence_number": 9,
        "expire_ms": 9,
    }
    fields = in_order(
        frame,
        {
            name: build_response(7, 0, replaced(body, **{name: value}))
            for name, value in others.items()
        },
    )
    assert fields == list(others)
    figures(answer_fields=fields, answer_bytes=len(frame) - CORRELATION_ID_BYTES)


def test_the_batch_request_has_many_entries_and_a_read_only_flag() -> None:
    asked = LeasePidRequest(
        leases=[
            WantedLease(topic="t", partition=2, producer_id=101, expire_ms=9, is_check=True),
            WantedLease(topic="u"),
        ]
    )
    _, body = parse_request(build_request(header(LeaseApi.LEASE_PID, 1), asked))
    assert body == asked and body.leases[1].producer_id == ASKS_FOR_ONE == 2**32 - 1
    response = LeasePidResponse(
        leases=[
            GrantedLease(
                topic="t",
                partition=2,
                producer_id=101,
                generation=4,
                sequence_number=9,
                expire_ms=9,
            )
        ]
    )
    assert parse_response(LeaseApi.LEASE_PID, 1, build_response(7, 1, response)) == response


@pytest.mark.parametrize(
    "api, version", [(0, 0), (999, 0), (1004, 0), (LeaseApi.LEASE_PID, 2), (LeaseApi.PRODUCE, -1)]
)
def test_unknown_lease_requests_are_refused(api: int, version: int) -> None:
    frame = build_request(
        LeasedRequestHeader(api_key=LeaseApi.LEADERS, api_version=0),
        REQUESTS[LeaseApi.LEADERS](topic="t"),
    )
    with pytest.raises(MalformedMessage):
        parse_request(api.to_bytes(2) + version.to_bytes(2, signed=True) + frame[4:])


@pytest.mark.parametrize("api", REQUESTS)
def test_a_truncated_or_oversized_frame_is_refused(api: LeaseApi) -> None:
    whole = build_request(header(api, 0), REQUESTS[api](topic="topic"))
    parse_request(whole)
    with pytest.raises(MalformedMessage):
        parse_request(whole + b"\0")
    for size in range(len(whole)):
        with pytest.raises(MalformedMessage):
            parse_request(whole[:size])


def test_a_logged_message_has_its_producer_in_three_ints(figures: Figures) -> None:
    """LP-03: 12 bytes in each message, between the leadership and the timestamp; the next message
    follows immediately.
    """
    content = LeasedMessage(
        producer_id=0xA1A2A3A4,
        generation=0x11121314,
        sequence_number=0x21222324,
        timestamp_ms=0x31,
        key=b"k",
        value=b"vw",
    )
    stored = build_stored(
        StoredMessage(
            arrived_ms=0x41, found=FoundMessage(offset=0x51, leader_epoch=0x61, content=content)
        )
    )
    fields = {
        "arrived_ms": "0000000000000041",
        "offset": "0000000000000051",
        "leader_epoch": "00000061",
        "pid": "a1a2a3a4",
        "generation": "11121314",
        "sequence_number": "21222324",
        "timestamp_ms": "0000000000000031",
        "key": "00000001" + b"k".hex(),
        "value": "00000002" + b"vw".hex(),
    }
    assert stored[SIZE_AND_CHECKSUM.size :].hex() == "".join(fields.values())
    assert int.from_bytes(stored[:4]) == len(stored) - SIZE_AND_CHECKSUM.size
    assert int.from_bytes(stored[4:8]) == crc32c(stored[8:])
    sizes = {name: len(text) // 2 for name, text in fields.items()}
    assert sizes["pid"] + sizes["generation"] + sizes["sequence_number"] == 12
    assert {**sizes, "key": 4, "value": 4, "size and checksum": 8} == message_bytes()
    assert [end for _, end in split_stored(stored + stored)] == [len(stored), 2 * len(stored)]
    ints = [name for name in fields if name in ("pid", "generation", "sequence_number")]
    figures(
        producer_fields=", ".join(ints),
        producer_bytes=sum(sizes[name] for name in ints),
        fixed_bytes=len(stored) - len(b"kvw"),
    )


def test_a_lease_log_ends_at_a_torn_or_damaged_message() -> None:
    stored = [
        StoredMessage(
            arrived_ms=number,
            found=FoundMessage(offset=number, content=LeasedMessage(producer_id=1, value=b"v")),
        )
        for number in range(3)
    ]
    whole = b"".join(map(build_stored, stored))
    each = len(whole) // 3
    assert [message for message, _ in split_stored(whole)] == stored
    assert [position for _, position in split_stored(whole[:-1])] == [each, 2 * each]
    for position in range(each, 2 * each):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        assert [message.arrived_ms for message, _ in split_stored(bytes(damaged))] == [0]


def test_a_damaged_snapshot_is_ignored() -> None:
    whole = build_stored(
        StoredSnapshot(partitions=[StoredPartition(topic="t", partition=1, next_offset=3)])
    )
    assert parse_snapshot(whole).partitions[0].next_offset == 3
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        with pytest.raises(MalformedMessage):
            parse_snapshot(bytes(damaged))
