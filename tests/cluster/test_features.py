"""Finalized features in ApiVersions responses of brokers and controllers: kraft.version is not a
feature record, but both return it.
"""

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.peer import Peer
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse


@pytest.mark.parametrize(
    "first_voters, features",
    [(0, {"metadata.version": 21}), (1, {"metadata.version": 21, "kraft.version": 1})],
)
def test_kraft_version_is_reported_once_voters_are_in_the_log(
    first_voters: int, features: dict[str, int]
) -> None:
    """Source: kafka.server.metadata.KRaftMetadataCache.features, KIP-853; a level of 0 is not
    returned.
    """
    with EmbeddedCluster(
        ClusterSpec(brokers=1, port=free_port_range(1), first_voters=first_voters)
    ) as cluster:
        for name in cluster.spec.node_names:
            node = cluster.spec.node(name)
            with Peer(node.host, node.port) as peer:
                request = ApiVersionsRequest(
                    client_software_name="test", client_software_version="1"
                )
                answer = peer.ask(request, 4, ApiVersionsResponse)
            assert {
                feature.name: feature.max_version_level for feature in answer.finalized_features
            } == features, name
