"""A retried batch that is in the leader's log but not replicated: with five batches the response
waits for replication, with KIP-758's range it does not.

If the leader is then killed the reported duplicate exists nowhere: not everything up to the latest
sequence is durable.
Source: KIP-758 (Proposed Changes); UnifiedLog and ReplicaManager.appendRecords for the shipped
rule.
"""

import pytest

from kraftsim.cluster.administration import create_topic
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.server.outbound import PeerConnection
from kraftsim.world.simulated import Simulation
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.schema import Message
from tests.node.brokers import batch
from tools.claims.recording import Figures

SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


def request(sequence: int) -> ProduceRequest:
    data = PartitionProduceData(
        index=0, records=batch(1, producer_id=7, producer_epoch=0, base_sequence=sequence)
    )
    return ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )


@pytest.mark.parametrize(
    "kind, answered",
    [("five-batches", None), ("latest-batch", ErrorCode.DUPLICATE_SEQUENCE_NUMBER)],
)
def test_duplicate_above_the_high_watermark(
    kind: str, answered: ErrorCode | None, figures: Figures
) -> None:
    with Simulation(5) as simulation:
        spec = ClusterSpec(
            brokers=3, settings={**SETTINGS, "kraftsim.producer.state": kind}, seed=5
        )
        cluster = SimulatedCluster(spec, simulation)
        cluster.start()
        simulation.run_until(cluster.wait_until_ready())
        simulation.run_until(create_topic(cluster.addresses, "t", 1, 3))
        host = simulation.add_host("writer")
        responses: dict[str, ProduceResponse] = {}

        async def connected(name: str) -> PeerConnection:
            connection = PeerConnection(
                name, 9092, client_id="writer", world=simulation.world_of(host)
            )
            await connection.connect()
            return connection

        async def ask(name: str, connection: PeerConnection, sequence: int) -> None:
            def take(answer: Message | OSError) -> None:
                if isinstance(answer, ProduceResponse):
                    responses[name] = answer

            connection.send(request(sequence), take, api_version=9)

        async def leader_id() -> int:
            metadata = await (await connected("broker-1")).request(
                MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            )
            assert isinstance(metadata, MetadataResponse)
            return metadata.topics[0].partitions[0].leader_id

        leader = f"broker-{simulation.run_until(simulation.spawn(host, leader_id()))}"
        followers = [name for name in spec.broker_names if name != leader]
        first, second, third, fourth = (
            simulation.run_until(simulation.spawn(host, connected(leader))) for _ in range(4)
        )
        assert first is not None and second is not None and third is not None and fourth is not None
        simulation.run_until(simulation.spawn(host, ask("0", first, 0)))
        simulation.run_for(1)
        assert responses["0"].responses[0].partition_responses[0].error_code == ErrorCode.NONE
        for name in followers:
            simulation.pause(name)
        simulation.run_until(simulation.spawn(host, ask("1", first, 1)))
        simulation.run_for(0.1)
        simulation.run_until(simulation.spawn(host, ask("2", second, 2)))
        simulation.run_for(0.1)
        simulation.run_until(simulation.spawn(host, ask("3", third, 3)))
        simulation.run_for(0.1)
        simulation.run_until(simulation.spawn(host, ask("2 again", fourth, 2)))
        simulation.run_for(0.2)
        assert not {"1", "2", "3"} & responses.keys(), (
            "no follower has them; the first response is on its way to a paused follower"
        )
        again = responses.get("2 again")
        retried = again and int(again.responses[0].partition_responses[0].error_code)
        assert retried == answered
        simulation.kill(leader)
        for name in followers:
            simulation.resume(name)
        simulation.run_for(15)
        sizes = {
            name: len(data) for name, data in cluster.segment_files().items() if "/t-0/" in name
        }
        led, one, other = (
            sizes[f"{name}/t-0/00000000000000000000.log"] for name in (leader, *followers)
        )
        assert led == 2 * one == 2 * other
        figures(
            **{f"told_{kind}": retried, f"leader_bytes_{kind}": led, f"survivor_bytes_{kind}": one}
        )
