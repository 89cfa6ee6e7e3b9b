"""A broker that acknowledges every batch and stores nothing: its throughput is the limit of the
client on this machine.

python -m tools.bench.sink     prints its port, ends with SIGTERM

It has one topic of four partitions, returns producer ids, and acknowledges each batch; it reads
batch headers only.
"""

import asyncio
import sys
from typing import cast

import uvloop

from protocol.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.k22_init_producer_id import InitProducerIdResponse
from protocol.records.batches import RecordBatch
from protocol.requests import decode_request, read_request_head, response_chunks
from protocol.schema import Message

PRODUCE, FETCH, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 18, 22
"""Fetch is advertised but not used: producers derive support for record batches from its
versions.
"""
VERSIONS = {
    PRODUCE: (0, 10),
    FETCH: (0, 12),
    METADATA: (0, 12),
    API_VERSIONS: (0, 3),
    INIT_PRODUCER_ID: (0, 4),
}
TOPIC = "bench"
PARTITIONS = 4
SIZE_BYTES = 4


class Sink(asyncio.Protocol):
    """One client."""

    def __init__(self, port: int, offsets: dict[int, int]) -> None:
        self._port = port
        self._offsets = offsets
        self._pieces: list[bytes] = []
        self._held = 0
        self._wanted = SIZE_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for responses."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Respond to every complete frame."""
        self._pieces.append(data)
        self._held += len(data)
        if self._held < self._wanted:
            return
        held, position = b"".join(self._pieces), 0
        answers: list[bytes | memoryview] = []
        while len(held) - position >= SIZE_BYTES:
            end = position + SIZE_BYTES + int.from_bytes(held[position : position + SIZE_BYTES])
            if end > len(held):
                break
            answers += self._answer(held[position + SIZE_BYTES : end])
            position = end
        rest = held[position:]
        self._pieces, self._held = [rest], len(rest)
        self._wanted = (
            SIZE_BYTES + int.from_bytes(rest[:SIZE_BYTES])
            if len(rest) >= SIZE_BYTES
            else SIZE_BYTES
        )
        if answers:
            self._transport.writelines(answers)

    def _answer(self, frame: bytes) -> list[bytes | memoryview]:
        head = read_request_head(frame)
        body = self._body(head.api_key, decode_request(head, frame))
        return list(response_chunks(head.api_key, head.api_version, head.correlation_id, body))

    def _body(self, api_key: int, request: Message) -> Message:
        if isinstance(request, ProduceRequest):
            topics = []
            for topic in request.topic_data:
                rows = [
                    self._taken(data.index, data.records or b"") for data in topic.partition_data
                ]
                topics.append(TopicProduceResponse(name=topic.name, partition_responses=rows))
            return ProduceResponse(responses=topics)
        if api_key == METADATA:
            partitions = [
                MetadataResponsePartition(
                    partition_index=number,
                    leader_id=1,
                    replica_nodes=[1],
                    isr_nodes=[1],
                    offline_replicas=[],
                )
                for number in range(PARTITIONS)
            ]
            return MetadataResponse(
                brokers=[
                    MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self._port, rack=None)
                ],
                cluster_id="sink",
                controller_id=1,
                topics=[
                    MetadataResponseTopic(
                        error_code=0,
                        name=TOPIC,
                        topic_id=b"sink" * 4,
                        is_internal=False,
                        partitions=partitions,
                    )
                ],
            )
        if api_key == INIT_PRODUCER_ID:
            return InitProducerIdResponse(producer_id=1, producer_epoch=0)
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in VERSIONS.items()
            ]
        )

    def _taken(self, partition: int, records: bytes | memoryview) -> PartitionProduceResponse:
        offset = self._offsets.get(partition, 0)
        self._offsets[partition] = offset + RecordBatch(records).record_count
        return PartitionProduceResponse(index=partition, base_offset=offset)


async def serve() -> None:
    """Listen until the process is ended."""
    offsets: dict[int, int] = {}
    port = 0
    server = await asyncio.get_running_loop().create_server(
        lambda: Sink(port, offsets), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    print(port, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(serve()))
