"""The controller listener: which APIs it supports, and which it does not.

Source: the listeners of each request's definition; kafka.server.ControllerApis; KIP-919.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.peer import framed
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.wire_bytes import (
    NO_TAGS,
    UNBORN_VERSION,
    answer_on,
    api_versions,
    closes_after,
    head,
    int16,
    int32,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

REQUIREMENTS = Requirements("controller", 1, "The controller's listener")
LISTENERS = "the listeners of each request's definition"
NAMED_SINCE = 3
OF_BROKERS = (
    ApiKey.FETCH,
    ApiKey.API_VERSIONS,
    ApiKey.ENVELOPE,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
OF_CLIENTS = (
    ApiKey.PRODUCE,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
)
SOME_BODY = bytes(24)


@REQUIREMENTS.that(
    1,
    "the APIs that brokers send to controllers are advertised with non-empty version ranges",
    source=LISTENERS,
)
def offers_what_brokers_ask(target: Target) -> None:
    offered = target.ranges(target.controller_address())
    expect_equal(
        [key.name for key in OF_BROKERS if key not in offered], [], "APIs that are missing"
    )
    wrong = [key for key, (first, last) in offered.items() if not 0 <= first <= last]
    expect_equal(wrong, [], "api keys with a range that is none")


@REQUIREMENTS.that(2, "APIs for brokers only are neither advertised nor served", source=LISTENERS)
def offers_nothing_of_clients(target: Target) -> None:
    address = target.controller_address()
    offered = target.ranges(address)
    expect_equal(
        [key.name for key in OF_CLIENTS if key in offered],
        [],
        "APIs of brokers on a controller's listener",
    )
    for key in OF_CLIENTS:
        closes_after(target, framed(head(key, 0) + SOME_BODY), key.name, address)


@REQUIREMENTS.that(
    3,
    "every advertised version of ApiVersions returns the same list on the controller listener",
    source="KIP-35",
)
def api_versions_in_every_version(target: Target) -> None:
    address = target.controller_address()
    named = ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1.0")
    lists = set()
    with target.peer(address) as peer:
        for version in target.versions(ApiKey.API_VERSIONS, address=address):
            answer = peer.ask(
                named if version >= NAMED_SINCE else ApiVersionsRequest(),
                version,
                ApiVersionsResponse,
            )
            expect_error(answer.error_code, ErrorCode.NONE, f"version {version}")
            lists.add(
                tuple((row.api_key, row.min_version, row.max_version) for row in answer.api_keys)
            )
    expect_equal(len(lists), 1, "different lists")


@REQUIREMENTS.that(
    4,
    "an unsupported version of ApiVersions gets the same response from a controller as from a "
    "broker",
    source="KIP-511; ApiVersionsRequest.getErrorResponse",
)
def too_high_a_version(target: Target) -> None:
    address = target.controller_address()
    first, last = target.range_of(ApiKey.API_VERSIONS, address)
    expected = (
        int32(1)
        + int16(ErrorCode.UNSUPPORTED_VERSION)
        + int32(1)
        + int16(ApiKey.API_VERSIONS)
        + int16(first)
        + int16(last)
    )
    with target.peer(address) as peer:
        frame = answer_on(
            peer, head(ApiKey.API_VERSIONS, UNBORN_VERSION) + NO_TAGS, f"version {UNBORN_VERSION}"
        )
        expect_equal(frame, expected, "the answer, byte for byte")
        answer_on(peer, api_versions(2), "version 0 after it")


@REQUIREMENTS.that(
    5,
    "the controller returns metadata.version among the finalized features",
    source="KIP-584; verified against Apache Kafka 3.6.2",
    since="3.6",
)
def names_features(target: Target) -> None:
    address = target.controller_address()
    with target.peer(address) as peer:
        version = target.newest(ApiKey.API_VERSIONS, address=address)
        answer = peer.ask(
            ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1.0"),
            version,
            ApiVersionsResponse,
        )
    finalized = {row.name: row.max_version_level for row in answer.finalized_features}
    expect("metadata.version" in finalized, "metadata.version is no finalized feature")
    expect(answer.finalized_features_epoch >= 0, "no epoch of the finalized features")


@REQUIREMENTS.that(
    6,
    "unknown API keys and unsupported versions close a connection to the controller",
    source="SocketServer.processCompletedReceives",
)
def unsupported(target: Target) -> None:
    address = target.controller_address()
    closes_after(target, framed(head(9999, 0)), "an unknown api key", address)
    for key in OF_BROKERS:
        if key != ApiKey.API_VERSIONS:
            above = target.range_of(key, address)[1] + 1
            closes_after(
                target,
                framed(head(key, above) + NO_TAGS + SOME_BODY),
                f"{key.name} version {above}",
                address,
            )
