"""Sends requests to a real broker, kraftsim's or Apache Kafka's, about one topic with one
partition, each over its own connection.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kraftsim.server.outbound import PeerConnection
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.schema import Message

WAIT_SECONDS = 40.0


@dataclass(frozen=True)
class BrokerClient:
    """A broker's address, and the topic of the requests."""

    host: str
    port: int
    topic: str

    def ask(self, request: Message, version: int) -> Message:
        """Return the response to one request."""
        return asyncio.run(self._ask(request, version))

    async def _ask(self, request: Message, version: int) -> Message:
        connection = PeerConnection(
            self.host, self.port, client_id="asker", request_timeout_ms=20_000
        )
        try:
            await connection.connect()
            return await connection.request(request, api_version=version)
        finally:
            connection.close()

    def create(self, configs: Mapping[str, str]) -> ErrorCode:
        """Create the topic."""
        rows = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
        wanted = CreatableTopic(
            name=self.topic, num_partitions=1, replication_factor=1, configs=rows
        )
        answer = self.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
        assert isinstance(answer, CreateTopicsResponse)
        time.sleep(1)
        return ErrorCode(answer.topics[0].error_code)

    def produce(self, batch: bytes) -> tuple[ErrorCode, int]:
        """Produce a batch."""
        data = TopicProduceData(
            name=self.topic, partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        answer = self.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
        assert isinstance(answer, ProduceResponse)
        row = answer.responses[0].partition_responses[0]
        return ErrorCode(row.error_code), row.base_offset

    def fetch(self, offset: int, partition: int = 0, bytes_max: int = 1 << 20) -> bytes:
        """Fetch from an offset on."""
        asked = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=bytes_max,
            current_leader_epoch=-1,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=bytes_max,
            topics=[FetchTopic(topic=self.topic, partitions=[asked])],
        )
        answer = self.ask(request, 11)
        assert isinstance(answer, FetchResponse)
        row = answer.responses[0].partitions[0]
        assert row.error_code == 0, ErrorCode(row.error_code)
        return bytes(row.records or b"")

    def list_offset(self, timestamp: int) -> tuple[int, int]:
        """Return an offset and its leader epoch."""
        asked = ListOffsetsTopic(
            name=self.topic,
            partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
        )
        answer = self.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 9)
        assert isinstance(answer, ListOffsetsResponse)
        row = answer.topics[0].partitions[0]
        assert row.error_code == 0, ErrorCode(row.error_code)
        return row.offset, row.leader_epoch

    def wait_for_local_start(self, offset: int) -> None:
        """Wait until records before an offset are in the remote store only."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.list_offset(-4)[0] < offset:
            assert time.monotonic() < deadline, f"the local log begins at {self.list_offset(-4)}"
            time.sleep(0.2)
