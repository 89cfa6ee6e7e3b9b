"""Quotas in simulation: rates and throttle times use the node's clock (KIP-13, KIP-219)."""

from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    QuotaAlteration,
)
from tests.node.brokers import Client, batch, running_cluster

TOO_MUCH = bytes(105_000)
"""Five percent above what 10,000 bytes per second allow in ten seconds, and a little for the
overhead of a batch.
"""


async def limit(client: Client, **quotas: float) -> None:
    """Set the quotas of the client's id."""
    entity = [EntityData(entity_type="client-id", entity_name="test")]
    operations = [OpData(key=key, value=value, remove=False) for key, value in quotas.items()]
    answer = await client.ask(
        AlterClientQuotasRequest(entries=[QuotaAlteration(entity=entity, ops=operations)])
    )
    assert answer.entries[0].error_code == 0


def test_throttled_client_is_muted_for_exactly_the_throttle_time() -> None:
    """No more and no less virtual time passes before the next response."""
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            await limit(client, producer_byte_rate=10_000.0, consumer_byte_rate=10_000.0)
            data = [PartitionProduceData(index=0, records=batch(1, value=TOO_MUCH))]
            produced = await client.ask(
                ProduceRequest(
                    acks=1,
                    timeout_ms=5000,
                    topic_data=[TopicProduceData(name="t", partition_data=data)],
                ),
                9,
            )
            assert 500 <= produced.throttle_time_ms <= 520
            began_ns = cluster.simulation.loop.now_ns
            topics = [
                FetchTopic(
                    topic="t",
                    partitions=[FetchPartition(fetch_offset=0, partition_max_bytes=1 << 20)],
                )
            ]
            fetched = await client.ask(FetchRequest(topics=topics), 12)
            waited_ms = (cluster.simulation.loop.now_ns - began_ns) / 1e6
            assert produced.throttle_time_ms - 5 <= waited_ms <= produced.throttle_time_ms + 30
            assert 500 <= fetched.throttle_time_ms <= 520 and fetched.responses == []
            fetched = await client.ask(FetchRequest(topics=topics), 12)
            while not fetched.responses:
                assert 0 < fetched.throttle_time_ms < 520
                fetched = await client.ask(FetchRequest(topics=topics), 12)
            assert len(fetched.responses[0].partitions[0].records) > len(TOO_MUCH)

        cluster.run(work)
