"""A broker that acknowledges every batch and keeps one: its throughput is the limit of the client
on this machine.

python -m tools.bench.sink NUMBER PORT [PORT ...]     prints its port, ends with SIGTERM

NUMBER says which of the ports is its own; the others belong to the other brokers of the same kind.
There is one topic of four partitions. It returns producer ids, acknowledges each batch, of which it
reads the header only, and returns the batch of most records of the partition for every fetch
offset, as often as the request has room for.
"""

import asyncio
import sys
from collections.abc import Sequence
from struct import Struct
from typing import cast

import uvloop

from protocol.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.messages.k03_metadata import (
    MetadataRequest,
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
PUT_BASE_OFFSET = Struct(">q").pack_into


class RepeatedBatch:
    """The batch that a partition returns, and copies of it, whose offsets each fetch overwrites."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = bytes(batch.view())
        self.record_count = batch.record_count
        self._copies = bytearray()

    def from_offset(self, offset: int, bytes_max: int) -> memoryview:
        """Return at least one batch, and more as long as they fit.

        The client has received the former response: it has one fetch in flight.
        """
        count = max(1, bytes_max // len(self._batch))
        if len(self._copies) != count * len(self._batch):
            self._copies = bytearray(self._batch * count)
        for number in range(count):
            PUT_BASE_OFFSET(
                self._copies, number * len(self._batch), offset + number * self.record_count
            )
        return memoryview(self._copies)


class Sink(asyncio.Protocol):
    """One client."""

    def __init__(
        self, ports: Sequence[int], offsets: dict[int, int], batches: dict[int, RepeatedBatch]
    ) -> None:
        self._ports = ports
        self._offsets = offsets
        self._batches = batches
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
        if isinstance(request, FetchRequest):
            fetched = [
                FetchableTopicResponse(
                    topic=topic.topic, partitions=[self._fetched(each) for each in topic.partitions]
                )
                for topic in request.topics
            ]
            return FetchResponse(responses=fetched)
        if isinstance(request, MetadataRequest):
            return self._metadata()
        if api_key == INIT_PRODUCER_ID:
            return InitProducerIdResponse(producer_id=1, producer_epoch=0)
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in VERSIONS.items()
            ]
        )

    def _metadata(self) -> MetadataResponse:
        numbers = range(1, len(self._ports) + 1)
        leaders = [1 + partition % len(self._ports) for partition in range(PARTITIONS)]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port, rack=None)
                for number, port in zip(numbers, self._ports, strict=True)
            ],
            cluster_id="sink",
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    error_code=0,
                    name=TOPIC,
                    topic_id=b"sink" * 4,
                    is_internal=False,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=partition,
                            leader_id=leader,
                            replica_nodes=[leader],
                            isr_nodes=[leader],
                            offline_replicas=[],
                        )
                        for partition, leader in enumerate(leaders)
                    ],
                )
            ],
        )

    def _taken(self, partition: int, records: bytes | memoryview) -> PartitionProduceResponse:
        offset, batch = self._offsets.get(partition, 0), RecordBatch(records)
        self._offsets[partition] = offset + batch.record_count
        kept = self._batches.get(partition)
        if kept is None or batch.record_count > kept.record_count:
            self._batches[partition] = RepeatedBatch(batch)
        return PartitionProduceResponse(index=partition, base_offset=offset)

    def _fetched(self, asked: FetchPartition) -> PartitionData:
        batch = self._batches.get(asked.partition)
        return PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=2**62,
            last_stable_offset=2**62,
            log_start_offset=0,
            aborted_transactions=None,
            records=batch.from_offset(asked.fetch_offset, asked.partition_max_bytes)
            if batch is not None
            else b"",
        )


async def serve(port: int, ports: Sequence[int]) -> None:
    """Listen until the process is ended."""
    offsets: dict[int, int] = {}
    batches: dict[int, RepeatedBatch] = {}
    server = await asyncio.get_running_loop().create_server(
        lambda: Sink(ports, offsets, batches), "127.0.0.1", port
    )
    print(port, flush=True)
    await server.serve_forever()


def main() -> int:
    """Serve."""
    number, *ports = map(int, sys.argv[1:])
    uvloop.run(serve(ports[number - 1], ports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
