"""The log directories of a small kraftsim cluster that was stopped cleanly: three replicas, leader
changes, transactions that were committed and aborted, offsets of groups, metadata snapshots.
"""

import asyncio
import shutil
import time
from pathlib import Path

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.group_client import find_coordinator, with_retries
from kraftsim.conformance.target import Target
from kraftsim.conformance.transaction_client import find_transaction_coordinator
from kraftsim.conformance.transactional_id import TransactionalId
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.records.batches import build_batch, split_batches
from protocol.records.record import Record

ORDERS, COPIES = "orders", "copies"
BROKERS = 3
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "1",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.max.idle.interval.ms": "100",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.index.interval.bytes": "200",
}
SECONDS = 30.0
BATCHES_BEHIND_SNAPSHOTS = 6
"""The controller writes a batch every 100 ms when it has nothing else to write."""
RETRIED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


class SmallLoad:
    """Requests to a running cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.target = Target(cluster.bootstrap.split(",")[0])
        self._numbers = iter(range(1 << 30))

    def create(self, name: str, *leaders: int) -> None:
        """Create a topic with small segments, led by the given brokers, and wait for them."""
        configs = [CreatableTopicConfig(name="segment.bytes", value="2048")]
        assignments = [
            CreatableReplicaAssignment(
                partition_index=partition,
                broker_ids=[leader, *(each for each in range(1, BROKERS + 1) if each != leader)],
            )
            for partition, leader in enumerate(leaders)
        ]
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=assignments,
            configs=configs,
        )
        with self.target.peer() as peer:
            answer = peer.ask(
                CreateTopicsRequest(topics=[topic], timeout_ms=15_000), 7, CreateTopicsResponse
            )
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        self._until(lambda: -1 not in self.leaders(name, in_sync=BROKERS), f"{name} has leaders")

    def leaders(self, topic: str, in_sync: int = 1) -> list[int]:
        """Return the leader of each partition; -1 if too few replicas are in sync."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        with self.target.peer() as peer:
            rows = peer.ask(request, 9, MetadataResponse).topics[0].partitions
        found = sorted(rows, key=lambda row: row.partition_index)
        return [row.leader_id if len(row.isr_nodes) >= in_sync else -1 for row in found] or [-1]

    def write(
        self,
        topic: str,
        partition: int,
        producer: tuple[int, int] = (-1, -1),
        sequence: int = -1,
        transactional_id: str | None = None,
    ) -> None:
        """Write a batch of four records."""
        now = int(time.time() * 1000)
        records = [
            Record(timestamp=now, key=b"key", value=b"value number %06d" % next(self._numbers))
            for _ in range(4)
        ]
        data = build_batch(
            records,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=transactional_id is not None,
        )
        rows = [PartitionProduceData(index=partition, records=data)]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=rows)],
        )

        def asked() -> ProduceResponse:
            leader = self.leaders(topic)[partition]
            if leader < 0:
                leader = 1
            with self.target.peer(self.address(leader)) as peer:
                return peer.ask(request, 8, ProduceResponse)

        answer = with_retries(
            asked, lambda found: found.responses[0].partition_responses[0].error_code, RETRIED
        )
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE, answer

    def address(self, broker_id: int) -> str:
        """Return the address of a broker."""
        return self.cluster.bootstrap.split(",")[broker_id - 1]

    def transact(self, name: TransactionalId, producer: tuple[int, int], group: str) -> None:
        """Commit two transactions, abort one, and commit one with offsets."""
        sequences = {ORDERS: 0, COPIES: 0}
        for number, commits in enumerate((True, False, True, True)):
            name.begin(producer, [(ORDERS, 0), (COPIES, 0)])
            for topic in (ORDERS, COPIES):
                for _ in range(2):
                    self.write(topic, 0, producer, sequences[topic], name.name)
                    sequences[topic] += 4
            if number:
                assert name.add_offsets(producer, group) == ErrorCode.NONE
                self._commit_in_transaction(name, producer, group, 4 * number)
            name.ended(producer, commits=commits)

    def _commit_in_transaction(
        self, name: TransactionalId, producer: tuple[int, int], group: str, offset: int
    ) -> None:
        row = TxnOffsetCommitRequestPartition(
            partition_index=1, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=name.name,
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[TxnOffsetCommitRequestTopic(name=ORDERS, partitions=[row])],
        )
        with self.target.peer(find_coordinator(self.target, group)) as peer:
            answer = with_retries(
                lambda: peer.ask(request, 3, TxnOffsetCommitResponse),
                lambda found: found.topics[0].partitions[0].error_code,
            )
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE, answer

    def commit(self, group: str, topic: str, offset: int) -> None:
        """Commit an offset outside a transaction, without a member."""
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])]
        )
        with self.target.peer(find_coordinator(self.target, group)) as peer:
            answer = with_retries(
                lambda: peer.ask(request, 7, OffsetCommitResponse),
                lambda found: found.topics[0].partitions[0].error_code,
            )
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE, answer

    def _until(self, holds: object, what: str) -> None:
        give_up_at = time.monotonic() + SECONDS
        while not holds():  # type: ignore[operator]  # a condition of several types
            assert time.monotonic() < give_up_at, what
            time.sleep(0.02)


