"""A conversation in the Kafka protocol, for captures."""

from kraftsim.inspect.capture import CaptureReader, CaptureSettings
from kraftsim.inspect.conversation import Exchange, Notice
from protocol.api_keys import ApiKey
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
    MetadataResponseTopic,
)
from protocol.messages.k18_api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from protocol.records.batches import build_batch
from protocol.records.record import Compression, Record
from protocol.requests import request_chunks, response_chunks
from protocol.schema import Message
from tests.inspect.packets import Conversation

TOPIC, TOPIC_ID = "orders", bytes(range(16))
RECORDS = 400
BATCH = build_batch(
    [
        Record(
            timestamp=1_700_000_000_000 + number, key=b"%d" % number, value=b"value %d" % number * 5
        )
        for number in range(RECORDS)
    ],
    producer_id=7,
    producer_epoch=0,
    base_sequence=0,
)
PACKED = build_batch(
    [Record(timestamp=1_700_000_000_000, value=b"packed")], compression=Compression.ZSTD
)
EXCHANGES: list[tuple[ApiKey, int, Message, Message]] = [
    (
        ApiKey.API_VERSIONS,
        3,
        ApiVersionsRequest(),
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=0, min_version=0, max_version=9)]),
    ),
    (
        ApiKey.METADATA,
        12,
        MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]),
        MetadataResponse(
            cluster_id="c", topics=[MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID)]
        ),
    ),
    (
        ApiKey.PRODUCE,
        9,
        ProduceRequest(
            acks=-1,
            topic_data=[
                TopicProduceData(
                    name=TOPIC, partition_data=[PartitionProduceData(index=0, records=BATCH)]
                )
            ],
        ),
        ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=TOPIC, partition_responses=[PartitionProduceResponse(error_code=6)]
                )
            ]
        ),
    ),
    (
        ApiKey.FETCH,
        16,
        FetchRequest(
            topics=[
                FetchTopic(
                    topic_id=TOPIC_ID, partitions=[FetchPartition(partition=0, fetch_offset=0)]
                )
            ]
        ),
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic_id=TOPIC_ID,
                    partitions=[PartitionData(high_watermark=9, records=BATCH + PACKED)],
                )
            ]
        ),
    ),
    (ApiKey.METADATA, 1, MetadataRequest(topics=None), MetadataResponse()),
]
EXPECTED = [
    (int(key), version, correlation_id, way)
    for correlation_id, (key, version, _, _) in enumerate(EXCHANGES)
    for way in ("request", "response")
]


def frames(client_id: str | None = "me") -> list[tuple[bool, bytes]]:
    """Return the whole conversation as (from the client, frame with its size)."""
    said = []
    for correlation_id, (key, version, request, response) in enumerate(EXCHANGES):
        said.append(
            (True, b"".join(request_chunks(key, version, correlation_id, client_id, request)))
        )
        said.append((False, b"".join(response_chunks(key, version, correlation_id, response))))
    return said


def conversation(
    *,
    opened: bool = True,
    first_sequence: int = 1000,
    segment_bytes: int = 1400,
    client_port: int = 50_000,
    client_id: str | None = "me",
) -> Conversation:
    """Return the conversation as packets."""
    said = Conversation(
        first_sequence=first_sequence, segment_bytes=segment_bytes, client_port=client_port
    )
    if opened:
        said.open()
    for from_client, frame in frames(client_id):
        said.send(frame, from_client=from_client)
    return said


def read(
    capture: bytes, settings: CaptureSettings | None = None
) -> tuple[list[Exchange], list[Notice], CaptureReader]:
    """Read a capture."""
    from io import BytesIO

    reader = CaptureReader(settings or CaptureSettings())
    found = list(reader.read(BytesIO(capture)))
    exchanges = [each for each in found if isinstance(each, Exchange)]
    return exchanges, [each for each in found if isinstance(each, Notice)], reader


def identities(exchanges: list[Exchange]) -> list[tuple[int, int, int, str]]:
    """Return the identity of each frame."""
    return [
        (
            each.frame.api_key,
            each.frame.api_version,
            each.frame.correlation_id,
            each.frame.kind.value,
        )
        for each in exchanges
    ]
