"""The messages of the codec benchmark: twenty of the hot path and of startup, with typical sizes.

A mean over all messages would be dominated by small administrative ones; these are the messages
that producers, coordinators and brokers send most.
"""

from dataclasses import dataclass

from protocol.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.k18_api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from protocol.requests import RequestHeader

TOPICS = ("orders", "payments", "audit-log")
"""Three topics of four partitions: "3x4"."""
PARTITIONS = range(4)
TIMESTAMP_MS = 1_700_000_000_000
PRODUCER_ID = 4_000_007


@dataclass(frozen=True, slots=True)
class Sample:
    """A message, and the version at which it is measured."""

    title: str
    version: int
    message: object


def samples() -> list[Sample]:
    """Return the twenty."""
    transactional_id = "txn-app-1"
    return [
        Sample(
            "ApiVersionsRequest",
            3,
            ApiVersionsRequest(
                client_software_name="kafka-client", client_software_version="3.9.1"
            ),
        ),
        Sample("ApiVersionsResponse, 60 keys", 0, _api_versions()),
        Sample("ApiVersionsResponse, 60 keys", 3, _api_versions()),
        Sample(
            "InitProducerIdRequest",
            1,
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000),
        ),
        Sample(
            "InitProducerIdRequest",
            4,
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000),
        ),
        Sample("InitProducerIdResponse", 4, InitProducerIdResponse(producer_id=PRODUCER_ID)),
        Sample(
            "AllocateProducerIdsRequest",
            0,
            AllocateProducerIdsRequest(broker_id=2, broker_epoch=17),
        ),
        Sample(
            "AllocateProducerIdsResponse",
            0,
            AllocateProducerIdsResponse(producer_id_start=PRODUCER_ID, producer_id_len=1000),
        ),
        Sample("ProduceRequest, 16 KiB", 7, _produce(TOPICS[:1], range(1), 16_384)),
        Sample("ProduceRequest, 16 KiB", 9, _produce(TOPICS[:1], range(1), 16_384)),
        Sample("ProduceRequest, 3x4", 9, _produce(TOPICS, PARTITIONS, 200)),
        Sample("ProduceResponse, 3x4", 9, _produced()),
        Sample("FetchRequest, 3x4", 12, _fetch()),
        Sample("FetchResponse, 3x4 of 4 KiB", 12, _fetched()),
        Sample("TxnOffsetCommitRequest, 3x4", 3, _txn_offset_commit(transactional_id)),
        Sample("TxnOffsetCommitResponse, 3x4", 3, _txn_offsets_committed()),
        Sample(
            "MetadataRequest, 3 topics",
            12,
            MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in TOPICS]),
        ),
        Sample("MetadataResponse, 20x6", 8, _metadata(has_topic_ids=False)),
        Sample("MetadataResponse, 20x6", 12, _metadata(has_topic_ids=True)),
        Sample(
            "RequestHeader",
            2,
            RequestHeader(
                request_api_key=22, request_api_version=4, correlation_id=77, client_id="producer-1"
            ),
        ),
    ]


def _api_versions() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=0, max_version=key % 17) for key in range(60)]
    )


def _produce(topics: tuple[str, ...], partitions: range, records_size: int) -> ProduceRequest:
    content = memoryview(bytes(range(250)) * (records_size // 250 + 1))[:records_size]
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index, records=content) for index in partitions
                ],
            )
            for topic in topics
        ],
    )


def _produced() -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic,
                partition_responses=[
                    PartitionProduceResponse(
                        index=index,
                        base_offset=1_000 + index,
                        log_append_time_ms=TIMESTAMP_MS,
                        log_start_offset=0,
                    )
                    for index in PARTITIONS
                ],
            )
            for topic in TOPICS
        ]
    )


def _fetch() -> FetchRequest:
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=52_428_800,
        isolation_level=1,
        session_epoch=0,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=5,
                        fetch_offset=1_000 + index,
                        partition_max_bytes=1_048_576,
                    )
                    for index in PARTITIONS
                ],
            )
            for topic in TOPICS
        ],
    )


def _fetched() -> FetchResponse:
    content = memoryview(bytes(range(256)) * 16)
    return FetchResponse(
        session_id=123_456,
        responses=[
            FetchableTopicResponse(
                topic=topic,
                partitions=[
                    PartitionData(
                        partition_index=index,
                        high_watermark=5_000,
                        last_stable_offset=4_990,
                        log_start_offset=0,
                        aborted_transactions=[],
                        records=content,
                    )
                    for index in PARTITIONS
                ],
            )
            for topic in TOPICS
        ],
    )


def _txn_offset_commit(transactional_id: str) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id="group-1",
        producer_id=PRODUCER_ID,
        producer_epoch=3,
        generation_id_or_member_epoch=11,
        member_id="member-1",
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=1_000 + index,
                        committed_leader_epoch=5,
                        committed_metadata="",
                    )
                    for index in PARTITIONS
                ],
            )
            for topic in TOPICS
        ],
    )


def _txn_offsets_committed() -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=index) for index in PARTITIONS
                ],
            )
            for topic in TOPICS
        ]
    )


def _metadata(*, has_topic_ids: bool) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(
            name=f"topic-{number:02d}",
            topic_id=bytes(15) + bytes((number + 1,)) if has_topic_ids else bytes(16),
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=index % 3,
                    leader_epoch=7,
                    replica_nodes=[index % 3, (index + 1) % 3, (index + 2) % 3],
                    isr_nodes=[index % 3, (index + 1) % 3],
                )
                for index in range(6)
            ],
        )
        for number in range(20)
    ]
    brokers = [
        MetadataResponseBroker(
            node_id=number, host=f"broker-{number}.example.org", port=9092, rack=None
        )
        for number in range(3)
    ]
    return MetadataResponse(
        brokers=brokers, cluster_id="5L6g3nShT-eMCtK--X86sw", controller_id=1, topics=topics
    )