def make_log_directories(directory: Path) -> list[Path]:
    """Run a cluster in this process, stop it, and return its log directories."""
    spec = ClusterSpec(
        brokers=BROKERS,
        controllers=2,
        port=free_port_range(BROKERS, controllers=2),
        settings=SETTINGS,
    )
    run = RunDirectory(directory)
    with EmbeddedCluster(spec, run) as cluster:
        load = SmallLoad(cluster)
        load.create(ORDERS, 1, 2)
        load.create(COPIES, 3)
        plain = load.target.producer_id()
        for number in range(24):
            load.write(ORDERS, 1, plain, 4 * number)
        for _ in range(12):
            load.write(COPIES, 0)
        name = TransactionalId(load.target)
        load.transact(name, name.producer(), "copiers")
        for number in range(1, 5):
            load.commit("readers", ORDERS, 4 * number)
        _change_leader(cluster, load)
        name.address = find_transaction_coordinator(load.target, name.name)
        load.transact(name, name.producer(), "copiers")
        for number in range(24, 40):
            load.write(ORDERS, 1, plain, 4 * number)
        load.write(COPIES, 0)
        logs = sorted((directory / "data").glob("controller-*/__cluster_metadata-0"))
        load._until(
            lambda: min(map(_batches_behind_snapshots, logs)) >= BATCHES_BEHIND_SNAPSHOTS,
            "records follow the newest snapshots",
        )
    shutil.rmtree(run.events, ignore_errors=True)
    return sorted(each for each in (directory / "data").iterdir() if each.is_dir())


def _batches_behind_snapshots(log: Path) -> int:
    """Return how many batches a metadata log has behind its newest snapshot."""
    covered = max((int(file.name[:20]) for file in log.glob("*-*.checkpoint")), default=0)
    data = b"".join(file.read_bytes() for file in sorted(log.glob("*.log")))
    return sum(batch.base_offset >= covered for batch in split_batches(data))


def _change_leader(cluster: EmbeddedCluster, load: SmallLoad) -> None:
    """Stop the leader of one partition and start it again, when the others have caught up."""
    leader = load.leaders(ORDERS)[1]
    assert leader == 2, "it leads one partition of three, and requests do not go there"
    name = cluster.spec.broker_names[leader - 1]
    asyncio.run(cluster.stop_node(name))
    load._until(lambda: leader not in load.leaders(ORDERS), "another broker leads")
    for _ in range(3):
        load.write(COPIES, 0)
    cluster.restart(name)
    cluster.wait_until_ready()
    for topic in (ORDERS, COPIES):
        load._until(lambda: -1 not in load.leaders(topic, in_sync=BROKERS), "all are in sync")  # noqa: B023  (called in this turn of the loop)
