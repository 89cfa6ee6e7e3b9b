"""A starting broker processes no requests before it has caught up with the metadata
(kafka.server.BrokerServer.startup).
"""

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.peer import Peer
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from tests.cluster.running import QUICK_SESSIONS


def test_a_broker_serves_clients_only_after_it_has_caught_up() -> None:
    """Otherwise clients would get metadata without brokers, and discard the brokers that they
    know.
    """
    with EmbeddedCluster(
        ClusterSpec(brokers=2, port=free_port_range(2), settings=QUICK_SESSIONS)
    ) as cluster:
        cluster.kill("broker-1")
        cluster.kill("controller-101")
        cluster.restart("broker-1")
        with Peer.at(cluster.bootstrap.split(",")[0]) as peer:
            asked = MetadataRequest(topics=[])
            number = peer.send(asked, 9)
            assert peer.is_silent(for_seconds=0.5), "it is connected, and gets no response yet"
            cluster.restart("controller-101")
            answer = peer.receive(asked, 9, number, MetadataResponse)
        assert 2 in [broker.node_id for broker in answer.brokers], (
            "its response contains itself, although it may still be fenced"
        )
