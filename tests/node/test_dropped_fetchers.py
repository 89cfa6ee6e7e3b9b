"""A follower without partitions of a leader drops its fetcher: when that broker becomes leader
again it sends a new Fetch at once, whatever is unanswered.
"""

import pytest

from kraftsim.cluster.administration import create_topic, elect_preferred_leaders, wait_for_replicas
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.partitions.events import LeaderElected
from kraftsim.server.outbound import PeerConnection
from kraftsim.world.simulated import Simulation
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.node.brokers import batch

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "zookeeper.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "60000",
    "auto.leader.rebalance.enable": "false",
}
SOON_SECONDS = 3.0
"""A connection and a Fetch take milliseconds; a missing response is waited for for 30 s."""


@pytest.mark.parametrize("is_in_zookeeper", [False, True], ids=["KRaft", "ZooKeeper"])
def test_restarted_leader_with_unanswered_fetches_is_followed_again(is_in_zookeeper: bool) -> None:
    """It loses power while its followers have Fetch requests pending, without closing the
    connections; meanwhile there are other leaders.
    """
    leaders: list[str] = []

    def learn(node: str, incarnation: int, number: int, t_ns: int, event: Event) -> None:
        if isinstance(event, LeaderElected) and event.topic == "t":
            leaders.append(node)

    with Simulation(5) as simulation:
        simulation.observe(learn, [LeaderElected])
        spec = ClusterSpec(
            controllers=0 if is_in_zookeeper else 1,
            brokers=3,
            zookeeper=is_in_zookeeper,
            settings=SETTINGS,
            seed=5,
        )
        cluster = SimulatedCluster(spec, simulation)
        cluster.start()
        simulation.run_until(cluster.wait_until_ready())
        simulation.run_until(create_topic(cluster.addresses, "t", 1, 3))
        simulation.run_until(lambda: bool(leaders))
        first = leaders[0]
        simulation.run_for(2)
        simulation.kill(first, power_loss=True)
        simulation.run_until(lambda: leaders[-1] != first)
        simulation.restart(first)
        simulation.run_until(wait_for_replicas(cluster.addresses, "t", 1))
        for address in cluster.addresses:  # one of them is the ZooKeeper-mode controller
            simulation.run_until(elect_preferred_leaders(*address))
        simulation.run_until(lambda: leaders[-1] == first)
        host = simulation.add_host("writer")

        async def write() -> int:
            connection = PeerConnection(
                first, 9092, client_id="writer", world=simulation.world_of(host)
            )
            await connection.connect()
            data = PartitionProduceData(index=0, records=batch())
            request = ProduceRequest(
                acks=-1,
                timeout_ms=60_000,
                topic_data=[TopicProduceData(name="t", partition_data=[data])],
            )
            answer = await connection.request(request, api_version=9)
            assert isinstance(answer, ProduceResponse)
            return answer.responses[0].partition_responses[0].error_code

        assert simulation.run_until(simulation.spawn(host, write()), limit_s=SOON_SECONDS) == 0
