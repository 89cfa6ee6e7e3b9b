"""Coordinators load offsets and transactions from their compacted logs, after a stop, a kill and a
power loss.

Source: GroupMetadataManager.loadGroupsAndOffsets, TransactionStateManager.loadTransactionMetadata,
kafka.log.LogCleaner.
"""

import pytest

from kraftsim.server.events import LogCleaned
from protocol.records.batches import split_batches
from tests.node.brokers import Client, Cluster, running_cluster
from tests.node.test_groups_on_brokers import commit_patiently, committed, coordinator_of
from tests.node.test_transaction_coordinator import Producer
from tests.node.test_transaction_coordinator import coordinator_of as coordinator_of_id

CLEANING = {
    "log_cleaner_backoff_ms": "300",
    "log_cleaner_min_cleanable_ratio": "0.01",
    "broker_session_timeout_ms": "3000",
}
ROUNDS = 40


def end(cluster: Cluster, way: str) -> None:
    """End the broker in one of three ways, and restart it."""
    if way == "stop":
        cluster.stop("broker-1")
    else:
        cluster.simulation.run_for(70)  # the recovery points are stored
        cluster.kill("broker-1", power_loss=way == "power loss")
    cluster.simulation.restart("broker-1")
    cluster.wait_ready("broker-1")


def records_in(cluster: Cluster, topic: str) -> int:
    """Return the number of records in all partitions of a topic."""
    disk = cluster.simulation.world_of("broker-1").disk
    files = [
        f"{name}/{file}"
        for name in disk.list("")
        if name.startswith(f"{topic}-")
        for file in disk.list(name)
        if file.endswith(".log")
    ]
    return sum(batch.record_count for file in files for batch in split_batches(disk.read(file)))


@pytest.mark.parametrize("way", ["stop", "kill", "power loss"])
def test_group_coordinator_loads_its_offsets_after_compaction(way: str) -> None:
    """Of forty commits a few records remain."""
    few = {
        "offsets_topic_replication_factor": "1",
        "offsets_topic_num_partitions": "1",
        "offsets_topic_segment_bytes": "600",
    }
    with running_cluster(settings={**CLEANING, **few}, log_flush_interval_messages="1") as cluster:

        async def commits(client: Client) -> int:
            await client.create_topic("t")
            await coordinator_of(client)
            for offset in range(ROUNDS):
                await commit_patiently(client, offset)
            return ROUNDS

        cluster.run(commits)
        cluster.simulation.run_for(5)
        assert [
            event for event in cluster.emitted(LogCleaned) if event.topic == "__consumer_offsets"
        ]
        assert records_in(cluster, "__consumer_offsets") < ROUNDS / 2
        end(cluster, way)
        cluster.run(coordinator_of)
        assert cluster.run(committed) == ROUNDS - 1


@pytest.mark.parametrize("way", ["stop", "kill", "power loss"])
def test_transaction_coordinator_loads_its_state_after_compaction(way: str) -> None:
    """The last record of an id has its epoch and its state; earlier ones are removed."""
    few = {
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
        "transaction_state_log_num_partitions": "1",
        "transaction_state_log_segment_bytes": "800",
    }
    with running_cluster(settings={**CLEANING, **few}, log_flush_interval_messages="1") as cluster:

        async def transactions(client: Client) -> tuple[str, int, int]:
            await client.create_topic("t")
            await coordinator_of_id(client)
            producer = Producer(client)
            for number in range(ROUNDS // 2):
                assert not await producer.init()
                assert not await producer.add(0)
                assert not await producer.end(commits=number % 3 > 0)
                await producer.reaches("CompleteCommit" if number % 3 else "CompleteAbort")
            assert not await producer.init()
            assert not await producer.add(0)
            return await producer.state()

        before = cluster.run(transactions)
        assert before is not None and before[0] == "Ongoing" and before[2] == ROUNDS // 2
        cluster.simulation.run_for(5)
        assert [
            event for event in cluster.emitted(LogCleaned) if event.topic == "__transaction_state"
        ]
        assert records_in(cluster, "__transaction_state") < ROUNDS
        end(cluster, way)

        async def goes_on(client: Client) -> tuple[tuple[str, int, int], int]:
            await coordinator_of_id(client)
            producer = Producer(client)
            state = await producer.state()
            producer.producer_id, producer.epoch = state[1], state[2]
            if state[0] == "Ongoing":
                assert not await producer.end(commits=True)
                await producer.reaches("CompleteCommit")
            assert not await producer.init()
            return state, producer.epoch

        (state, producer_id, epoch), next_epoch = cluster.run(goes_on)
        assert producer_id == before[1] and state in ("Ongoing", "CompleteAbort")
        assert epoch >= before[2] and next_epoch == epoch + 1
