"""Malformed bodies close the connection without a response, and cost neither time nor memory.

Source: RequestContext.parseRequest; MessageDataGenerator; ByteBufferAccessor.
"""

from kraftsim.conformance.expect import expect_equal
from kraftsim.conformance.peer import framed, request_bytes
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.wire_bytes import (
    NO_TAGS,
    answer_on,
    answers,
    api_versions_3,
    body_on,
    closes,
    closes_after,
    head,
    int16,
    int32,
    metadata,
    still_answers,
    string,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest

REQUIREMENTS = Requirements("wire", 7, "Malformed bodies")
PARSE = "RequestContext.parseRequest"
GENERATOR = "MessageDataGenerator"
ACCESSOR = "ByteBufferAccessor.readArray"


def _rigid_metadata(version: int, rest: bytes) -> bytes:
    return head(ApiKey.METADATA, version) + rest


def _produce(records: bytes) -> bytes:
    """Produce v3 to partition 0 of an unknown topic."""
    return (
        head(ApiKey.PRODUCE, 3)
        + int16(-1)
        + int16(1)
        + int32(1000)
        + int32(1)
        + string(b"no-such-topic")
        + int32(1)
        + int32(0)
        + records
    )


@REQUIREMENTS.that(
    1, "a body that ends before its last field closes the connection, at every length", source=PARSE
)
def truncated_bodies(target: Target) -> None:
    init = request_bytes(
        InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60000), 4, 1
    )[4:]
    header = len(head(ApiKey.METADATA, 9)) + len(NO_TAGS)
    for what, whole, start in (
        ("Metadata", metadata(topics=b"\x02\x05name\x00"), header),
        ("ApiVersions", api_versions_3(), header),
        ("InitProducerId", init, init.index(b"\x02t")),
    ):
        for size in range(start, len(whole)):
            closes_after(
                target, framed(whole[:size]), f"{what} truncated after {size} of {len(whole)} bytes"
            )
    still_answers(target)


@REQUIREMENTS.that(2, "bytes after a complete body are ignored", source=PARSE)
def bytes_behind_the_body(target: Target) -> None:
    answers(
        target,
        {
            "Metadata v9": metadata() + b"more",
            "Metadata v1": _rigid_metadata(1, int32(0) + b"\xff" * 50),
            "ApiVersions v3": api_versions_3() + b"\0",
        },
    )


@REQUIREMENTS.that(
    3,
    "an array that is longer than its frame closes the connection and costs no memory",
    source=ACCESSOR,
)
def array_beyond_the_frame(target: Target) -> None:
    closes(
        target,
        {
            f"{count} topics said": _rigid_metadata(1, int32(count))
            for count in (1, 2, 1_000_000, 2**31 - 1)
        },
    )


@REQUIREMENTS.that(
    4,
    "a compact array that is longer than its frame closes the connection and costs no memory",
    source=ACCESSOR,
)
def compact_array_beyond_the_frame(target: Target) -> None:
    enormous = b"\xff\xff\xff\xff\x07"
    closes(
        target,
        {
            "two thousand million topics": metadata(topics=enormous),
            "three declared, one present": metadata(topics=b"\x04\x02a\x00", body_tags=b""),
        },
    )


@REQUIREMENTS.that(
    5,
    "an array of negative length closes the connection where null is not allowed",
    source=GENERATOR,
)
def negative_array(target: Target) -> None:
    closes(
        target,
        {
            f"a length of {length}": _rigid_metadata(0, int32(length))
            for length in (-1, -2, -(2**31))
        },
    )


@REQUIREMENTS.that(
    6,
    "any negative array length is null where null is allowed",
    source=f"{GENERATOR}: arrayLength < 0",
)
def negative_array_is_null(target: Target) -> None:
    answers(
        target,
        {
            f"a length of {length}": _rigid_metadata(1, int32(length))
            for length in (-1, -2, -(2**31))
        },
    )


@REQUIREMENTS.that(7, "a compact array of length 0 is null where null is allowed", source="KIP-482")
def compact_null_array(target: Target) -> None:
    answers(target, {"all topics": metadata(topics=b"\x00")})


@REQUIREMENTS.that(
    8,
    "a string of negative length closes the connection where null is not allowed",
    source=GENERATOR,
)
def negative_string(target: Target) -> None:
    closes(
        target,
        {
            f"a length of {length}": _rigid_metadata(0, int32(1) + int16(length))
            for length in (-1, -2, -32768)
        },
    )


