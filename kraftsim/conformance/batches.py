"""Record batches and how to produce them: shared by the checks of Produce, Fetch and
ListOffsets.
"""

import time

from kraftsim.conformance.expect import expect_error
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batches import build_batch
from protocol.records.record import Compression, Record

ALL, LEADER, NONE = -1, 1, 0
"""The acks of a Produce request."""
TIMEOUT_MS = 15000
FORMAT_2_SINCE = 3
"""The first version of Produce with batches of message format 2; older formats are converted."""
NAMES_UNTIL = 12
"""The last version of Produce with topic names."""


def wall_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def batch(
    records: int = 1,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: Compression = Compression.NONE,
    transactional: bool = False,
) -> bytes:
    """Return a batch of small records with current timestamps; with a producer id, epoch and
    sequence an idempotent one.
    """
    values = [Record(timestamp=wall_ms(), value=b"record %d" % index) for index in range(records)]
    return build_batch(
        values,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        compression=compression,
        transactional=transactional,
    )


def produce_request(
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = ALL,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Return a request with one batch for one partition."""
    topics = [
        TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=partition, records=records)]
        )
    ]
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=TIMEOUT_MS, topic_data=topics
    )


def produce(
    peer: Peer, topic: str, records: bytes, version: int = 9, *, partition: int = 0, acks: int = ALL
) -> PartitionProduceResponse:
    """Produce one batch to one partition over a connection to its leader, and return the
    partition's response.
    """
    answer = peer.ask(
        produce_request(topic, records, partition=partition, acks=acks), version, ProduceResponse
    )
    return answer.responses[0].partition_responses[0]


def produce_versions(target: Target) -> list[int]:
    """Return the versions of Produce that both sides support, with batches of format 2 and topic
    names.
    """
    return [
        version
        for version in target.versions(ApiKey.PRODUCE, since=FORMAT_2_SINCE)
        if version <= NAMES_UNTIL
    ]


def filled_topic(target: Target, batches: int, records: int = 1) -> TargetTopic:
    """Create a topic whose only partition contains so many batches of so many records."""
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        for _ in range(batches):
            answer = produce(peer, topic.name, batch(records))
            expect_error(answer.error_code, ErrorCode.NONE, "filling a topic")
    return topic
