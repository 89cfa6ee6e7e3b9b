"""Response headers: the correlation id, and tagged fields from the first flexible version on,
except for ApiVersions.

Source: ResponseHeader.json; ApiMessageType.responseHeaderVersion; KIP-511 (ApiVersions keeps v0).
"""

from collections.abc import Iterator

from kraftsim.conformance.expect import Unmet, expect_equal
from kraftsim.conformance.peer import request_bytes
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.wire_bytes import answer_on, api_versions, api_versions_3, metadata
from protocol import codec_of, response_class
from protocol.api_keys import ApiKey
from protocol.malformed import MalformedMessage
from protocol.messages.k01_fetch import FetchRequest
from protocol.messages.k02_list_offsets import ListOffsetsRequest
from protocol.messages.k03_metadata import MetadataRequest
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k19_create_topics import CreateTopicsRequest
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.schema import Message, declaration_of

REQUIREMENTS = Requirements("wire", 3, "Response headers")
CORRELATION_ID_BYTES = 4
NAMED_SINCE = 3
"""The first version of ApiVersions that requires the client's software name."""
HARMLESS: dict[ApiKey, Message] = {
    ApiKey.FETCH: FetchRequest(max_wait_ms=0, min_bytes=0),
    ApiKey.LIST_OFFSETS: ListOffsetsRequest(),
    ApiKey.METADATA: MetadataRequest(topics=[]),
    ApiKey.API_VERSIONS: ApiVersionsRequest(
        client_software_name="kraftsim", client_software_version="1.0"
    ),
    ApiKey.CREATE_TOPICS: CreateTopicsRequest(),
    ApiKey.INIT_PRODUCER_ID: InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60000
    ),
}
"""A request of each API without content, or without effect."""


def _frames(target: Target) -> Iterator[tuple[ApiKey, int, bytes]]:
    """Send each API in every version that both sides support; yield key, version and the response
    frame.
    """
    with target.peer() as peer:
        for api_key, body in HARMLESS.items():
            for version in target.versions(api_key):
                asked = (
                    ApiVersionsRequest()
                    if api_key == ApiKey.API_VERSIONS and version < NAMED_SINCE
                    else body
                )
                payload = request_bytes(asked, version, 1000 + version)[4:]
                yield api_key, version, answer_on(peer, payload, f"{api_key.name} v{version}")


def _is_flexible(api_key: ApiKey, version: int) -> bool:
    flexible = declaration_of(response_class(api_key)).flexible
    return flexible is not None and version in flexible


@REQUIREMENTS.that(
    1,
    "a response begins with the correlation id of its request, whatever its value",
    source="ResponseHeader.json",
)
def any_correlation_id(target: Target) -> None:
    with target.peer() as peer:
        for correlation_id in (0, 1, -1, 2**31 - 1, -(2**31), 0x01020304):
            answer_on(peer, api_versions(correlation_id), f"ApiVersions v0 with {correlation_id}")
            answer_on(peer, metadata(correlation_id), f"Metadata v9 with {correlation_id}")


@REQUIREMENTS.that(
    2, "every advertised version of an API is answered", source="KIP-35; ApiVersionManager"
)
def every_version_is_answered(target: Target) -> None:
    for _ in _frames(target):
        pass


@REQUIREMENTS.that(
    3,
    "a response of a flexible version has a header with tagged fields, one of an older version "
    "does not",
    source="ApiMessageType.responseHeaderVersion",
)
def header_by_version(target: Target) -> None:
    for api_key, version, frame in _frames(target):
        if api_key != ApiKey.API_VERSIONS:
            _read(
                api_key,
                version,
                frame,
                CORRELATION_ID_BYTES + (1 if _is_flexible(api_key, version) else 0),
            )
        if api_key != ApiKey.API_VERSIONS and _is_flexible(api_key, version):
            expect_equal(
                frame[4:5],
                b"\x00",
                f"{api_key.name} v{version}: the number of tagged fields in the header",
            )


@REQUIREMENTS.that(
    4,
    "ApiVersions responses have header v0 in every version",
    source="KIP-511; ApiVersionsResponse.json",
)
def api_versions_header(target: Target) -> None:
    with target.peer() as peer:
        for version in target.versions(ApiKey.API_VERSIONS):
            asked = (
                HARMLESS[ApiKey.API_VERSIONS] if version >= NAMED_SINCE else ApiVersionsRequest()
            )
            payload = request_bytes(asked, version, 5)[4:]
            frame = answer_on(peer, payload, f"version {version}")
            expect_equal(
                frame[4:6],
                b"\x00\x00",
                f"version {version}: the error code, right after the correlation id",
            )
            _read(ApiKey.API_VERSIONS, version, frame, CORRELATION_ID_BYTES)
        frame = answer_on(peer, api_versions_3(6, name=b"\x02-"), "an illegal software name")
        expect_equal(
            frame[4:6],
            b"\x00\x2a",
            "the error code in an error response, right after the correlation id",
        )


@REQUIREMENTS.that(
    5,
    "a response ends with its last field",
    source="the protocol guide; each response's definition",
)
def nothing_behind_the_body(target: Target) -> None:
    for api_key, version, frame in _frames(target):
        has_tags = api_key != ApiKey.API_VERSIONS and _is_flexible(api_key, version)
        end = _read(api_key, version, frame, CORRELATION_ID_BYTES + (1 if has_tags else 0))
        expect_equal(len(frame) - end, 0, f"{api_key.name} v{version}: bytes after the last field")


def _read(api_key: ApiKey, version: int, frame: bytes, position: int) -> int:
    """Decode a body in exactly this version from exactly this position and return its end."""
    try:
        return codec_of(response_class(api_key), version).decode(frame, position)[1]
    except MalformedMessage as trouble:
        what = f"{api_key.name} v{version}, from byte {position} on"
        raise Unmet(
            f"{what} ({trouble})", "a body of this version", frame[:64].hex(" ", -2)
        ) from trouble