@REQUIREMENTS.that(
    9, "any negative string length is null where null is allowed", source=f"{GENERATOR}: length < 0"
)
def negative_string_is_null(target: Target) -> None:
    timeout = int32(60000)
    answers(
        target,
        {
            f"a length of {length}": head(ApiKey.INIT_PRODUCER_ID, 0) + int16(length) + timeout
            for length in (-1, -5, -32768)
        },
    )


@REQUIREMENTS.that(
    10,
    "a compact string of length 0 is null, and closes the connection where null is not allowed",
    source="KIP-482",
)
def compact_null_string(target: Target) -> None:
    closes(
        target,
        {
            "a software name": api_versions_3(name=b"\x00"),
            "a software version": api_versions_3(software_version=b"\x00"),
        },
    )


@REQUIREMENTS.that(
    11, "a string that is longer than its frame closes the connection", source=GENERATOR
)
def string_beyond_the_frame(target: Target) -> None:
    closes(
        target,
        {
            "32767 bytes declared, 1 present": _rigid_metadata(1, int32(1) + int16(32767) + b"t"),
            "compact": api_versions_3(name=b"\x7fx"),
        },
    )


@REQUIREMENTS.that(
    12,
    "a string of 32767 bytes is accepted, a longer compact one closes the connection",
    source=f"{GENERATOR}: 0x7fff",
)
def longest_string(target: Target) -> None:
    answers(target, {"32767 bytes": metadata(topics=b"\x02\x80\x80\x02" + b"x" * 32767 + NO_TAGS)})
    closes(target, {"32768 bytes": metadata(topics=b"\x02\x81\x80\x02" + b"x" * 32768 + NO_TAGS)})


@REQUIREMENTS.that(
    13,
    "a length whose varint has more than five bytes closes the connection",
    source="ByteBufferAccessor.readUnsignedVarint",
)
def endless_length(target: Target) -> None:
    closes(
        target,
        {
            "of an array": metadata(topics=b"\xff\xff\xff\xff\xff\x01"),
            "of a string": api_versions_3(name=b"\x80\x80\x80\x80\x80\x02x"),
        },
    )


@REQUIREMENTS.that(
    14,
    "a name with invalid UTF-8 is decoded, and rejected as a topic name with "
    "INVALID_TOPIC_EXCEPTION",
    source="Readable.readString: malformed input is replaced",
)
def bad_utf8(target: Target) -> None:
    for name in (b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80"):
        with target.peer() as peer:
            answer = body_on(
                peer, _rigid_metadata(1, int32(1) + string(name)), f"a topic called {name!r}"
            )
            assert isinstance(answer, MetadataResponse), "the request was Metadata"
            expect_equal(
                [topic.error_code for topic in answer.topics],
                [int(ErrorCode.INVALID_TOPIC_EXCEPTION)],
                f"error codes for {name!r}",
            )


@REQUIREMENTS.that(15, "a boolean is true unless it is 0", source=f"{GENERATOR}: readByte() != 0")
def odd_booleans(target: Target) -> None:
    with target.peer() as peer:
        plain = answer_on(peer, _rigid_metadata(8, int32(0) + b"\x00\x01\x00"), "true as 1")[-4:]
        for value in (2, 0x7F, 0x80, 0xFF):
            odd = answer_on(
                peer, _rigid_metadata(8, int32(0) + bytes((0, value, 0))), f"true as {value}"
            )
            expect_equal(
                odd[-4:],
                plain,
                f"the cluster's operations, which are returned on request, where true is {value}",
            )


@REQUIREMENTS.that(
    16,
    "records that are longer than their frame close the connection",
    source="ByteBufferAccessor.readRecords",
)
def records_beyond_the_frame(target: Target) -> None:
    closes(
        target,
        {
            f"{size} bytes declared, 1 present": _produce(int32(size) + b"x")
            for size in (2, 1_000_000, 2**31 - 1)
        },
    )


@REQUIREMENTS.that(
    17,
    "after a malformed body on one connection the client's other connections stay usable",
    source=PARSE,
)
def others_go_on(target: Target) -> None:
    with target.peer() as steady:
        answer_on(steady, metadata(1), "before")
        closes_after(
            target, framed(_rigid_metadata(0, int32(-1))), "a bad body on another connection"
        )
        answer_on(steady, metadata(2), "after")


@REQUIREMENTS.that(
    18, "a request before a malformed body in the same piece is answered", source=PARSE
)
def good_before_bad_body(target: Target) -> None:
    with target.peer() as peer:
        peer.send_bytes(framed(metadata(1)) + framed(_rigid_metadata(0, int32(-1))))
        frame = peer.receive_frame()
        expect_equal(frame[:4], int32(1), "correlation id")
        if not peer.is_closed_by_node():
            expect_equal("open", "closed", "the connection after a malformed body")
