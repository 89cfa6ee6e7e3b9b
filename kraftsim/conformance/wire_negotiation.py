"""Version negotiation: ApiVersions, which is answered in any version.

Source: KIP-35, KIP-511; ApiVersionsRequest, RequestContext.parseRequest.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.peer import framed
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.wire_bytes import (
    NO_TAGS,
    UNBORN_VERSION,
    answer_on,
    answers,
    api_versions,
    api_versions_3,
    closes,
    head,
    int16,
    int32,
    metadata,
    next_answer,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

REQUIREMENTS = Requirements("wire", 4, "Version negotiation")
ERROR_RESPONSE = "KIP-511; ApiVersionsRequest.getErrorResponse"
IS_VALID = "KIP-511; ApiVersionsRequest.isValid"
NAMED_SINCE = 3
LAST_RIGID = 2


def _named() -> ApiVersionsRequest:
    """A request with the client's software name and version, which are required since version 3."""
    return ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1.0")


def _refusal(target: Target, correlation_id: int) -> bytes:
    """The response in version 0 that contains the range of ApiVersions and nothing else."""
    first, last = target.range_of(ApiKey.API_VERSIONS)
    row = int16(ApiKey.API_VERSIONS) + int16(first) + int16(last)
    return int32(correlation_id) + int16(ErrorCode.UNSUPPORTED_VERSION) + int32(1) + row


@REQUIREMENTS.that(
    1, "every advertised version of ApiVersions returns the same list", source="KIP-35"
)
def same_list_in_every_version(target: Target) -> None:
    lists = {}
    with target.peer() as peer:
        for version in target.versions(ApiKey.API_VERSIONS):
            answer = peer.ask(
                _named() if version >= NAMED_SINCE else ApiVersionsRequest(),
                version,
                ApiVersionsResponse,
            )
            expect_error(answer.error_code, ErrorCode.NONE, f"version {version}")
            lists[version] = [
                (row.api_key, row.min_version, row.max_version) for row in answer.api_keys
            ]
    expect(len(set(map(tuple, lists.values()))) == 1, "the lists differ between versions")


@REQUIREMENTS.that(
    2,
    "the list contains each API once, in ascending order, with a non-empty range",
    source="KIP-35; ApiVersionsResponse.filterApis",
)
def sane_ranges(target: Target) -> None:
    with target.peer() as peer:
        answer = peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    keys = [row.api_key for row in answer.api_keys]
    expect_equal(keys, sorted(set(keys)), "api keys in ascending order, each once")
    expect(ApiKey.API_VERSIONS in keys, "the list does not name ApiVersions itself")
    wrong = [
        (row.api_key, row.min_version, row.max_version)
        for row in answer.api_keys
        if not 0 <= row.min_version <= row.max_version
    ]
    expect_equal(wrong, [], "ranges that begin below 0 or end before they begin")


@REQUIREMENTS.that(
    3,
    "an unsupported version is answered in version 0 with UNSUPPORTED_VERSION and the range of "
    "ApiVersions only",
    source=ERROR_RESPONSE,
)
def too_high_a_version(target: Target) -> None:
    last = target.range_of(ApiKey.API_VERSIONS)[1]
    with target.peer() as peer:
        for number, version in enumerate((last + 1, UNBORN_VERSION, 32767)):
            frame = answer_on(
                peer, head(ApiKey.API_VERSIONS, version, number) + NO_TAGS, f"version {version}"
            )
            expect_equal(
                frame, _refusal(target, number), f"version {version}: the answer, byte for byte"
            )


@REQUIREMENTS.that(
    4,
    "a negative version of ApiVersions is answered like one that is too high",
    source=ERROR_RESPONSE,
)
def negative_version(target: Target) -> None:
    with target.peer() as peer:
        for number, version in enumerate((-1, -32768)):
            frame = answer_on(
                peer, head(ApiKey.API_VERSIONS, version, number), f"version {version}"
            )
            expect_equal(
                frame, _refusal(target, number), f"version {version}: the answer, byte for byte"
            )


@REQUIREMENTS.that(
    5,
    "the body of an unsupported version is ignored",
    source="RequestContext.parseRequest: an unsupported ApiVersions",
)
def body_of_the_future(target: Target) -> None:
    with target.peer() as peer:
        frame = answer_on(
            peer,
            head(ApiKey.API_VERSIONS, UNBORN_VERSION) + NO_TAGS + b"\xff" * 100,
            "a random body",
        )
        expect_equal(frame, _refusal(target, 1), "the answer, byte for byte")


@REQUIREMENTS.that(
    6, "an unsupported version must have header v2", source="ApiMessageType.requestHeaderVersion"
)
def header_of_the_future(target: Target) -> None:
    closes(target, {"header v1": head(ApiKey.API_VERSIONS, UNBORN_VERSION)})


