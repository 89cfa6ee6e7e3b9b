"""Transactions in a partition with three replicas: markers wait for replication, all replicas
agree, and the next leader continues.

Source: KIP-98, KIP-392, KIP-664.
"""

import asyncio

import pytest

from kraftsim.partitions.events_transactions import LastStableOffsetMoved, MarkerAppended
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from tests.node.brokers import Client, Cluster, running_cluster
from tests.node.test_markers import UNVERIFIED, ended, read, seen, write

QUICK = {
    **UNVERIFIED,
    "broker_session_timeout_ms": "1000",
    "broker_heartbeat_interval_ms": "200",
    "replica_lag_time_max_ms": "2000",
}
BROKERS = ("broker-1", "broker-2", "broker-3")


def leader_of(cluster: Cluster) -> str:
    """Return the name of the partition's leader, as known by a live broker."""
    name = next(iter(cluster.brokers))
    registered = cluster.brokers[name].image.partition("t", 0)
    assert registered is not None
    return f"broker-{registered.leader}"


def create(cluster: Cluster, **configs: str) -> None:
    """Create a topic with replicas on all three brokers."""

    async def work(client: Client) -> None:
        settings = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3, configs=settings)
        answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert [each.error_code for each in answer.topics] == [0]
        await asyncio.sleep(2)

    cluster.run(work)


async def run_transactions(client: Client) -> None:
    """One aborted, one committed and one open transaction."""
    assert await write(client, 0, 2) is ErrorCode.NONE
    assert await write(client, 0, producer_id=8) is ErrorCode.NONE
    assert [await ended(client, commits=False), await ended(client, producer_id=8)] == [
        ErrorCode.NONE
    ] * 2
    assert await write(client, 2) is ErrorCode.NONE
    await asyncio.sleep(1)


READ = ([0, 2, 3, 4], 5, 6, [(7, 0)])


def test_every_replica_returns_the_same_to_read_committed_consumers() -> None:
    """Followers serve consumers since Fetch 11; they derive the last stable offset, the aborted
    list and the producer state from the records alone.
    """
    with running_cluster(3, settings=QUICK) as cluster:
        create(cluster)
        leader = leader_of(cluster)
        cluster.run(run_transactions, leader)
        for name in BROKERS:

            async def work(client: Client) -> None:
                assert seen(await read(client, 0)) == READ
                asked = DescribeProducersRequest(
                    topics=[DescribeProducersTopic(name="t", partition_indexes=[0])]
                )
                described = await client.ask(asked, 0)
                rows = {
                    each.producer_id: (each.current_txn_start_offset, each.coordinator_epoch)
                    for each in described.topics[0].partitions[0].active_producers
                }
                assert rows == {7: (5, 0), 8: (-1, 0)}

            cluster.run(work, name)
        emitted = [
            (where, event.on_leader)
            for where, event in cluster.events
            if isinstance(event, MarkerAppended)
        ]
        assert sorted(emitted) == sorted(
            (name, name == leader) for name in BROKERS for _ in range(2)
        )
        assert {
            where for where, event in cluster.events if isinstance(event, LastStableOffsetMoved)
        } == {leader}


@pytest.mark.parametrize("power_loss", [False, True])
def test_next_leader_knows_open_and_aborted_transactions(power_loss: bool) -> None:
    """And ends the open ones; the former leader agrees after its restart."""
    with running_cluster(3, settings=QUICK) as cluster:
        create(cluster)
        first = leader_of(cluster)
        cluster.run(run_transactions, first)
        cluster.kill(first, power_loss=power_loss)
        cluster.simulation.run_until(
            lambda: leader_of(cluster) not in (first, "broker--1"), limit_s=30
        )

        async def work(client: Client) -> None:
            await asyncio.sleep(1)
            assert seen(await read(client, 0)) == READ
            assert await ended(client, commits=False, coordinator_epoch=1) is ErrorCode.NONE
            assert await ended(client, commits=False) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
            await asyncio.sleep(1)
            assert seen(await read(client, 0)) == ([0, 2, 3, 4, 5, 6], 7, 7, [(7, 0), (7, 5)])

        cluster.run(work, leader_of(cluster))
        cluster.simulation.restart(first)
        cluster.wait_ready(first)

        async def again(client: Client) -> None:
            await asyncio.sleep(3)
            assert seen(await read(client, 0)) == ([0, 2, 3, 4, 5, 6], 7, 7, [(7, 0), (7, 5)])

        cluster.run(again, first)


def test_marker_takes_effect_once_all_in_sync_replicas_have_it() -> None:
    """Until then it is not acknowledged and limits readers; with too few in sync none is
    written.
    """
    with running_cluster(
        3, settings={**QUICK, "replica_lag_time_max_ms": "20000", "request_timeout_ms": "3000"}
    ) as cluster:
        create(cluster, min_insync_replicas="2")
        leader = leader_of(cluster)
        followers = [name for name in BROKERS if name != leader]

        async def work(client: Client) -> None:
            assert await write(client, 0, 2) is ErrorCode.NONE
            for name in followers:
                cluster.simulation.pause(name)
            assert await ended(client, commits=False) is ErrorCode.REQUEST_TIMED_OUT
            assert seen(await read(client, 0)) == ([], 0, 2, []), (
                "it is in the log, but has no effect yet"
            )
            for name in followers:
                cluster.simulation.resume(name)
            await asyncio.sleep(5)
            assert seen(await read(client, 0)) == ([0, 2], 3, 3, [(7, 0)])

        cluster.run(work, leader)
        for name in followers:
            cluster.kill(name)

        async def alone(client: Client) -> None:
            await asyncio.sleep(30)
            assert await ended(client, commits=False) is ErrorCode.NOT_ENOUGH_REPLICAS

        cluster.run(alone, leader)
