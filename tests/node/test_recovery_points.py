"""What a broker stores about its logs in case it is killed: never more than is true, and never
about a log that has been replaced.

Source: kafka.log.LogManager.{truncateTo, asyncDelete, checkpointRecoveryOffsetsInDir}.
"""

import asyncio

import pytest

from kraftsim.partitions.log_directory import LogDirectory
from kraftsim.partitions.rules_follower import TruncateTo
from kraftsim.server.events import LogCleaned
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.storage.file_names import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
)
from protocol.storage.text_files import parse_offset_checkpoint
from tests.node.brokers import Client, Cluster, running_cluster
from tests.node.conftest import MakeWorld
from tests.node.test_broker_compaction import COMPACTED, left, writing

T = ("t", 0)


def said(cluster: Cluster, file: str, broker: str = "broker-1") -> dict[tuple[str, int], int]:
    """Return the contents of a checkpoint file."""
    disk = cluster.simulation.world_of(broker).disk
    return dict(parse_offset_checkpoint(disk.read(file), file)) if disk.exists(file) else {}


def test_truncation_lowers_the_recovery_point() -> None:
    """Otherwise records written after it would count as flushed, and not be verified after a power
    loss.
    """
    with running_cluster(
        2, log_flush_interval_messages="1", log_flush_offset_checkpoint_interval_ms="1000"
    ) as cluster:

        async def write(client: Client) -> None:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=2)
            await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
            await asyncio.sleep(2)

        cluster.run(write)
        leader, follower = (
            each for each in sorted(cluster.brokers, key=lambda name: name != leading(cluster))
        )
        cluster.run(writing("t", range(20)), leader)
        cluster.simulation.run_for(3)
        assert said(cluster, RECOVERY_POINTS, follower)[T] == 20
        partitions = cluster.brokers[follower].partitions
        hosted = partitions.find(*T)
        assert hosted is not None
        fetcher = partitions._replication._place[T]
        cluster.simulation.run_until(
            cluster.simulation.spawn(follower, fetcher.truncate(hosted, TruncateTo(5))), 10
        )
        assert said(cluster, RECOVERY_POINTS, follower)[T] == 5
        cluster.simulation.run_for(3)
        assert hosted.log.log_end_offset == said(cluster, RECOVERY_POINTS, follower)[T] == 20


def leading(cluster: Cluster) -> str:
    """Return the broker that leads the partition."""
    return next(
        name
        for name, broker in cluster.brokers.items()
        if (hosted := broker.partitions.find(*T)) and hosted.replica.leader_state is not None
    )


@pytest.mark.parametrize("is_restarted", [False, True])
def test_recovery_point_does_not_apply_to_a_recreated_topic(is_restarted: bool) -> None:
    """It was deleted and created again between two checkpoints, and the broker was killed: the
    whole new log is verified.
    """
    with running_cluster(log_flush_offset_checkpoint_interval_ms="8000") as cluster:

        async def create(client: Client) -> bytes:
            return await client.create_topic("t")

        async def delete_records(client: Client) -> None:
            rows = [
                DeleteRecordsTopic(
                    name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=15)]
                )
            ]
            await client.ask(DeleteRecordsRequest(topics=rows, timeout_ms=1000))

        async def delete(client: Client) -> None:
            await client.ask(
                DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
            )
            await asyncio.sleep(0.5)

        cluster.run(create)
        cluster.run(writing("t", range(20)))
        cluster.run(delete_records)
        cluster.simulation.run_until(lambda: said(cluster, LOG_START_OFFSETS).get(T) == 15, 10)
        cluster.run(delete)
        if is_restarted:
            cluster.kill("broker-1")
            cluster.simulation.restart("broker-1")
            cluster.wait_ready("broker-1")
        cluster.run(create)
        cluster.run(writing("t", range(3)))
        assert not [
            file
            for file in (RECOVERY_POINTS, LOG_START_OFFSETS, REPLICATION_OFFSETS)
            if said(cluster, file).get(T, 0) > 3
        ]
        cluster.kill("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")

        async def read(client: Client) -> int:
            return len((await client.fetch(0)).records or b"")

        assert cluster.run(read) > 0


@pytest.mark.parametrize("becomes_uncompacted", [False, True])
@pytest.mark.parametrize("at", range(5, 100, 5))
def test_broker_killed_during_cleaning_keeps_the_remaining_records(
    at: int, becomes_uncompacted: bool
) -> None:
    """The gaps left by cleaning are not those of a power loss, and there is no other replica."""
    with running_cluster(
        log_cleaner_backoff_ms="1000", log_flush_offset_checkpoint_interval_ms="1000000"
    ) as cluster:

        async def create(client: Client) -> bytes:
            return await client.create_topic("t", configs=COMPACTED)

        async def alter(client: Client) -> None:
            policy = [AlterableConfig(name="cleanup.policy", config_operation=0, value="delete")]
            await client.ask(
                IncrementalAlterConfigsRequest(
                    resources=[
                        AlterConfigsResource(resource_type=2, resource_name="t", configs=policy)
                    ]
                )
            )

        seen = 0
        durable = cluster.simulation.host("broker-1").durable

        def watch(operation: str, kind: object, moment: str) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                cluster.kill("broker-1")

        cluster.run(create)
        cluster.run(writing("t", range(60)))
        durable.watch = watch
        cluster.simulation.run_for(2)
        durable.watch = None
        if cluster.brokers:
            if becomes_uncompacted:
                cluster.run(alter)
            assert cluster.emitted(LogCleaned)
            cluster.kill("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        found = left(cluster, "t-0")
        assert found[-1][0] == 59
        last = {key: offset for offset, keys in found for key in keys}
        assert last == {b"key-0": 57, b"key-1": 58, b"key-2": 59}


def test_directory_checkpoint_writes_the_latest_recovery_points(make_world: MakeWorld) -> None:
    """A recovery point lowered during another checkpoint stays lowered."""

    async def work() -> None:
        home = LogDirectory("/", make_world(), bytes(16))
        flushed = {T: 50}
        await home.store_recovery_points(lambda: dict(flushed))
        flushed[T] = 10
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(home.store_recovery_points(lambda: dict(flushed)))
            tasks.create_task(home.lower_recovery_point(T, 10))
            tasks.create_task(home.raise_recovery_point(("u", 1), 7))
        again = LogDirectory("/", home.world, bytes(16))
        await again.load()
        assert (
            again.recovery_point(T),
            again.recovery_point(("u", 1)),
            again.uncleaned_from(T),
        ) == (10, 7, 10)
        await again.store_cleaned_until(T, 40)
        assert again.uncleaned_from(T) == 40
        await again.forget_checkpoints(T)
        assert T not in parse_offset_checkpoint(
            home.world.disk.read(CLEANER_OFFSETS), CLEANER_OFFSETS
        )
        assert (again.recovery_point(T), again.cleaned_until(T)) == (0, None)

    asyncio.run(work())
