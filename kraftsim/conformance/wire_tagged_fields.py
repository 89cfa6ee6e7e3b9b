"""Tagged fields: a node skips unknown ones, in every position.

KIP-482 requires ascending tags; Apache Kafka writes them so and reads them in any order, so a
compatible node reads them in any order, too.
Source: KIP-482; MessageDataGenerator; ByteBufferAccessor.readUnsignedVarint; verified against
Apache Kafka 3.5.2, 3.9.1, 4.1.2 and 4.4.0.
"""

from kraftsim.conformance.expect import expect_equal
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.wire_bytes import (
    NO_TAGS,
    answer_on,
    answers,
    api_versions_3,
    body_on,
    closes,
    head,
    int32,
    metadata,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchResponse

REQUIREMENTS = Requirements("wire", 5, "Tagged fields")
TAGGED = "KIP-482"
READER = "MessageDataGenerator: tags are read in the order in which they come"
VARINT = "ByteBufferAccessor.readUnsignedVarint"
TAGGED_FETCH = 12
UNKNOWN_TAG = 99


def _tag(tag: int, content: bytes) -> bytes:
    return _varint(tag) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*written, value))


def _tags(*fields: bytes) -> bytes:
    return _varint(len(fields)) + b"".join(fields)


def _in_header_and_body(tags: bytes) -> dict[str, bytes]:
    return {
        "tags of the header": metadata(header_tags=tags),
        "tags of the body": metadata(body_tags=tags),
    }


def _fetch(tags: bytes) -> bytes:
    """Fetch of nothing in its first version with tagged fields: tag 0 is a cluster id, which
    brokers ignore.
    """
    limits = int32(-1) + int32(0) + int32(0) + int32(1000) + b"\x00" + int32(0) + int32(-1)
    return head(ApiKey.FETCH, TAGGED_FETCH) + NO_TAGS + limits + b"\x01\x01\x01" + tags


@REQUIREMENTS.that(1, "an unknown tagged field of a header is ignored", source=TAGGED)
def unknown_in_header(target: Target) -> None:
    answers(target, {"one field": metadata(header_tags=_tags(_tag(UNKNOWN_TAG, b"abc")))})


@REQUIREMENTS.that(2, "an unknown tagged field of a body is ignored", source=TAGGED)
def unknown_in_body(target: Target) -> None:
    answers(
        target,
        {
            "Metadata": metadata(body_tags=_tags(_tag(UNKNOWN_TAG, b"abc"))),
            "ApiVersions": api_versions_3(tags=_tags(_tag(5, b"x"))),
        },
    )


@REQUIREMENTS.that(
    3, "an unknown tagged field of a structure inside a body is ignored", source=TAGGED
)
def unknown_in_structure(target: Target) -> None:
    topic = b"\x05none" + _tags(_tag(UNKNOWN_TAG, b"abc"), _tag(UNKNOWN_TAG + 1, b""))
    answers(target, {"two topics": metadata(topics=b"\x03" + topic + topic)})


@REQUIREMENTS.that(4, "several unknown tagged fields are ignored", source=TAGGED)
def several(target: Target) -> None:
    answers(
        target, _in_header_and_body(_tags(*(_tag(tag, bytes([tag]) * tag) for tag in range(1, 40))))
    )


@REQUIREMENTS.that(5, "more than 127 unknown tagged fields are ignored", source=TAGGED)
def very_many(target: Target) -> None:
    answers(target, _in_header_and_body(_tags(*(_tag(tag, b"") for tag in range(100, 400)))))


@REQUIREMENTS.that(6, "an unknown tagged field without content is ignored", source=TAGGED)
def empty_field(target: Target) -> None:
    answers(target, _in_header_and_body(_tags(_tag(UNKNOWN_TAG, b""))))


@REQUIREMENTS.that(7, "a large unknown tagged field is ignored", source=TAGGED)
def large_field(target: Target) -> None:
    answers(target, _in_header_and_body(_tags(_tag(UNKNOWN_TAG, b"x" * 100_000))))


