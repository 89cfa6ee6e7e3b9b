"""ApiVersions (18): the one API that is answered in any version.

Source: KIP-35, KIP-511, KIP-584; KafkaApis.handleApiVersionsRequest,
ApiVersionsRequest.getErrorResponse.
"""

from kraftsim.conformance.expect import expect, expect_equal
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ANY_NODE, ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse

UNKNOWN_ID = 999_999
TARGET_SINCE = 5
REBOOTSTRAP, INVALID = int(ErrorCode.REBOOTSTRAP_REQUIRED), int(ErrorCode.INVALID_REQUEST)
REQUIREMENTS = Requirements("api-versions", 1, "ApiVersions")


def _named() -> ApiVersionsRequest:
    """A request with the client's software name and version, which are required since version 3."""
    return ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1.0")


@REQUIREMENTS.that(
    1,
    "the list contains ApiVersions itself and the APIs that a producer and a consumer need",
    source="KIP-35",
)
def lists_what_clients_need(target: Target) -> None:
    needed = (
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
    )
    missing = [api_key.name for api_key in needed if api_key not in target.ranges()]
    expect_equal(missing, [], "APIs that are not advertised")
    expect_equal(target.range_of(ApiKey.API_VERSIONS)[0], 0, "the lowest version of ApiVersions")


@REQUIREMENTS.that(
    2, "since version 3 the response contains metadata.version among the features", source="KIP-584"
)
def names_features(target: Target) -> None:
    with target.peer() as peer:
        for version in target.versions(ApiKey.API_VERSIONS, since=3):
            answer = peer.ask(_named(), version, ApiVersionsResponse)
            supported = {
                row.name: (row.min_version, row.max_version) for row in answer.supported_features
            }
            finalized = {
                row.name: (row.min_version_level, row.max_version_level)
                for row in answer.finalized_features
            }
            expect(
                "metadata.version" in supported,
                f"version {version}: metadata.version is no supported feature",
            )
            expect(
                "metadata.version" in finalized,
                f"version {version}: metadata.version is no finalized feature",
            )
            expect(
                answer.finalized_features_epoch >= 0,
                f"version {version}: no epoch of the finalized features",
            )
            low, high = finalized["metadata.version"]
            expect(
                supported["metadata.version"][0] <= low == high <= supported["metadata.version"][1],
                "the finalized level is outside what is supported",
            )


@REQUIREMENTS.that(
    3, "features with a minimum level of 0 are listed since version 4 only", source="KAFKA-17492"
)
def features_of_level_zero(target: Target) -> None:
    with target.peer() as peer:
        for version in target.versions(ApiKey.API_VERSIONS, since=3):
            answer = peer.ask(_named(), version, ApiVersionsResponse)
            from_zero = [row.name for row in answer.supported_features if row.min_version == 0]
            if version == 3:
                expect_equal(from_zero, [], "features from level 0 on in version 3")


@REQUIREMENTS.that(
    4,
    "a broker returns REBOOTSTRAP_REQUIRED if another cluster or node is intended, and "
    "INVALID_REQUEST if only one of both is given",
    source="KIP-1242",
    since="4.4",
)
def other_intended_node(target: Target) -> None:
    with target.peer() as peer:
        cluster = peer.ask(
            DescribeClusterRequest(),
            target.newest(ApiKey.DESCRIBE_CLUSTER),
            DescribeClusterResponse,
        )
        own_id = next(
            broker.broker_id
            for broker in cluster.brokers
            if f"{broker.host}:{broker.port}" == target.address
        )
        for cluster_id, node_id, error in (
            (cluster.cluster_id, own_id, 0),
            (cluster.cluster_id, UNKNOWN_ID, REBOOTSTRAP),
            ("another", own_id, REBOOTSTRAP),
            (cluster.cluster_id, ANY_NODE, INVALID),
            (None, own_id, INVALID),
        ):
            asked = _named()
            asked.cluster_id, asked.node_id = cluster_id, node_id
            answer = peer.ask(asked, TARGET_SINCE, ApiVersionsResponse)
            expect_equal(
                (answer.error_code, bool(answer.api_keys)),
                (error, not error),
                f"cluster {cluster_id}, node {node_id}: error, has APIs",
            )
