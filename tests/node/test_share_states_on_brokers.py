"""States of share-partitions on brokers, in virtual time: the persister of one broker, the share
coordinator on another, and failover (KIP-932).
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from kraftsim.partitions.events import LogStartMoved
from kraftsim.share_groups.events_states import (
    CoordinatedShareDeleted,
    CoordinatedShareLoaded,
    CoordinatedShareStored,
    ShareRecordsPruned,
    ShareStatesLoaded,
    ShareStatesUnloaded,
)
from kraftsim.share_groups.persister import PersisterResult, ReadState, StateSummary
from kraftsim.share_groups.rules_share_states import SharePartitionKey, StateBatch
from kraftsim.share_groups.state_persister import StatePersister
from protocol.errors import ErrorCode
from protocol.messages.k20_delete_topics import DeleteTopicsRequest
from protocol.messages.k87_read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from tests.node.brokers import Client, Cluster, running_cluster

T = TypeVar("T")
RELEASE = "4.4"
FEW = {
    "share_coordinator_state_topic_num_partitions": "4",
    "share_coordinator_snapshot_update_records_per_snapshot": "2",
    "broker_session_timeout_ms": "3000",
    "broker_heartbeat_interval_ms": "500",
}
ALONE = {
    **FEW,
    "share_coordinator_state_topic_replication_factor": "1",
    "share_coordinator_state_topic_min_isr": "1",
    "share_coordinator_state_topic_num_partitions": "1",
}
OFTEN = {
    **ALONE,
    "share_coordinator_state_topic_prune_interval_ms": "1000",
    "share_coordinator_cold_partition_snapshot_interval_ms": "3000",
}
ACKNOWLEDGED = 2


def run(
    cluster: Cluster, work: Callable[[StatePersister], Awaitable[T]], name: str = "broker-1"
) -> T:
    """Run a coroutine with the persister of a broker."""

    async def done() -> T:
        return await work(cluster.brokers[name].persister)

    found = cluster.simulation.run_until(cluster.simulation.spawn(name, done()), limit_s=200)
    assert cluster.simulation.troubles == []
    return found


def new_key(cluster: Cluster, group_id: str = "g", topic: str = "t") -> SharePartitionKey:
    topic_id = cluster.run(lambda client: client.create_topic(topic, partitions=2))
    return SharePartitionKey(group_id, topic_id, 0)


def batch(first: int, last: int) -> StateBatch:
    return StateBatch(first, last, ACKNOWLEDGED, 1)


def test_a_state_is_written_and_read_again() -> None:
    """The topic is created by the first look-up; the brokers ask each other."""
    with running_cluster(3, release_name=RELEASE, settings=FEW) as cluster:
        key = new_key(cluster)
        other = key._replace(partition=1)
        assert run(cluster, lambda each: each.initialize("g", [(key, 3, 10), (other, 3, -1)])) == [
            PersisterResult(key),
            PersisterResult(other),
        ]
        topic = cluster.brokers["broker-1"].image.topic("__share_group_state")
        assert topic is not None and len(topic.partitions) == 4
        assert cluster.brokers["broker-1"].image.topic_configs("__share_group_state") == {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": "2",
            "retention.ms": "-1",
            "segment.bytes": "104857600",
        }
        batches = [batch(12, 14)]
        assert run(
            cluster, lambda each: each.write(key, 3, 0, 10, 3, batches), "broker-2"
        ) == PersisterResult(key)
        assert run(cluster, lambda each: each.read(key, 1), "broker-3") == ReadState(
            state_epoch=3, start_offset=10, batches=tuple(batches)
        )
        fenced = run(cluster, lambda each: each.write(key, 3, 0, 10, 3, []), "broker-2")
        assert fenced.error is ErrorCode.FENCED_LEADER_EPOCH
        assert fenced.message == (
            "Error in write state RPC. The leader epoch in the request is older than the epoch on "
            "the broker."
        )
        assert run(cluster, lambda each: each.read_summary("g", [(key, 1), (other, -1)])) == [
            StateSummary(
                key=key, state_epoch=3, leader_epoch=1, start_offset=10, delivery_complete_count=3
            ),
            StateSummary(key=other, state_epoch=3, leader_epoch=0),
        ]
        assert run(cluster, lambda each: each.delete("g", [key])) == [PersisterResult(key)]
        gone = run(cluster, lambda each: each.read(key, 1))
        assert gone.error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("power_loss", [False, True])
def test_states_survive_the_loss_of_their_coordinator(power_loss: bool) -> None:
    """The persister repeats its request until the next coordinator has loaded the states."""
    with running_cluster(3, release_name=RELEASE, settings=FEW) as cluster:
        key = new_key(cluster)
        run(cluster, lambda each: each.initialize("g", [(key, 0, 0)]))

        async def write(persister: StatePersister) -> None:
            for number in range(5):
                assert not (await persister.write(key, 0, 0, 0, 1, [batch(number, number)])).error

        run(cluster, write)
        stored = cluster.emitted(CoordinatedShareStored)
        assert [each.is_snapshot for each in stored] == [True, False, False, True, False, False]
        first = next(
            node for node, event in cluster.events if isinstance(event, CoordinatedShareStored)
        )
        other = next(name for name in cluster.broker_names if name != first)
        cluster.kill(first, power_loss=power_loss)
        found = run(cluster, lambda each: each.read(key, 2), other)
        assert found == ReadState(start_offset=0, batches=(batch(0, 4),))
        loaded = [
            each
            for each in cluster.emitted(CoordinatedShareLoaded)
            if each.record_offset == stored[-1].record_offset
        ]
        assert loaded and loaded[-1].snapshot_epoch == stored[-1].snapshot_epoch == 1


def test_a_clean_stop_moves_the_states() -> None:
    """A coordinator that stops unloads its partitions before it is gone."""
    with running_cluster(3, release_name=RELEASE, settings=FEW) as cluster:
        key = new_key(cluster)
        run(cluster, lambda each: each.initialize("g", [(key, 0, 7)]))
        (stored,) = cluster.emitted(CoordinatedShareStored)
        first = next(
            node for node, event in cluster.events if isinstance(event, CoordinatedShareStored)
        )
        cluster.stop(first)
        unloaded = [each.partition for each in cluster.emitted(ShareStatesUnloaded, first)]
        assert stored.coordinator_partition in unloaded
        other = next(name for name in cluster.broker_names if name != first)
        assert run(cluster, lambda each: each.read(key, 0), other).start_offset == 7


def test_redundant_records_are_deleted() -> None:
    """Everything in front of the oldest last snapshot; one that is cold is written again, so that
    it does not hold back the others.
    """
    with running_cluster(1, release_name=RELEASE, settings=OFTEN) as cluster:
        key = new_key(cluster)
        other = key._replace(partition=1)
        run(cluster, lambda each: each.initialize("g", [(key, 0, 0), (other, 0, 0)]))

        async def advance(persister: StatePersister) -> None:
            for number in range(7):
                await persister.write(key, 0, 0, number, -1, [])

        run(cluster, advance)
        cluster.simulation.run_for(1.5)
        assert [each.log_start_offset for each in cluster.emitted(ShareRecordsPruned)] == [1]
        cluster.simulation.run_for(4)
        cold = [each for each in cluster.emitted(CoordinatedShareStored) if each.cause == "cold"]
        assert sorted(each.partition for each in cold) == [0, 1]
        first_needed = min(each.record_offset for each in cold)
        assert cluster.emitted(ShareRecordsPruned)[-1].log_start_offset == first_needed
        assert cluster.emitted(LogStartMoved)[-1].log_start_offset == first_needed
        cluster.stop("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        cluster.simulation.run_for(2)
        assert cluster.emitted(ShareStatesLoaded)[-1].state_count == 2
        assert run(cluster, lambda each: each.read(key, 0)).start_offset == 6


def test_states_of_a_deleted_topic_are_deleted() -> None:
    """Those of other topics remain."""
    with running_cluster(1, release_name=RELEASE, settings=ALONE) as cluster:
        key, kept = new_key(cluster), new_key(cluster, topic="kept")
        run(cluster, lambda each: each.initialize("g", [(key, 0, 0), (kept, 0, 0)]))

        async def delete(client: Client) -> None:
            await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)

        cluster.run(delete)
        cluster.simulation.run_for(2)
        (deleted,) = cluster.emitted(CoordinatedShareDeleted)
        assert deleted.record_offset == 2
        assert not run(cluster, lambda each: each.read(kept, 0)).error
        refused = run(cluster, lambda each: each.initialize("g", [(key, 1, 0)]))
        assert refused[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused[0].message == (
            "Error in initialize state RPC. Exhausted max retries to complete initialize state RPC "
            "without success."
        )


def test_without_a_coordinator_the_persister_gives_up() -> None:
    """Its topic needs three brokers; a look-up is tried five times."""
    with running_cluster(1, release_name=RELEASE, settings=FEW) as cluster:
        key = new_key(cluster)
        began_ns = cluster.simulation.now_ns
        assert run(cluster, lambda each: each.delete("g", [key])) == [
            PersisterResult(
                key,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "Error in find coordinator. Exhausted max retries to find coordinator without "
                "success.",
            )
        ]
        assert 24 <= (cluster.simulation.now_ns - began_ns) / 1e9 <= 37


def test_an_operation_ends_with_its_broker() -> None:
    """At a clean stop every operation is answered, and later ones at once."""
    with running_cluster(1, release_name=RELEASE, settings=FEW) as cluster:
        key = new_key(cluster)
        persister = cluster.brokers["broker-1"].persister

        async def ends() -> list[PersisterResult]:
            results = await persister.delete("g", [key])
            return [*results, *await persister.delete("g", [key])]

        ended = cluster.simulation.spawn("broker-1", ends())
        cluster.simulation.run_for(1)
        cluster.simulation.run_until(
            cluster.simulation.spawn("broker-1", cluster.brokers["broker-1"].stop()), limit_s=60
        )
        results = cluster.simulation.run_until(ended, limit_s=1)
        assert [each.message for each in results] == ["The broker shuts down."] * 2


def test_a_large_request_is_answered_whole() -> None:
    """In slices, so that other clients need not wait; the rows of a topic are together."""
    count = 1300
    with running_cluster(1, release_name=RELEASE, settings=ALONE) as cluster:
        key = new_key(cluster)
        run(cluster, lambda each: each.initialize("g", [(key, 0, 5)]))
        rows = [PartitionData(partition=number, leader_epoch=0) for number in range(count)]
        topics = [
            ReadStateSummaryData(topic_id=key.topic_id, partitions=rows),
            ReadStateSummaryData(topic_id=bytes(16), partitions=rows[:1]),
        ]
        request = ReadShareGroupStateSummaryRequest(group_id="g", topics=topics)
        answer = cluster.run(lambda client: client.ask(request))
        found = {topic.topic_id: topic.partitions for topic in answer.results}
        assert [row.partition for row in found[key.topic_id]] == list(range(count))
        assert [row.error_code for row in found[key.topic_id][:3]] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert found[key.topic_id][0].start_offset == 5
        assert len(found[bytes(16)]) == 1
        topics.append(ReadStateSummaryData(topic_id=bytes(16), partitions=[]))
        assert cluster.run(lambda client: client.ask(request)).results == []
