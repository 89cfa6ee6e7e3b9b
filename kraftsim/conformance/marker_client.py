"""Transactions in one partition for the checks: transactional batches, markers, and the view of
read_committed consumers.
"""

from typing import Final

from kraftsim.conformance.batches import ALL, batch, produce_request
from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.k01_fetch import fetch_one, fetch_request
from kraftsim.conformance.target import Target, TargetTopic
from kraftsim.conformance.transactional_id import Producer, TransactionalId
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import PartitionProduceResponse, ProduceResponse
from protocol.messages.k01_fetch import READ_COMMITTED, PartitionData
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    ProducerState,
)
from protocol.records.batches import split_batches

PRODUCE_VERSION: Final = 9
Seen = tuple[list[int], int, int, list[tuple[int, int]] | None]
"""Base offsets of the batches, last stable offset, high watermark, and (producer id, first offset)
of aborted transactions.
"""


class TransactionAt:
    """A producer with its own transactional id, and one partition that it writes to."""

    def __init__(self, target: Target, topic: TargetTopic) -> None:
        self.target = target
        self.topic = topic
        self.id = TransactionalId(target)
        self.producer: Producer = self.id.producer()

    @property
    def producer_id(self) -> int:
        """The producer id, which does not change."""
        return self.producer[0]

    def write(
        self,
        sequence: int,
        records: int = 1,
        *,
        version: int = PRODUCE_VERSION,
        partition: int = 0,
        producer: Producer | None = None,
        acks: int = ALL,
    ) -> PartitionProduceResponse:
        """Produce a batch of the transaction, whether or not the partition was added."""
        producer_id, producer_epoch = producer or self.producer
        data = batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        asked = produce_request(
            self.topic.name, data, partition=partition, acks=acks, transactional_id=self.id.name
        )
        with self.target.peer(self.topic.leader) as peer:
            return peer.ask(asked, version, ProduceResponse).responses[0].partition_responses[0]

    def wrote(self, sequence: int, records: int = 1) -> None:
        """Add the partition, and produce a batch. Raises Unmet."""
        self.id.begin(self.producer, [(self.topic.name, 0)])
        expect_error(
            self.write(sequence, records).error_code,
            ErrorCode.NONE,
            f"a transactional batch from sequence {sequence}",
        )

    def ended(self, *, commits: bool) -> None:
        """End the transaction as its coordinator does. Raises Unmet."""
        self.id.ended(self.producer, commits=commits)


def marker(
    producer: Producer,
    *,
    commits: bool = True,
    coordinator_epoch: int = 0,
    topics: dict[str, list[int]],
) -> WritableTxnMarker:
    """Return a marker for some partitions, by topic."""
    return WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=commits,
        coordinator_epoch=coordinator_epoch,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ],
    )


def write_markers(
    target: Target, address: str, *markers: WritableTxnMarker, version: int = 1
) -> dict[tuple[int, str, int], int]:
    """Send WriteTxnMarkers; return the errors by (producer id, topic, partition)."""
    with target.peer(address) as peer:
        answer = peer.ask(
            WriteTxnMarkersRequest(markers=list(markers)), version, WriteTxnMarkersResponse
        )
    return {
        (each.producer_id, topic.name, row.partition_index): row.error_code
        for each in answer.markers
        for topic in each.topics
        for row in topic.partitions
    }


def end_at(
    target: Target,
    topic: TargetTopic,
    producer: Producer,
    *,
    commits: bool = True,
    coordinator_epoch: int = 0,
    version: int = 1,
) -> int:
    """Write one marker to the only partition of a topic, and return its error."""
    row = marker(
        producer, commits=commits, coordinator_epoch=coordinator_epoch, topics={topic.name: [0]}
    )
    ((_, error),) = write_markers(target, topic.leader, row, version=version).items()
    return error


def read_at(
    target: Target,
    topic: TargetTopic,
    offset: int,
    *,
    version: int = 12,
    isolation: int = READ_COMMITTED,
    partition_max_bytes: int = 1 << 20,
) -> PartitionData:
    """Fetch without waiting."""
    asked = fetch_request(topic, version, offset, partition_max_bytes=partition_max_bytes)
    asked.isolation_level = isolation
    return fetch_one(target, topic, asked, version)


def seen(row: PartitionData) -> Seen:
    """Return a consumer's view of transactions."""
    aborted = row.aborted_transactions
    returned = (
        None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted]
    )
    return (
        [each.base_offset for each in split_batches(bytes(row.records or b""))],
        row.last_stable_offset,
        row.high_watermark,
        returned,
    )


def expect_seen(
    target: Target,
    topic: TargetTopic,
    offset: int,
    expected: Seen,
    what: str,
    *,
    version: int = 12,
    isolation: int = READ_COMMITTED,
) -> None:
    """Raise Unmet unless a consumer's view is the expected one."""
    row = read_at(target, topic, offset, version=version, isolation=isolation)
    expect_error(row.error_code, ErrorCode.NONE, what)
    expect_equal(
        seen(row),
        expected,
        f"{what}: first offsets, last stable offset, high watermark, aborted transactions",
    )


def described_producer(target: Target, topic: TargetTopic, producer_id: int) -> ProducerState:
    """Return the leader's state of a producer. Raises Unmet if there is none."""
    with target.peer(topic.leader) as peer:
        asked = DescribeProducersRequest(
            topics=[DescribeProducersTopic(name=topic.name, partition_indexes=[0])]
        )
        answer = peer.ask(
            asked, target.newest(ApiKey.DESCRIBE_PRODUCERS), DescribeProducersResponse
        )
    known = [
        each
        for each in answer.topics[0].partitions[0].active_producers
        if each.producer_id == producer_id
    ]
    expect_equal(len(known), 1, f"rows of producer {producer_id}")
    return known[0]