@REQUIREMENTS.that(
    7,
    "after an unsupported version the same connection serves a lower one",
    source="KIP-511: the client retries",
)
def lower_version_after_unsupported(target: Target) -> None:
    with target.peer() as peer:
        for number in range(3):
            answer_on(
                peer,
                head(ApiKey.API_VERSIONS, UNBORN_VERSION, number) + NO_TAGS,
                "a version that is too high",
            )
            answer_on(peer, api_versions(number), "version 0 after it")
            answer_on(peer, metadata(number), "Metadata after it")


@REQUIREMENTS.that(
    8,
    "an unsupported version and the following requests in the same piece are answered in order",
    source=ERROR_RESPONSE,
)
def refusal_in_a_pipeline(target: Target) -> None:
    payloads = [
        metadata(1),
        head(ApiKey.API_VERSIONS, UNBORN_VERSION, 2) + NO_TAGS,
        metadata(3),
        api_versions(4),
    ]
    with target.peer() as peer:
        peer.send_bytes(b"".join(map(framed, payloads)))
        for number, payload in enumerate(payloads, start=1):
            next_answer(peer, payload, f"request {number}")


@REQUIREMENTS.that(9, "ApiVersions is optional", source="KIP-35: a client may know")
def negotiation_is_no_duty(target: Target) -> None:
    with target.peer() as peer:
        answer_on(peer, metadata(), "Metadata as the first request of a connection")


@REQUIREMENTS.that(
    10,
    "ApiVersions may be sent at any time, and repeatedly",
    source="KafkaApis.handleApiVersionsRequest",
)
def sent_repeatedly(target: Target) -> None:
    with target.peer() as peer:
        for number in range(3):
            answer_on(peer, metadata(number), "Metadata")
            answer_on(peer, api_versions_3(number), "ApiVersions v3")
            answer_on(peer, api_versions(number), "ApiVersions v0")


@REQUIREMENTS.that(
    11,
    "an invalid software name or version returns INVALID_REQUEST and an empty list",
    source=IS_VALID,
)
def illegal_software_names(target: Target) -> None:
    wrong = [
        ("", "1.0"),
        ("-x", "1.0"),
        ("x-", "1.0"),
        ("a b", "1.0"),
        ("kraftsim", ""),
        ("kraftsim", ".1"),
        ("kraftsim", "1 0"),
        ("ü", "1"),
    ]
    with target.peer() as peer:
        for version in target.versions(ApiKey.API_VERSIONS, since=NAMED_SINCE):
            for name, software_version in wrong:
                answer = peer.ask(
                    ApiVersionsRequest(
                        client_software_name=name, client_software_version=software_version
                    ),
                    version,
                    ApiVersionsResponse,
                )
                expect_error(
                    answer.error_code,
                    ErrorCode.INVALID_REQUEST,
                    f"version {version}, name {name!r} {software_version!r}",
                )
                expect_equal(len(answer.api_keys), 0, "rows of the list")


@REQUIREMENTS.that(
    12,
    "software names of letters, digits, and inner dots and hyphens are accepted",
    source=IS_VALID,
)
def legal_software_names(target: Target) -> None:
    with target.peer() as peer:
        for version in target.versions(ApiKey.API_VERSIONS, since=NAMED_SINCE):
            for name, software_version in (
                ("a", "1"),
                ("apache-kafka-java", "3.9.1"),
                ("x.y-z", "v1-rc.2"),
                ("n" * 1000, "0"),
            ):
                answer = peer.ask(
                    ApiVersionsRequest(
                        client_software_name=name, client_software_version=software_version
                    ),
                    version,
                    ApiVersionsResponse,
                )
                expect_error(
                    answer.error_code,
                    ErrorCode.NONE,
                    f"version {version}, name {name[:20]!r} {software_version!r}",
                )


@REQUIREMENTS.that(
    13, "after an invalid software name the connection stays usable", source=IS_VALID
)
def usable_after_invalid_name(target: Target) -> None:
    answers(target, {"an illegal software name": api_versions_3(name=b"\x02-")})


@REQUIREMENTS.that(
    14,
    "versions 0 to 2 of ApiVersions have no body, and trailing bytes are ignored",
    source="ApiVersionsRequest.json",
)
def no_body_before_version_3(target: Target) -> None:
    for version in range(LAST_RIGID + 1):
        answers(
            target,
            {
                f"version {version} with some bytes": head(ApiKey.API_VERSIONS, version)
                + b"\xff\x00some"
            },
        )


@REQUIREMENTS.that(
    15,
    "Produce is advertised from version 0 on, although versions below 3 are no longer served",
    source="KAFKA-18659; KIP-896",
    since="4.0",
)
def old_produce_is_shown(target: Target) -> None:
    expect_equal(
        target.range_of(ApiKey.PRODUCE)[0], 0, "the first version of Produce that is advertised"
    )
    closes(
        target,
        {
            f"Produce v{version}": head(ApiKey.PRODUCE, version) + int16(1) + int32(1000) + int32(0)
            for version in range(3)
        },
    )
