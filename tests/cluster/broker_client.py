"""Requests of tests to one broker over a blocking socket: topics, producer ids, batches with a
given sequence, and the content of a log.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kraftsim.conformance.peer import Peer
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    ACKS_ALL,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batches import build_batch, split_batches
from protocol.records.record import Record

SECONDS = 30.0


@contextmanager
def broker_client(address: str) -> "Iterator[BrokerClient]":
    """Connect to one node."""
    with Peer.at(address) as peer:
        yield BrokerClient(peer)


class BrokerClient:
    """One connection to one broker."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def init_producer_id(self) -> InitProducerIdResponse:
        """Send InitProducerId once."""
        return self.peer.ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
            4,
            InitProducerIdResponse,
        )

    def fresh_producer_id(self) -> int:
        """Send InitProducerId until the broker returns an id."""
        give_up_at = time.monotonic() + SECONDS
        while (answer := self.init_producer_id()).error_code:
            assert time.monotonic() < give_up_at, ErrorCode(answer.error_code)
            time.sleep(0.02)
        return answer.producer_id

    def metadata(self, topic: str, *, create: bool = False) -> MetadataResponse:
        """Send Metadata for one topic."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create
        )
        return self.peer.ask(request, 12, MetadataResponse)

    def create_topic(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        """Create a topic and wait until each partition has a leader."""
        new = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replicas)
        answer = self.peer.ask(
            CreateTopicsRequest(topics=[new], timeout_ms=10_000), 7, CreateTopicsResponse
        )
        assert [each.error_code for each in answer.topics] == [ErrorCode.NONE], answer
        self.wait_for_leaders(topic, partitions)

    def wait_for_leaders(self, topic: str, partitions: int) -> None:
        """Wait until each partition of a topic has a leader."""
        give_up_at = time.monotonic() + SECONDS
        while True:
            leaders = [each.leader_id for each in self.metadata(topic).topics[0].partitions]
            if len(leaders) == partitions and all(leader > 0 for leader in leaders):
                return
            assert time.monotonic() < give_up_at, f"{topic} has leaders {leaders}"
            time.sleep(0.02)

    def produce(
        self,
        topic: str,
        batch: bytes,
        partition: int = 0,
        *,
        acks: int = ACKS_ALL,
        timeout_ms: int = 10_000,
        seconds: float = SECONDS,
    ) -> PartitionProduceResponse:
        """Send one batch, and return the response of its partition.

        Retried for so many seconds if the broker, leader according to Metadata, is not leader yet.
        """
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
        )
        give_up_at = time.monotonic() + seconds
        while True:
            whole = self.peer.ask(
                ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data]),
                11,
                ProduceResponse,
            )
            answer = whole.responses[0].partition_responses[0]
            if (
                answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER
                or time.monotonic() > give_up_at
            ):
                return answer
            time.sleep(0.02)

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        """Return the value of every record of a partition, from offset 0; the offsets must be
        contiguous.
        """
        read: list[bytes] = []
        while True:
            wanted = FetchPartition(
                partition=partition, fetch_offset=len(read), partition_max_bytes=1 << 20
            )
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])]
            )
            answer = self.peer.ask(request, 12, FetchResponse).responses[0].partitions[0]
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                time.sleep(0.02)
                continue
            assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
            records = [
                record
                for batch in split_batches(bytes(answer.records or b""))
                for record in batch.records()
            ]
            if not records:
                assert answer.high_watermark == len(read), (
                    "everything below the high watermark is read"
                )
                return read
            assert [record.offset for record in records] == list(
                range(len(read), len(read) + len(records))
            )
            read += [bytes(record.value or b"") for record in records]


def batch_of(values: Sequence[bytes], *, producer_id: int = -1, base_sequence: int = -1) -> bytes:
    """Build a batch of an idempotent producer with epoch 0."""
    records = [Record(timestamp=1_700_000_000_000, key=b"key", value=value) for value in values]
    return bytes(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=base_sequence,
        )
    )
