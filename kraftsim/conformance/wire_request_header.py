"""Request headers: v1 has a client id, v2 also tagged fields, v0 has neither.

Source: RequestHeader.json; RequestHeader.parse; ApiMessageType.requestHeaderVersion.
"""

from kraftsim.conformance.expect import Inapplicable, expect_equal
from kraftsim.conformance.peer import framed
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.wire_bytes import (
    NO_TAGS,
    answer_on,
    answers,
    api_versions,
    closes,
    head,
    int16,
    int32,
    metadata,
    string,
)
from protocol.api_keys import ApiKey

REQUIREMENTS = Requirements("wire", 2, "Request headers")
HEADER = "RequestHeader.json"
LAST_RIGID_METADATA = 8


def _in_both_headers(client_id: bytes) -> dict[str, bytes]:
    return {
        "header v1": api_versions(client_id=client_id),
        "header v2": metadata(client_id=client_id),
    }


@REQUIREMENTS.that(1, "a truncated header closes the connection", source="RequestHeader.parse")
def truncated_header(target: Target) -> None:
    header = head(ApiKey.METADATA, 1)
    closes(target, {f"a header of {size} bytes": header[:size] for size in range(1, len(header))})


@REQUIREMENTS.that(2, "a null client id is accepted", source=HEADER)
def null_client_id(target: Target) -> None:
    answers(target, _in_both_headers(int16(-1)))


@REQUIREMENTS.that(
    3, "any negative length of a client id is null", source="MessageDataGenerator: length < 0"
)
def negative_client_id_length(target: Target) -> None:
    for length in (-2, -32768):
        answers(target, _in_both_headers(int16(length)))


@REQUIREMENTS.that(4, "an empty client id is accepted", source=HEADER)
def empty_client_id(target: Target) -> None:
    answers(target, _in_both_headers(string(b"")))


@REQUIREMENTS.that(5, "a client id in any script is accepted", source=HEADER)
def foreign_client_ids(target: Target) -> None:
    for name in ("ü", "κράτος", "生産者", "\N{BEAR FACE}", "a b\tc\x00d"):
        answers(target, _in_both_headers(string(name.encode())))


@REQUIREMENTS.that(6, "a client id of 32767 bytes is accepted", source=HEADER)
def longest_client_id(target: Target) -> None:
    answers(target, _in_both_headers(string(b"x" * 32767)))


@REQUIREMENTS.that(
    7,
    "a client id with invalid UTF-8 is accepted",
    source="Readable.readString: malformed input is replaced",
)
def client_id_of_bad_utf8(target: Target) -> None:
    for name in (b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"a\x80b"):
        answers(target, _in_both_headers(string(name)))


@REQUIREMENTS.that(
    8,
    "a client id that is longer than its frame closes the connection",
    source="RequestHeader.parse",
)
def client_id_beyond_the_frame(target: Target) -> None:
    closes(
        target,
        {
            f"{length} bytes declared, 3 present": head(18, 0, client_id=int16(length) + b"abc")
            for length in (4, 50, 32767)
        },
    )


@REQUIREMENTS.that(
    9,
    "the client id has a two-byte length in header v2, too",
    source="RequestHeader.json: flexibleVersions none",
)
def client_id_is_never_compact(target: Target) -> None:
    answers(target, {"a client id of 5 bytes": metadata(client_id=string(b"plain"))})
    closes(target, {"a compact client id": metadata(client_id=b"\x06plain")})


@REQUIREMENTS.that(
    10, "a header v2 without its tagged fields closes the connection", source="KIP-482"
)
def header_without_tags(target: Target) -> None:
    closes(target, {"the frame ends after the client id": head(ApiKey.METADATA, 9)})


@REQUIREMENTS.that(
    11,
    "header v2 is used from the first flexible version of an API on",
    source="ApiMessageType.requestHeaderVersion",
)
def header_by_version(target: Target) -> None:
    rigid = head(ApiKey.METADATA, LAST_RIGID_METADATA) + int32(0) + bytes(3)
    answers(
        target,
        {
            f"Metadata v{LAST_RIGID_METADATA} with header v1": rigid,
            f"Metadata v{LAST_RIGID_METADATA + 1} with header v2": metadata(),
        },
    )


@REQUIREMENTS.that(
    12,
    "every request of a connection may have another client id",
    source="RequestContext: the header is read for each request",
)
def changing_client_ids(target: Target) -> None:
    with target.peer() as peer:
        for number, name in enumerate((b"one", b"two", b"", b"three")):
            answer_on(peer, metadata(number, client_id=string(name)), f"client id {name!r}")


@REQUIREMENTS.that(
    13,
    "ControlledShutdown v0, which has header v0, is accepted by the controllers that support it",
    source="RequestHeader.json: v0; verified against Apache Kafka 3.5.2 and 3.9.1",
    until="3.9",
)
def controlled_shutdown(target: Target) -> None:
    address = target.controller_address()
    if ApiKey.CONTROLLED_SHUTDOWN not in target.ranges(address):
        raise Inapplicable("the controller does not offer ControlledShutdown")
    asked = int16(ApiKey.CONTROLLED_SHUTDOWN) + int16(0) + int32(5) + int32(77)
    with target.peer(address) as peer:
        frame = answer_on(peer, asked, "header v0 and a broker id")
        expect_equal(
            len(frame),
            10,
            "bytes of the answer: correlation id, error code, and a count of partitions",
        )
        unread = framed(api_versions(6))
        peer.send_bytes(unread)
        expect_equal(peer.receive_frame()[:4], int32(6), "correlation id of the next answer")


@REQUIREMENTS.that(
    14,
    "header v1 in a flexible version closes the connection",
    source="ApiMessageType.requestHeaderVersion",
)
def old_header_for_a_flexible_version(target: Target) -> None:
    """The null array of topics is read as the tagged fields of the header, and the body is too
    short.
    """
    whole = metadata(topics=b"")
    assert whole[10:11] == NO_TAGS, "header v2 ends with no tagged fields"
    closes(target, {"Metadata v9 with header v1": whole[:-1]})
