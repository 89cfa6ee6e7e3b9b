"""A broker with several log directories: partitions are spread over them, and one that fails takes only its own partitions with it.

Source: KIP-112, KIP-113, KIP-858; kafka.log.LogManager, kafka.server.ReplicaManager.handleLogDirFailure.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraftsim.events.nodes import LogDirectoryFailed, NodeFailed
from kraftsim.node.identity import NO_DIRECTORY_ID
from kraftsim.world.elsewhere import WorldElsewhere
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.k19_create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from tests.node.broken_disk import BreakableDisk
from tests.node.brokers import Client, Cluster, batch, running_cluster

TWO = {"log_dirs": "/data,/other", "broker_heartbeat_interval_ms": "500", "replica_lag_time_max_ms": "2000"}


def breakable(cluster: Cluster, broker: str, place: int) -> BreakableDisk:
    """Put a disk that can break in place of a log directory in which nothing is yet."""
    home = cluster.brokers[broker].partitions.directories.all[place]
    disk = BreakableDisk(home.world.disk)
    home.world = WorldElsewhere(home.world, disk)
    return disk


def creating(assignments: list[list[int]], name: str = "t") -> Callable[[Client], Awaitable[None]]:
    async def create(client: Client) -> None:
        rows = [CreatableReplicaAssignment(partition_index=number, broker_ids=ids) for number, ids in enumerate(assignments)]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=rows)
        answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert [each.error_code for each in answer.topics] == [0], answer
        await asyncio.sleep(3)

    return create


async def described(client: Client) -> list[DescribeLogDirsResult]:
    return (await client.ask(DescribeLogDirsRequest(topics=None))).results


async def told(client: Client) -> dict[int, Any]:
    """Return the partitions of topic t as Metadata tells them."""
    answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    return {row.partition_index: row for row in answer.topics[0].partitions}


def lying_in(results: list[DescribeLogDirsResult]) -> list[list[tuple[str, int]]]:
    return [[(topic.name, row.partition_index) for topic in result.topics for row in topic.partitions] for result in results]


def test_new_partitions_go_where_there_are_fewest() -> None:
    """Each directory has an identity of its own, and the controller knows what lies where, also after a restart."""
    with running_cluster(**TWO) as cluster:
        cluster.run(creating([[1]] * 4))
        results = cluster.run(described)
        assert [result.log_dir for result in results] == ["/data", "/other"]
        assert [len(there) for there in lying_in(results)] == [2, 2]
        homes = cluster.brokers["broker-1"].partitions.directories
        ids = [home.directory_id for home in homes.all]
        assert len(set(ids)) == 2 and NO_DIRECTORY_ID not in ids

        def is_known() -> bool:
            broker = cluster.brokers["broker-1"]
            assigned = {number: broker.image.partition("t", number).directories[0] for number in range(4)}  # type: ignore[union-attr]
            return all(assigned[hosted.partition] == hosted.home.directory_id for hosted in broker.partitions.hosted())

        cluster.simulation.run_until(is_known, 30)
        cluster.stop("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        assert lying_in(cluster.run(described)) == lying_in(results)
        assert [home.directory_id for home in cluster.brokers["broker-1"].partitions.directories.all] == ids and is_known()


@pytest.mark.parametrize("trouble", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_directory_that_fails_takes_its_partitions_offline_and_no_others(trouble: int) -> None:
    """KAFKA_STORAGE_ERROR here, a new leader elsewhere; what lies in the other directory is served as before."""
    with running_cluster(2, **TWO) as cluster:
        disk = breakable(cluster, "broker-1", 1)
        cluster.run(creating([[1, 2], [1, 2]]))
        first, second = lying_in(cluster.run(described))
        assert len(first) == len(second) == 1
        ((_, healthy),), ((_, failing),) = first, second

        async def produce(client: Client) -> list[int]:
            return [(await client.produce(batch(), partition=number)).error_code for number in (healthy, failing)]

        assert cluster.run(produce) == [0, 0]
        disk.broken = trouble
        assert cluster.run(produce) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        assert cluster.run(produce) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        (failed,) = cluster.noted(LogDirectoryFailed, "broker-1")
        assert (failed.path, failed.partition_count) == ("/other", 1)
        cluster.simulation.run_for(3)
        rows = cluster.run(told, broker="broker-2")
        assert (rows[failing].leader_id, rows[failing].offline_replicas, rows[failing].isr_nodes) == (2, [1], [2])
        assert (rows[healthy].leader_id, rows[healthy].offline_replicas) == (1, [])
        results = cluster.run(described)
        assert [result.error_code for result in results] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        assert lying_in(results) == [[("t", healthy)], []]

        async def produce_there(client: Client) -> int:
            return (await client.produce(batch(), partition=failing)).error_code

        assert cluster.run(produce_there, broker="broker-2") == ErrorCode.NONE
        assert cluster.is_running("broker-1")


def test_a_follower_whose_directory_fails_leaves_those_in_sync() -> None:
    """Its leader goes on without it."""
    with running_cluster(2, **TWO) as cluster:
        disk = breakable(cluster, "broker-2", 1)
        cluster.run(creating([[1, 2], [1, 2]]))
        failing = next(hosted.partition for hosted in cluster.brokers["broker-2"].partitions.hosted() if hosted.home.path == "/other")
        disk.broken = errno.EIO

        async def produce(client: Client) -> list[int]:
            return [(await client.produce(batch(), partition=number)).error_code for number in (0, 1)]

        assert cluster.run(produce) == [0, 0]
        cluster.simulation.run_for(3)
        rows = cluster.run(told)
        assert (rows[failing].isr_nodes, rows[failing].offline_replicas, sorted(rows[1 - failing].isr_nodes)) == ([1], [2], [1, 2])


def test_with_its_last_directory_a_broker_goes_down() -> None:
    """As with its only one."""
    with running_cluster(**TWO) as cluster:
        disks = [breakable(cluster, "broker-1", place) for place in (0, 1)]
        cluster.run(creating([[1], [1]]))

        async def produce(client: Client) -> list[int]:
            return [(await client.produce(batch(), partition=number)).error_code for number in (0, 1)]

        disks[1].broken = errno.EIO
        assert sorted(cluster.run(produce)) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        disks[0].broken = errno.EIO
        with pytest.raises(OSError):
            cluster.run(produce)
        (failed,) = cluster.noted(NodeFailed, "broker-1")
        assert "EIO" in failed.reason and cluster.brokers["broker-1"].shell.is_dead


def test_a_directory_that_works_again_after_a_restart_brings_its_partitions_back() -> None:
    """They follow, and catch up."""
    with running_cluster(2, **TWO) as cluster:
        disk = breakable(cluster, "broker-1", 1)
        cluster.run(creating([[1, 2], [1, 2]]))
        disk.broken = errno.EIO

        async def produce(client: Client) -> list[int]:
            return [(await client.produce(batch(), partition=number)).error_code for number in (0, 1)]

        cluster.run(produce)
        cluster.simulation.run_for(3)
        cluster.kill("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        cluster.simulation.run_for(5)
        rows = cluster.run(told)
        assert [sorted(row.isr_nodes) for row in rows.values()] == [[1, 2], [1, 2]] and not [row for row in rows.values() if row.offline_replicas]
