"""ApiVersions (18): the one API that answers whatever it is asked.

Source: KIP-35, KIP-511, KIP-584; KafkaApis.handleApiVersionsRequest, ApiVersionsRequest.getErrorResponse.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.peer import framed, request_bytes
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

REQUIREMENTS = Requirements("api-versions")
UNBORN_VERSION = 99


def _named() -> ApiVersionsRequest:
    """A request of a client that says what it is, as it must since version 3."""
    return ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1.0")


@REQUIREMENTS.that("every advertised version of ApiVersions is answered with the same list", source="KIP-35")
def same_list_in_every_version(target: Target) -> None:
    lists = {}
    with target.peer() as peer:
        for version in target.versions(ApiKey.API_VERSIONS):
            answer = peer.ask(_named() if version >= 3 else ApiVersionsRequest(), version, ApiVersionsResponse)
            expect_error(answer.error_code, ErrorCode.NONE, f"version {version}")
            lists[version] = [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys]
    expect(len(set(map(tuple, lists.values()))) == 1, "the lists differ between versions")
    keys = [key for key, _, _ in lists[0]]
    expect_equal(keys, sorted(set(keys)), "api keys in ascending order, each once")


@REQUIREMENTS.that("the list holds ApiVersions itself and what a producer and a consumer need", source="KIP-35")
def lists_what_clients_need(target: Target) -> None:
    needed = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID)
    missing = [api_key.name for api_key in needed if api_key not in target.ranges()]
    expect_equal(missing, [], "APIs that are not advertised")
    expect_equal(target.range_of(ApiKey.API_VERSIONS)[0], 0, "the lowest version of ApiVersions")


@REQUIREMENTS.that(
    "AllocateProducerIds and the other APIs between brokers and controllers are not advertised to clients", source="AllocateProducerIdsRequest.json"
)
def hides_the_controllers_apis(target: Target) -> None:
    inner = (ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.ENVELOPE, ApiKey.VOTE)
    expect_equal([api_key.name for api_key in inner if api_key in target.ranges()], [], "APIs of controllers on a broker's listener")


@REQUIREMENTS.that(
    "too high a version is answered in version 0 with error 35 and the range of this one key", source="KIP-511; ApiVersionsRequest.getErrorResponse"
)
def too_high_a_version(target: Target) -> None:
    first, last = target.range_of(ApiKey.API_VERSIONS)
    asked = request_bytes(_named(), 3, 5)
    payload = asked[4:6] + UNBORN_VERSION.to_bytes(2) + asked[8:]
    expected = b"".join(
        (
            (5).to_bytes(4),
            ErrorCode.UNSUPPORTED_VERSION.to_bytes(2),
            (1).to_bytes(4),
            ApiKey.API_VERSIONS.to_bytes(2),
            first.to_bytes(2),
            last.to_bytes(2),
        )
    )
    with target.peer() as peer:
        peer.send_bytes(framed(payload))
        expect_equal(peer.receive_frame(), expected, "the answer, byte for byte")
        peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)


@REQUIREMENTS.that("an illegal software name or version is answered with error 42 and an empty list", source="KIP-511; ApiVersionsRequest.isValid")
def illegal_software_names(target: Target) -> None:
    wrong = [("", "1.0"), ("-x", "1.0"), ("x-", "1.0"), ("a b", "1.0"), ("kraftsim", ""), ("kraftsim", ".1"), ("kraftsim", "1 0"), ("ü", "1")]
    with target.peer() as peer:
        for version in target.versions(ApiKey.API_VERSIONS, since=3):
            for name, software_version in wrong:
                answer = peer.ask(
                    ApiVersionsRequest(client_software_name=name, client_software_version=software_version), version, ApiVersionsResponse
                )
                expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, f"version {version}, name {name!r} {software_version!r}")
                expect_equal(len(answer.api_keys), 0, "rows of the list")


@REQUIREMENTS.that("software names of letters, digits, dots and hyphens inside are taken", source="KIP-511; ApiVersionsRequest.isValid")
def legal_software_names(target: Target) -> None:
    with target.peer() as peer:
        for version in target.versions(ApiKey.API_VERSIONS, since=3):
            for name, software_version in (("a", "1"), ("apache-kafka-java", "3.9.1"), ("x.y-z", "v1-rc.2")):
                answer = peer.ask(
                    ApiVersionsRequest(client_software_name=name, client_software_version=software_version), version, ApiVersionsResponse
                )
                expect_error(answer.error_code, ErrorCode.NONE, f"version {version}, name {name!r} {software_version!r}")


@REQUIREMENTS.that("since version 3 the answer names metadata.version among the features", source="KIP-584")
def names_features(target: Target) -> None:
    with target.peer() as peer:
        for version in target.versions(ApiKey.API_VERSIONS, since=3):
            answer = peer.ask(_named(), version, ApiVersionsResponse)
            supported = {row.name: (row.min_version, row.max_version) for row in answer.supported_features}
            finalized = {row.name: (row.min_version_level, row.max_version_level) for row in answer.finalized_features}
            expect("metadata.version" in supported, f"version {version}: metadata.version is no supported feature")
            expect("metadata.version" in finalized, f"version {version}: metadata.version is no finalized feature")
            expect(answer.finalized_features_epoch >= 0, f"version {version}: no epoch of the finalized features")
            low, high = finalized["metadata.version"]
            expect(
                supported["metadata.version"][0] <= low == high <= supported["metadata.version"][1],
                "the finalized level is outside what is supported",
            )


@REQUIREMENTS.that("features whose lowest level is 0 are listed since version 4 only", source="KAFKA-17492")
def features_of_level_zero(target: Target) -> None:
    with target.peer() as peer:
        for version in target.versions(ApiKey.API_VERSIONS, since=3):
            answer = peer.ask(_named(), version, ApiVersionsResponse)
            from_zero = [row.name for row in answer.supported_features if row.min_version == 0]
            if version == 3:
                expect_equal(from_zero, [], "features from level 0 on in version 3")