@REQUIREMENTS.that(8, "the highest tags are ignored like all unknown ones", source=VARINT)
def highest_tags(target: Target) -> None:
    for tag in (127, 128, 2**28, 2**31 - 1, 2**32 - 1):
        answers(target, _in_header_and_body(_tags(_tag(tag, b"x"))))


@REQUIREMENTS.that(9, "unknown tagged fields are ignored in any order", source=READER)
def out_of_order(target: Target) -> None:
    answers(
        target, _in_header_and_body(_tags(_tag(UNKNOWN_TAG, b"x"), _tag(7, b"yz"), _tag(50, b"")))
    )


@REQUIREMENTS.that(10, "a duplicate unknown tagged field is ignored", source=READER)
def duplicates(target: Target) -> None:
    answers(target, _in_header_and_body(_tags(_tag(UNKNOWN_TAG, b"x"), _tag(UNKNOWN_TAG, b"yz"))))


@REQUIREMENTS.that(
    11,
    "a known tagged field is read among unknown ones, in any order, and when duplicated",
    source=READER,
)
def known_beside_unknown(target: Target) -> None:
    cluster = _tag(0, b"\x02c")
    rows = {
        "alone": _tags(cluster),
        "before an unknown one": _tags(cluster, _tag(UNKNOWN_TAG, b"x")),
        "behind an unknown one": _tags(_tag(UNKNOWN_TAG, b"x"), cluster),
        "twice": _tags(cluster, cluster),
        "null": _tags(_tag(0, b"\x00")),
    }
    for what, tags in rows.items():
        with target.peer() as peer:
            answer = body_on(peer, _fetch(tags), f"a cluster id {what}")
            assert isinstance(answer, FetchResponse), "the request was Fetch"
            expect_equal(answer.error_code, int(ErrorCode.NONE), f"a cluster id {what}: error code")


@REQUIREMENTS.that(12, "unknown tagged fields do not change the response", source=TAGGED)
def answers_are_the_same(target: Target) -> None:
    tags = _tags(_tag(UNKNOWN_TAG, b"abc"))
    with target.peer() as peer:
        plain = answer_on(peer, api_versions_3(), "ApiVersions without tagged fields")
        tagged = answer_on(peer, api_versions_3(tags=tags), "ApiVersions with one")
        expect_equal(tagged, plain, "the answer to ApiVersions")


@REQUIREMENTS.that(
    13, "a tagged field that is longer than its frame closes the connection", source=TAGGED
)
def field_beyond_the_frame(target: Target) -> None:
    closes(
        target,
        {
            f"{size} bytes declared, 1 present": metadata(
                body_tags=b"\x01\x63" + _varint(size) + b"x"
            )
            for size in (2, 127, 2**28, 2**32 - 1)
        },
    )
    closes(target, {"in the header": head(ApiKey.METADATA, 9) + b"\x01\x05\x7fx"})


@REQUIREMENTS.that(14, "fewer tagged fields than announced close the connection", source=TAGGED)
def too_many_said(target: Target) -> None:
    closes(
        target,
        {"three declared, one present": metadata(body_tags=b"\x03" + _tag(UNKNOWN_TAG, b"x"))},
    )
    closes(target, {"in the header": head(ApiKey.METADATA, 9) + b"\x7f" + _tag(5, b"")})


@REQUIREMENTS.that(
    15, "a body without the number of its tagged fields closes the connection", source=TAGGED
)
def missing_count(target: Target) -> None:
    closes(
        target, {"Metadata v9": metadata(body_tags=b""), "ApiVersions v3": api_versions_3(tags=b"")}
    )


@REQUIREMENTS.that(16, "a varint may be longer than necessary", source=VARINT)
def overlong_varint(target: Target) -> None:
    answers(
        target,
        {
            "no tags in two bytes": metadata(header_tags=b"\x80\x00"),
            "no tags in five": metadata(body_tags=b"\x80\x80\x80\x80\x00"),
        },
    )


@REQUIREMENTS.that(17, "a varint of more than five bytes closes the connection", source=VARINT)
def endless_varint(target: Target) -> None:
    closes(
        target,
        {
            "six bytes": metadata(header_tags=b"\x80\x80\x80\x80\x80\x00"),
            "in the body": metadata(body_tags=b"\xff\xff\xff\xff\xff\x01"),
        },
    )
