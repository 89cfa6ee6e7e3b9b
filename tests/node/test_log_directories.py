"""A broker with several log directories: partitions are spread over them, and a failed directory
affects only its own partitions.

Source: KIP-112, KIP-113, KIP-858; kafka.log.LogManager,
kafka.server.ReplicaManager.handleLogDirFailure.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraftsim.server.events import LogDirectoryFailed, NodeFailed, ReplicaMoveBegan, ReplicaMoved
from kraftsim.server.identity import NO_DIRECTORY_ID
from kraftsim.world.subdirectory import RelocatedWorld
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from protocol.metadata.settings import BROKER_RESOURCE
from protocol.records.batches import split_batches
from tests.node.broken_disk import BreakableDisk
from tests.node.brokers import Client, Cluster, batch, running_cluster
from tests.node.test_replication_throttles import configure

TWO = {
    "log_dirs": "/data,/other",
    "broker_heartbeat_interval_ms": "500",
    "replica_lag_time_max_ms": "2000",
}


def breakable(cluster: Cluster, broker: str, place: int) -> BreakableDisk:
    """Put a breakable disk in place of an empty log directory."""
    home = cluster.brokers[broker].partitions.directories.all[place]
    disk = BreakableDisk(home.world.disk)
    home.world = RelocatedWorld(home.world, disk)
    return disk


def creating(assignments: list[list[int]], name: str = "t") -> Callable[[Client], Awaitable[None]]:
    async def create(client: Client) -> None:
        rows = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=ids)
            for number, ids in enumerate(assignments)
        ]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=rows
        )
        answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert [each.error_code for each in answer.topics] == [0], answer
        await asyncio.sleep(3)

    return create


async def described(client: Client) -> list[DescribeLogDirsResult]:
    answer: DescribeLogDirsResponse = await client.ask(DescribeLogDirsRequest(topics=None))
    return answer.results


async def listed_partitions(client: Client) -> dict[int, Any]:
    """Return the partitions of topic t from Metadata."""
    answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    return {row.partition_index: row for row in answer.topics[0].partitions}


def lying_in(results: list[DescribeLogDirsResult]) -> list[list[tuple[str, int]]]:
    return [
        [(topic.name, row.partition_index) for topic in result.topics for row in topic.partitions]
        for result in results
    ]


def test_new_partitions_go_to_the_directory_with_the_fewest() -> None:
    """Each directory has an id, and the controller knows the directory of each replica, also after
    a restart.
    """
    with running_cluster(settings=TWO) as cluster:
        cluster.run(creating([[1]] * 4))
        results = cluster.run(described)
        assert [result.log_dir for result in results] == ["/data", "/other"]
        assert [len(there) for there in lying_in(results)] == [2, 2]
        homes = cluster.brokers["broker-1"].partitions.directories
        ids = [home.directory_id for home in homes.all]
        assert len(set(ids)) == 2 and NO_DIRECTORY_ID not in ids

        def is_known() -> bool:
            broker = cluster.brokers["broker-1"]
            assigned = {
                # union-attr: the topic exists
                number: broker.image.partition("t", number).directories[0]  # type: ignore[union-attr]
                for number in range(4)
            }
            return all(
                assigned[hosted.partition] == hosted.home.directory_id
                for hosted in broker.partitions.hosted()
            )

        cluster.simulation.run_until(is_known, 30)
        cluster.stop("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        assert lying_in(cluster.run(described)) == lying_in(results)
        assert [
            home.directory_id for home in cluster.brokers["broker-1"].partitions.directories.all
        ] == ids and is_known()


@pytest.mark.parametrize("trouble", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_failed_directory_takes_only_its_partitions_offline(trouble: int) -> None:
    """KAFKA_STORAGE_ERROR here, a new leader elsewhere; partitions in the other directory are
    served as before.
    """
    with running_cluster(2, settings=TWO) as cluster:
        disk = breakable(cluster, "broker-1", 1)
        cluster.run(creating([[1, 2], [1, 2]]))
        first, second = lying_in(cluster.run(described))
        assert len(first) == len(second) == 1
        ((_, healthy),), ((_, failing),) = first, second

        async def produce(client: Client) -> list[int]:
            return [
                (await client.produce(batch(), partition=number)).error_code
                for number in (healthy, failing)
            ]

        assert cluster.run(produce) == [0, 0]
        disk.broken = trouble
        assert cluster.run(produce) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        assert cluster.run(produce) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        (failed,) = cluster.emitted(LogDirectoryFailed, "broker-1")
        assert (failed.path, failed.partition_count) == ("/other", 1)
        cluster.simulation.run_for(3)
        rows = cluster.run(listed_partitions, broker="broker-2")
        assert (
            rows[failing].leader_id,
            rows[failing].offline_replicas,
            rows[failing].isr_nodes,
        ) == (2, [1], [2])
        assert (rows[healthy].leader_id, rows[healthy].offline_replicas) == (1, [])
        results = cluster.run(described)
        assert [result.error_code for result in results] == [
            ErrorCode.NONE,
            ErrorCode.KAFKA_STORAGE_ERROR,
        ]
        assert lying_in(results) == [[("t", healthy)], []]

        async def produce_there(client: Client) -> int:
            return (await client.produce(batch(), partition=failing)).error_code

        assert cluster.run(produce_there, broker="broker-2") == ErrorCode.NONE
        assert cluster.is_running("broker-1")


def test_follower_with_a_failed_directory_leaves_the_isr() -> None:
    """Its leader continues without it."""
    with running_cluster(2, settings=TWO) as cluster:
        disk = breakable(cluster, "broker-2", 1)
        cluster.run(creating([[1, 2], [1, 2]]))
        failing = next(
            hosted.partition
            for hosted in cluster.brokers["broker-2"].partitions.hosted()
            if hosted.home.path == "/other"
        )
        disk.broken = errno.EIO

        async def produce(client: Client) -> list[int]:
            return [
                (await client.produce(batch(), partition=number)).error_code for number in (0, 1)
            ]

        assert cluster.run(produce) == [0, 0]
        cluster.simulation.run_for(3)
        rows = cluster.run(listed_partitions)
        assert (
            rows[failing].isr_nodes,
            rows[failing].offline_replicas,
            sorted(rows[1 - failing].isr_nodes),
        ) == ([1], [2], [1, 2])


def test_broker_stops_with_its_last_directory() -> None:
    """As with its only one."""
    with running_cluster(settings=TWO) as cluster:
        disks = [breakable(cluster, "broker-1", place) for place in (0, 1)]
        cluster.run(creating([[1], [1]]))

        async def produce(client: Client) -> list[int]:
            return [
                (await client.produce(batch(), partition=number)).error_code for number in (0, 1)
            ]

        disks[1].broken = errno.EIO
        assert sorted(cluster.run(produce)) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        disks[0].broken = errno.EIO
        with pytest.raises(OSError):
            cluster.run(produce)
        (failed,) = cluster.emitted(NodeFailed, "broker-1")
        assert "EIO" in failed.reason and cluster.brokers["broker-1"].shell.is_dead


def test_repaired_directory_is_online_again_after_a_restart() -> None:
    """Its replicas follow, and catch up."""
    with running_cluster(2, settings=TWO) as cluster:
        disk = breakable(cluster, "broker-1", 1)
        cluster.run(creating([[1, 2], [1, 2]]))
        disk.broken = errno.EIO

        async def produce(client: Client) -> list[int]:
            return [
                (await client.produce(batch(), partition=number)).error_code for number in (0, 1)
            ]

        cluster.run(produce)
        cluster.simulation.run_for(3)
        cluster.kill("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        cluster.simulation.run_for(5)
        rows = cluster.run(listed_partitions)
        assert [sorted(row.isr_nodes) for row in rows.values()] == [[1, 2], [1, 2]] and not [
            row for row in rows.values() if row.offline_replicas
        ]


def moving(path: str, partition: int = 0, topic: str = "t") -> Callable[[Client], Awaitable[int]]:
    async def move(client: Client) -> int:
        asked = AlterReplicaLogDir(
            path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
        )
        answer: AlterReplicaLogDirsResponse = await client.ask(
            AlterReplicaLogDirsRequest(dirs=[asked])
        )
        return answer.results[0].partitions[0].error_code

    return move


def producing(count: int) -> Callable[[Client], Awaitable[int]]:
    """Append so many batches of one producer with consecutive sequences, and return how many were
    acknowledged.
    """

    async def produce(client: Client) -> int:
        first = (await client.fetch(0)).high_watermark
        for number in range(first, first + count):
            data = batch(
                producer_id=7, producer_epoch=0, base_sequence=number, value=b"%06d" % number
            )
            assert (await client.produce(data)).error_code == ErrorCode.NONE
        return first + count

    return produce


async def read(client: Client) -> list[bytes | None]:
    values, offset = list[bytes | None](), 0
    while records := (await client.fetch(offset)).records:
        for each in split_batches(bytes(records)):
            values += [record.value for record in each.records()]
            offset = each.next_offset
    return values


def test_replica_moves_to_another_directory_while_it_is_written() -> None:
    """All records and its producer state are there, the controller knows the new directory, and the
    old one is empty; also after a restart.
    """
    with running_cluster(settings=TWO, log_segment_bytes="1000") as cluster:
        cluster.run(creating([[1]]))
        cluster.run(producing(60))
        home = cluster.brokers["broker-1"].partitions.hosted()[0].home
        target = {"/data": "/other", "/other": "/data"}[home.path]
        assert cluster.run(moving("/nowhere")) == ErrorCode.LOG_DIR_NOT_FOUND
        assert cluster.run(moving(target, partition=5)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert cluster.run(moving(home.path)) == ErrorCode.NONE and not cluster.emitted(
            ReplicaMoveBegan
        )

        async def move_and_write(client: Client) -> list[Any]:
            assert await moving(target)(client) == ErrorCode.NONE
            during = await described(client)
            await producing(60)(client)
            return [
                (result.log_dir, row.is_future_key)
                for result in during
                for topic in result.topics
                for row in topic.partitions
            ]

        rows = cluster.run(move_and_write)
        assert rows in ([(home.path, False), (target, True)], [(target, True), (home.path, False)])
        cluster.simulation.run_until(lambda: bool(cluster.emitted(ReplicaMoved)), 30)
        cluster.simulation.run_for(2)
        expected = [b"%06d" % number for number in range(120)]
        assert cluster.run(read) == expected and cluster.run(producing(5)) == 125
        broker = cluster.brokers["broker-1"]
        hosted = broker.partitions.hosted()[0]
        registration = broker.image.partition("t", 0)
        assert registration is not None and registration.directories == (hosted.home.directory_id,)
        assert hosted.home.path == target and not home.world.disk.list("t-0")
        assert [
            (result.log_dir, row.is_future_key)
            for result in cluster.run(described)
            for topic in result.topics
            for row in topic.partitions
        ] == [(target, False)]
        cluster.stop("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        cluster.simulation.run_for(2)
        assert (
            cluster.run(read) == [b"%06d" % number for number in range(125)]
            and cluster.run(producing(5)) == 130
        )
        assert cluster.brokers["broker-1"].partitions.hosted()[0].home.path == target


@pytest.mark.parametrize("rate, at_least_s, at_most_s", [(None, 0, 1), ("100000", 6, 14)])
def test_directory_moves_respect_the_throttle(
    rate: str | None, at_least_s: float, at_most_s: float
) -> None:
    """A million bytes at 100,000 per second take about ten seconds; the first chunk and the
    allowance of one window are immediate.
    """
    with running_cluster(settings=TWO) as cluster:
        cluster.run(creating([[1]]))

        async def fill(client: Client) -> None:
            for _ in range(20):
                assert (
                    await client.produce(batch(value=bytes(50_000)))
                ).error_code == ErrorCode.NONE
            if rate is not None:
                await configure(
                    client,
                    BROKER_RESOURCE,
                    "1",
                    replica_alter_log_dirs_io_max_bytes_per_second=rate,
                )

        cluster.run(fill)
        cluster.simulation.run_for(1)
        home = cluster.brokers["broker-1"].partitions.hosted()[0].home.path
        began = cluster.simulation.loop.now_ns
        assert cluster.run(moving({"/data": "/other", "/other": "/data"}[home])) == ErrorCode.NONE
        cluster.simulation.run_until(lambda: bool(cluster.emitted(ReplicaMoved)), 60)
        assert at_least_s <= (cluster.simulation.loop.now_ns - began) / 1e9 <= at_most_s


@pytest.mark.parametrize("at", [1, 4, 8, 12, 16, 20, 24, 28, 32, 36])
def test_power_loss_during_a_directory_move_loses_nothing(at: int) -> None:
    """At any point, flushed records are there, once, and the move completes after the next start if
    it was requested early enough.
    """
    with running_cluster(
        settings=TWO, log_segment_bytes="1000", log_flush_interval_messages="1"
    ) as cluster:
        cluster.run(creating([[1]]))
        cluster.run(producing(40))
        home = cluster.brokers["broker-1"].partitions.hosted()[0].home
        target = {"/data": "/other", "/other": "/data"}[home.path]
        seen = 0
        durable = cluster.simulation.host("broker-1").durable

        def watch(operation: str, kind: object, moment: str) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                cluster.kill("broker-1", power_loss=True)

        async def move(client: Client) -> int:
            durable.watch = watch
            try:
                return await moving(target)(client)
            except OSError:
                return 0

        assert cluster.run(move) == ErrorCode.NONE
        cluster.simulation.run_for(3)
        if seen < at:
            cluster.kill("broker-1", power_loss=True)
        cluster.simulation.restart("broker-1")
        cluster.simulation.host("broker-1").durable.watch = None
        cluster.wait_ready("broker-1")
        cluster.simulation.run_for(5)
        assert cluster.run(read) == [b"%06d" % number for number in range(40)]
        assert cluster.run(producing(5)) == 45
        hosted = cluster.brokers["broker-1"].partitions.hosted()[0]
        assert [
            bool(each.world.disk.list("t-0"))
            for each in cluster.brokers["broker-1"].partitions.directories.all
        ].count(True) == 1
        assert hosted.home.path in (home.path, target)
