"""A broker that comes up says nothing before it knows the cluster (kafka.server.BrokerServer.startup: requests are processed from then on)."""

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.peer import Peer
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from tests.cluster.running import QUICK_SESSIONS


def test_a_broker_answers_when_it_has_caught_up_and_no_sooner():
    """Else clients that had known better would hear of a cluster without brokers, and forget those there are."""
    with EmbeddedCluster(ClusterSpec(brokers=2, port=free_port_range(2), settings=QUICK_SESSIONS)) as cluster:
        cluster.kill("broker-1")
        cluster.kill("controller-101")
        cluster.restart("broker-1")
        with Peer.at(cluster.bootstrap.split(",")[0]) as peer:
            asked = MetadataRequest(topics=[])
            number = peer.send(asked, 9)
            assert peer.is_silent(for_seconds=0.5), "it is connected, and is told nothing yet"
            cluster.restart("controller-101")
            answer = peer.receive(asked, 9, number, MetadataResponse)
        assert 2 in [broker.node_id for broker in answer.brokers], "of itself it may still be told that it is fenced"
