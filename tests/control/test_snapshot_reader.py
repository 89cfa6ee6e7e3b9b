"""Snapshots of running clusters: each part, what is missing and why, and what they cost."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import kraftsim
from kraftsim.conformance.batches import batch, produce_request
from kraftsim.conformance.target import Target
from kraftsim.conformance.transactional_id import Producer, TransactionalId
from kraftsim.control.state.cluster_snapshot import (
    ClusterSnapshot,
    NetworkConditionEntry,
    NodeCondition,
    NodeStatus,
    PartitionStatus,
    RequestFaultEntry,
    VerbStatus,
)
from kraftsim.control.state.event_logs import EventEnvelope
from kraftsim.control.state.snapshot_reader import SnapshotReader, parse_bootstrap
from kraftsim.events.event import LineEncoder, event_file_name
from kraftsim.producer_ids.events import ProducerIdBlockAllocated
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import ProduceResponse
from tests.cluster.broker_client import broker_client

SECONDS = 20.0
PRODUCE_VERSION = 8
DEAD_ADDRESS = "127.0.0.1:1"


async def wait_for(
    reader: SnapshotReader, is_reached: Callable[[ClusterSnapshot], bool]
) -> ClusterSnapshot:
    """Return the first snapshot that passes a check."""
    async with asyncio.timeout(SECONDS):
        while not is_reached(snapshot := await reader.snapshot()):
            await asyncio.sleep(0.2)
    return snapshot


@pytest.fixture(scope="module")
def cluster() -> Iterator[kraftsim.Cluster]:
    """Three brokers and a controller."""
    with kraftsim.Cluster(brokers=3) as running:
        yield running


def reader_of(cluster: kraftsim.Cluster) -> SnapshotReader:
    """Return a reader of a cluster as a stranger has it: by bootstrap.servers and event logs."""
    return SnapshotReader(cluster.bootstrap, events_directory=cluster.directory / "events")


def leader_of(cluster: kraftsim.Cluster, topic: str) -> str:
    """Return the address of the leader of partition 0."""
    addresses = cluster.bootstrap.split(",")
    with broker_client(addresses[0]) as broker:
        return addresses[broker.metadata(topic).topics[0].partitions[0].leader_id - 1]


def open_transaction(cluster: kraftsim.Cluster, topic: str) -> tuple[TransactionalId, Producer]:
    """Begin a transaction with two records in partition 0."""
    target = Target(cluster.bootstrap.split(",")[0])
    transactional_id = TransactionalId(target)
    producer_id, producer_epoch = producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic, 0)])
    records = batch(
        2,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    request = produce_request(topic, records, transactional_id=transactional_id.name)
    with target.peer(leader_of(cluster, topic)) as peer:
        answer = peer.ask(request, PRODUCE_VERSION, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return transactional_id, producer


async def test_a_snapshot_has_nodes_topics_and_the_quorum(cluster: kraftsim.Cluster) -> None:
    topic = cluster.create_topic(partitions=3, replicas=3)
    reader = reader_of(cluster)
    snapshot = await reader.snapshot()
    await reader.close()
    nodes = {node.name: node for node in snapshot.nodes}
    assert list(nodes) == ["broker-1", "broker-2", "broker-3", "controller-101"]
    assert {node.condition for node in nodes.values()} == {NodeCondition.UP}
    assert [name for name, node in nodes.items() if node.is_active_controller] == ["controller-101"]
    assert nodes["broker-2"].release == cluster.spec.release
    assert nodes["broker-2"].is_fenced is False
    created = next(each for each in snapshot.topics if each.name == topic)
    assert created.min_insync_replicas == 1
    assert [each.partition for each in created.partitions] == [0, 1, 2]
    for each in created.partitions:
        assert sorted(each.isr) == sorted(each.replicas) == [1, 2, 3]
        assert not each.is_under_replicated
        assert (each.log_start_offset, each.high_watermark, each.last_stable_offset) == (0, 0, 0)
    assert snapshot.quorum is not None
    assert snapshot.quorum.leader == snapshot.controller == 101
    assert [each.node_id for each in snapshot.quorum.replicas if each.is_voter] == [101]
    assert {each.node_id for each in snapshot.quorum.replicas if not each.is_voter} == {1, 2, 3}
    assert snapshot.missing == {}


async def test_an_open_transaction_is_seen_at_its_coordinator_and_partition(
    cluster: kraftsim.Cluster,
) -> None:
    """The last stable offset stays at its first record until the marker is written (KIP-98)."""
    topic = cluster.create_topic(replicas=3)
    transactional_id, producer = await asyncio.to_thread(open_transaction, cluster, topic)
    reader = reader_of(cluster)
    snapshot = await wait_for(
        reader,
        lambda each: any(row.high_watermark == 2 for row in partitions_of(each, topic)),
    )
    (partition,) = partitions_of(snapshot, topic)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
    (known,) = [each for each in snapshot.producers if each.topic == topic]
    assert (known.producer_id, known.producer_epoch, known.last_sequence) == (*producer, 1)
    assert (known.current_transaction_start_offset, known.coordinator_epoch) == (0, None)
    (listed,) = [
        each for each in snapshot.transactions if each.transactional_id == transactional_id.name
    ]
    assert (listed.state, listed.producer_id) == ("Ongoing", producer[0])
    assert listed.partitions == (f"{topic}-0",)
    assert listed.started_ms is not None
    await asyncio.to_thread(transactional_id.ended, producer, commits=True)
    snapshot = await wait_for(
        reader,
        lambda each: any(row.last_stable_offset == 3 for row in partitions_of(each, topic)),
    )
    (known,) = [each for each in snapshot.producers if each.topic == topic]
    assert known.current_transaction_start_offset is None
    assert known.coordinator_epoch is not None
    await reader.close()


def partitions_of(snapshot: ClusterSnapshot, topic: str) -> tuple[PartitionStatus, ...]:
    """Return the partitions of a topic."""
    return next(each.partitions for each in snapshot.topics if each.name == topic)


async def test_blocks_count_the_ids_that_clients_got(cluster: kraftsim.Cluster) -> None:
    addresses = cluster.bootstrap.split(",")
    reader = reader_of(cluster)
    before = {
        (each.broker_id, each.first_producer_id): each.returned_count
        for each in (await reader.snapshot()).blocks
    }
    with broker_client(addresses[0]) as broker:
        ids = [broker.fresh_producer_id() for _ in range(5)]
    snapshot = await wait_for(
        reader,
        lambda each: sum(row.returned_count for row in each.blocks) >= sum(before.values()) + 5,
    )
    await reader.close()
    (block,) = [
        each
        for each in snapshot.blocks
        if each.first_producer_id <= ids[0] <= each.last_producer_id
    ]
    assert block.broker_id == 1
    assert block.highest_returned == max(ids)
    assert block.last_producer_id - block.first_producer_id == 999
    key = (block.broker_id, block.first_producer_id)
    assert block.returned_count == before.get(key, 0) + 5


async def test_many_viewers_cost_as_much_as_one(cluster: kraftsim.Cluster) -> None:
    """Viewers share a snapshot that is being taken, and one that is at most a second old."""
    reader = reader_of(cluster)
    snapshots = await asyncio.gather(*(reader.snapshot() for _ in range(20)))
    assert all(each is snapshots[0] for each in snapshots)
    assert await reader.snapshot() is snapshots[0]
    await asyncio.sleep(1.05)
    assert await reader.snapshot() is not snapshots[0]
    await reader.close()


async def test_a_viewer_that_gives_up_does_not_end_the_snapshot_of_others(
    cluster: kraftsim.Cluster,
) -> None:
    reader = reader_of(cluster)
    hasty = asyncio.ensure_future(reader.snapshot())
    patient = asyncio.ensure_future(reader.snapshot())
    await asyncio.sleep(0)
    hasty.cancel()
    assert (await patient).topics
    assert hasty.cancelled()
    await reader.close()


async def test_without_a_cluster_every_part_is_missing_with_the_reason() -> None:
    reader = SnapshotReader(DEAD_ADDRESS)
    snapshot = await reader.snapshot()
    await reader.close()
    assert snapshot.topics == ()
    assert snapshot.quorum is None
    assert set(snapshot.missing) == {
        "topics",
        "producers",
        "transactions",
        "groups",
        "quorum",
        "blocks",
        "checks",
    }
    assert "no broker answered Metadata" in snapshot.missing["topics"]
    assert "no event logs" in snapshot.missing["checks"]


async def test_a_release_without_an_api_says_so() -> None:
    """DescribeProducers and ListTransactions came with 2.8 and 3.0 (KIP-664)."""
    with kraftsim.Cluster(release="2.6", zookeeper=1, controllers=0) as old:
        reader = reader_of(old)
        snapshot = await reader.snapshot()
        await reader.close()
    assert snapshot.missing["producers"] == "the cluster's release has no DescribeProducers"
    assert snapshot.missing["transactions"] == "the cluster's release has no ListTransactions"
    assert snapshot.missing["quorum"] == "the cluster's release has no DescribeQuorum"
    assert snapshot.topics
    assert snapshot.controller == 1


async def test_a_broker_that_is_down_costs_its_part_only() -> None:
    with kraftsim.Cluster(brokers=2, settings={"broker.session.timeout.ms": "2000"}) as running:
        topic = running.create_topic(partitions=4, replicas=2)
        reader = reader_of(running)
        await reader.snapshot()
        await running.aio.kill("broker-2")
        snapshot = await wait_for(
            reader,
            lambda each: all(row.leader == 1 for row in partitions_of(each, topic)),
        )
        await reader.close()
        assert all(each.is_under_replicated for each in partitions_of(snapshot, topic))
        assert all(each.high_watermark == 0 for each in partitions_of(snapshot, topic))
        nodes = {node.name: node for node in snapshot.nodes}
        assert nodes["broker-2"].is_fenced is True
        assert nodes["broker-1"].is_fenced is False


class Controlled:
    """What a controlling process knows of three nodes."""

    def nodes(self) -> tuple[NodeStatus, ...]:
        """Return one that the cluster does not name, and one that the process has paused."""
        return (
            NodeStatus(name="broker-3", node_id=3, role="broker", condition=NodeCondition.PAUSED),
            NodeStatus(name="broker-9", node_id=9, role="broker", condition=NodeCondition.DOWN),
        )

    def request_faults(self) -> tuple[RequestFaultEntry, ...]:
        """Return one."""
        return (RequestFaultEntry(number=1, text="* blackhole", matched=2, effects=1),)

    def network(self) -> tuple[NetworkConditionEntry, ...]:
        """Return one."""
        return (NetworkConditionEntry(link="clients>broker-1", condition="cut"),)

    def verbs(self) -> tuple[VerbStatus, ...]:
        """Return one."""
        return (VerbStatus(verb="kill", is_possible=True),)


async def test_the_controlling_process_decides_whether_a_node_runs(
    cluster: kraftsim.Cluster,
) -> None:
    controlled = Controlled()
    reader = SnapshotReader(cluster.bootstrap, controlled=controlled, name="mine")
    snapshot = await reader.snapshot()
    await reader.close()
    conditions = {node.name: node.condition for node in snapshot.nodes}
    assert conditions["broker-1"] is NodeCondition.UP
    assert conditions["broker-3"] is NodeCondition.PAUSED
    assert conditions["broker-9"] is NodeCondition.DOWN
    assert next(node for node in snapshot.nodes if node.name == "broker-9").is_fenced is True
    assert snapshot.name == "mine"
    assert snapshot.request_faults == controlled.request_faults()
    assert snapshot.network == controlled.network()
    assert snapshot.verbs == controlled.verbs()


def test_addresses_are_read_as_in_bootstrap_servers() -> None:
    assert parse_bootstrap("one:9092, [::1]:9093") == (("one", 9092), ("::1", 9093))
    with pytest.raises(ValueError, match=r"'one' is no address: write HOST:PORT"):
        parse_bootstrap("one")


async def test_event_logs_of_a_directory_that_is_not_there_are_no_error(
    cluster: kraftsim.Cluster, tmp_path: Path
) -> None:
    reader = SnapshotReader(cluster.bootstrap, events_directory=tmp_path / "none")
    snapshot = await reader.snapshot()
    await reader.close()
    assert snapshot.blocks == ()
    assert snapshot.checks is not None
    assert snapshot.checks.checked == ()


async def test_a_violation_of_a_running_cluster_is_seen_live() -> None:
    """A second allocation of the first block, as a broken controller would log it."""
    with kraftsim.Cluster() as running:
        envelope, first = running.events(ProducerIdBlockAllocated)[0]
        events = running.directory / "events"
        reader = reader_of(running)
        snapshot = await wait_for(
            reader,
            lambda each: (
                each.checks is not None and "producer-id-blocks-disjoint" in each.checks.checked
            ),
        )
        assert snapshot.checks is not None
        assert snapshot.checks.violations == ()
        again = LineEncoder("run", "controller-199", 1).line(
            0, latest_ns(running), 1, replace(first, broker_id=2)
        )
        (events / event_file_name("controller-199", 1)).write_bytes(again)
        snapshot = await wait_for(
            reader, lambda each: each.checks is not None and each.checks.violation_count > 0
        )
        await reader.close()
        assert snapshot.checks is not None
        found = {each.invariant: each for each in snapshot.checks.violations}
        assert found["producer-id-blocks-disjoint"].witnesses == (
            envelope.event_id,
            "controller-199.1.0",
        )


def latest_ns(cluster: kraftsim.Cluster) -> int:
    """Return the time of the last event of the controller."""
    log = cluster.directory / "events" / event_file_name("controller-101", 1)
    return msgspec.json.decode(log.read_bytes().splitlines()[-1], type=EventEnvelope).t_ns
