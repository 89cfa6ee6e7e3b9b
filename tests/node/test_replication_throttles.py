"""Replication throttles of reassigned replicas limit both leaders and followers, by broker and
topic (KIP-73).
"""

import pytest

from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.metadata.settings import BROKER_RESOURCE, TOPIC_RESOURCE
from tests.node.brokers import Client, Cluster, batch, running_cluster

BATCH_BYTES = 50_000
BATCHES = 20
RATE = "100000"
SETTINGS = {
    "replica_fetch_backoff_ms": "100",
    "replica_fetch_max_bytes": "60000",
    "replica_fetch_wait_max_ms": "50",
}


async def configure(client: Client, kind: int, name: str, **values: str) -> None:
    """Set configs of a topic or of a broker."""
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer


async def move(client: Client, *replicas: int) -> None:
    """Reassign the partition."""
    row = ReassignableTopic(
        name="t", partitions=[ReassignablePartition(partition_index=0, replicas=list(replicas))]
    )
    answer = await client.ask(AlterPartitionReassignmentsRequest(topics=[row], timeout_ms=5000), 0)
    assert answer.responses[0].partitions[0].error_code == 0, answer


def filled(cluster: Cluster) -> tuple[str, int, int]:
    """Create a topic of a million bytes with one replica; return its leader, and the numbers of
    both brokers.
    """

    async def fill(client: Client) -> None:
        await client.create_topic("t")

    async def write(client: Client) -> None:
        for _ in range(BATCHES):
            assert (await client.produce(batch(value=bytes(BATCH_BYTES)))).error_code == 0

    cluster.run(fill)
    leader = next(
        name
        for name in cluster.broker_names
        if cluster.brokers[name].partitions.find("t", 0) is not None
    )
    cluster.run(write, broker=leader)
    return leader, int(leader[-1]), 3 - int(leader[-1])


def replicated_in_seconds(cluster: Cluster, leader: str) -> float:
    """Return the virtual seconds until both replicas are in sync."""
    began = cluster.simulation.loop.now_ns

    def is_in_sync() -> bool:
        hosted = cluster.brokers[leader].partitions.find("t", 0)
        return (
            hosted is not None
            and hosted.replica.leader_state is not None
            and len(hosted.replica.leader_state.in_sync) == 2
        )

    cluster.simulation.run_until(is_in_sync, limit_s=120)
    return (cluster.simulation.loop.now_ns - began) / 1e9


@pytest.mark.parametrize(
    "holder, rates, replicas, seconds",
    [
        ("nobody", {}, {}, (0, 2)),
        (
            "leader",
            {"leader_replication_throttled_rate": RATE},
            {"leader_replication_throttled_replicas": "*"},
            (8, 13),
        ),
        (
            "follower",
            {"follower_replication_throttled_rate": RATE},
            {"follower_replication_throttled_replicas": "0:1,0:2"},
            (8, 13),
        ),
        (
            "a rate, and no replica that it is for",
            {"leader_replication_throttled_rate": RATE},
            {},
            (0, 2),
        ),
        (
            "another partition",
            {"leader_replication_throttled_rate": RATE},
            {"leader_replication_throttled_replicas": "1:1,1:2"},
            (0, 2),
        ),
    ],
)
def test_new_replica_is_throttled_to_the_configured_rate(
    holder: str, rates: dict[str, str], replicas: dict[str, str], seconds: tuple[int, int]
) -> None:
    """A million bytes at 100,000 per second take ten seconds, plus or minus one window; without a
    throttle they arrive immediately.
    """
    with running_cluster(2, settings=SETTINGS) as cluster:
        leader, own, other = filled(cluster)

        async def begin(client: Client) -> None:
            if replicas:
                await configure(client, TOPIC_RESOURCE, "t", **replicas)
            await move(client, own, other)

        for broker in (own, other) if rates else ():
            cluster.run(
                # misc: mypy infers no type for a lambda with a default
                lambda client, broker=broker: configure(  # type: ignore[misc]
                    client, BROKER_RESOURCE, str(broker), **rates
                ),
                broker=f"broker-{broker}",
            )
        cluster.run(begin)
        at_least, at_most = seconds
        assert at_least <= replicated_in_seconds(cluster, leader) <= at_most, holder


def test_in_sync_replica_is_not_throttled_and_a_removed_throttle_ends() -> None:
    """A rate of nearly zero stops a new replica; without it replication completes at once, and set
    again it does not stop one in sync.
    """
    with running_cluster(2, settings=SETTINGS) as cluster:
        leader, own, other = filled(cluster)

        async def begin(client: Client) -> None:
            await configure(
                client,
                TOPIC_RESOURCE,
                "t",
                leader_replication_throttled_replicas="*",
                follower_replication_throttled_replicas="*",
            )
            await configure(
                client,
                BROKER_RESOURCE,
                "",
                leader_replication_throttled_rate="1",
                follower_replication_throttled_rate="1",
            )
            await move(client, own, other)

        async def take_off(client: Client) -> None:
            await configure(
                client,
                BROKER_RESOURCE,
                "",
                leader_replication_throttled_rate=str(2**62),
                follower_replication_throttled_rate=str(2**62),
            )

        async def write(client: Client) -> None:
            await configure(
                client,
                BROKER_RESOURCE,
                "",
                leader_replication_throttled_rate="1",
                follower_replication_throttled_rate="1",
            )
            assert (await client.produce(batch(value=bytes(BATCH_BYTES)))).error_code == 0, (
                "acks=all waits for the replica that is in sync"
            )

        cluster.run(begin)
        until_ns = cluster.simulation.loop.now_ns + 30 * 10**9
        cluster.simulation.run_until(lambda: cluster.simulation.loop.now_ns >= until_ns, limit_s=60)
        copy = cluster.brokers[f"broker-{other}"].partitions.find("t", 0)
        assert copy is not None and copy.log.log_end_offset <= 4, (
            "one fetch passes while the rate is zero, and then none for eleven seconds"
        )
        cluster.run(take_off)
        assert replicated_in_seconds(cluster, leader) < 3
        cluster.run(write, broker=leader)
