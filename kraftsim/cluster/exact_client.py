"""A client that says exactly what a story wants it to say: records of any producer with any sequence, topics as they are wanted, and where they move.

Whoever tells a story of single steps needs it; whoever only wants to write uses a producer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraftsim.cluster.exact_transactions import ExactTransactionalId
from kraftsim.cluster.rights import added, dropped, everybody, is_done, shut_out
from kraftsim.core.producer_ids.control_variants import BLOCK_SIZE_CONFIG
from kraftsim.node.clients.cluster_connections import Address, ClientIdentity, ClusterConnections
from kraftsim.node.outbound import PeerConnection
from kraftsim.world.interface import World
from protocol.batches import build_batch, split_batches
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k44_incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.k45_alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersResponse, DescribeProducersTopic
from protocol.records import Record
from protocol.schema import Message

PARTITION = 0
PRODUCE_VERSION, FETCH_VERSION, LIST_VERSION = 9, 11, 8
RETRY_SECONDS = 0.1
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
ALL_BROKERS = ""
BYTES_MAX = 1 << 20
TIMEOUT_MS = 5000
SLOWLY = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""Nothing is decided by these: the same batch is sent again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactBatch:
    """What a producer says: its name for itself, where in its sequences the values begin, and in which version of Produce that is said.

    With a transactional id the batch is part of its transaction.
    """

    producer_id: int
    producer_epoch: int
    base_sequence: int
    values: tuple[bytes, ...]
    transactional_id: str | None = None
    version: int = PRODUCE_VERSION


class ExactClient:
    """Speaks of one partition of one topic, to its leader. Every verb tries until there is an answer: whoever calls sets the bound."""

    def __init__(self, world: World, bootstrap: Sequence[Address], client_id: str, topic: str) -> None:
        self._world = world
        self._topic = topic
        self._connections = ClusterConnections(world, ClientIdentity(client_id=client_id, bootstrap=tuple(bootstrap)))

    async def create_topic(self, replicas: Sequence[int], configs: Mapping[str, str]) -> None:
        """Create the topic with its one partition on these brokers, once all of them are there."""
        rows = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
        assignment = CreatableReplicaAssignment(partition_index=PARTITION, broker_ids=list(replicas))
        wanted = CreatableTopic(name=self._topic, num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=rows)
        await self._until_made(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS))
        while await self._leader() is None:
            await asyncio.sleep(RETRY_SECONDS)

    async def set_configs(self, configs: Mapping[str, str]) -> None:
        """Change configurations of the topic."""
        rows = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in configs.items()]
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=self._topic, configs=rows)
        await self._ask_any(IncrementalAlterConfigsRequest(resources=[resource]))

    async def set_block_size(self, size: int) -> None:
        """Let controllers that may change it give blocks of so many producer ids."""
        resource = AlterConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name=ALL_BROKERS,
            configs=[AlterableConfig(name=BLOCK_SIZE_CONFIG, config_operation=0, value=str(size))],
        )
        await self._ask_any(IncrementalAlterConfigsRequest(resources=[resource]))

    async def shut_out(self, hosts: Sequence[str]) -> None:
        """Let everybody do everything to the cluster but those who come from these addresses: they may not act as brokers."""
        await self._until_done(added([everybody(), *map(shut_out, hosts)]))

    async def let_in_again(self, hosts: Sequence[str]) -> None:
        """Let them, too."""
        await self._until_done(dropped([shut_out(host) for host in hosts]))

    async def set_replicas(self, replicas: Sequence[int]) -> None:
        """Let the partition lie on these brokers, and return when all of them are in sync."""
        row = ReassignablePartition(partition_index=PARTITION, replicas=list(replicas))
        request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=self._topic, partitions=[row])])
        await self._ask_any(request)
        while await self._in_sync() != sorted(replicas):
            await asyncio.sleep(RETRY_SECONDS)

    async def produce(self, producer_id: int, sequence: int, value: bytes) -> tuple[ErrorCode, int]:
        """Write one record of a producer, epoch 0, and return the answer: an error and an offset."""
        return await self.write(ExactBatch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, values=(value,)))

    async def write(self, said: ExactBatch) -> tuple[ErrorCode, int]:
        """Send a batch, the same bytes until something is decided by the answer, and return that: an error and an offset."""
        now_ms = self._world.clock.wall_ms()
        batch = build_batch(
            [Record(index, now_ms, None, value, ()) for index, value in enumerate(said.values)],
            producer_id=said.producer_id,
            producer_epoch=said.producer_epoch,
            base_sequence=said.base_sequence,
            transactional=said.transactional_id is not None,
        )
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=PARTITION, records=batch)])
        request = ProduceRequest(transactional_id=said.transactional_id, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data])
        while True:
            answer = await self._ask_leader(request, said.version)
            assert isinstance(answer, ProduceResponse), "Produce was asked"
            row = answer.responses[0].partition_responses[0]
            if ErrorCode(row.error_code) not in SLOWLY:
                return ErrorCode(row.error_code), row.base_offset
            await asyncio.sleep(RETRY_SECONDS)

    async def leader_epoch(self) -> int:
        """Return which reign of the partition it is, as the brokers tell."""
        while True:
            try:
                answer = await self._connections.metadata([self._topic])
                if answer.topics and answer.topics[0].partitions:
                    return answer.topics[0].partitions[0].leader_epoch
            except OSError:
                pass  # asked again
            await asyncio.sleep(RETRY_SECONDS)

    async def read_in_reign(self, leader_epoch: int) -> ErrorCode:
        """Ask the leader for records as a reader that takes it for the leader of that epoch; return the error."""
        asked = FetchPartition(partition=PARTITION, current_leader_epoch=leader_epoch, fetch_offset=0, partition_max_bytes=BYTES_MAX)
        request = FetchRequest(max_wait_ms=0, max_bytes=BYTES_MAX, topics=[FetchTopic(topic=self._topic, partitions=[asked])])
        while True:
            answer = await self._ask_leader(request, FETCH_VERSION)
            assert isinstance(answer, FetchResponse), "Fetch was asked"
            error = ErrorCode(answer.responses[0].partitions[0].error_code)
            if error not in SLOWLY:
                return error
            await asyncio.sleep(RETRY_SECONDS)

    async def offset_of(self, timestamp: int) -> int:
        """Return where the log is at one of the special timestamps of ListOffsets; -1 if there is no such place."""
        asked = ListOffsetsTopic(name=self._topic, partitions=[ListOffsetsPartition(partition_index=PARTITION, timestamp=timestamp)])
        answer = await self._ask_leader(ListOffsetsRequest(replica_id=-1, topics=[asked]), LIST_VERSION)
        assert isinstance(answer, ListOffsetsResponse), "ListOffsets was asked"
        return answer.topics[0].partitions[0].offset

    async def known_producers(self) -> list[int]:
        """Return whom the leader knows, ascending."""
        request = DescribeProducersRequest(topics=[DescribeProducersTopic(name=self._topic, partition_indexes=[PARTITION])])
        answer = await self._ask_leader(request, None)
        assert isinstance(answer, DescribeProducersResponse), "DescribeProducers was asked"
        return sorted(each.producer_id for each in answer.topics[0].partitions[0].active_producers)

    async def read_values(self) -> list[bytes]:
        """Return the values of all records, wherever they lie, in their order; markers are none."""
        found: list[bytes] = []
        offset = 0
        while True:
            asked = FetchPartition(partition=PARTITION, fetch_offset=offset, partition_max_bytes=BYTES_MAX)
            request = FetchRequest(max_wait_ms=200, min_bytes=1, max_bytes=BYTES_MAX, topics=[FetchTopic(topic=self._topic, partitions=[asked])])
            answer = await self._ask_leader(request, FETCH_VERSION)
            assert isinstance(answer, FetchResponse), "Fetch was asked"
            row = answer.responses[0].partitions[0]
            if not row.error_code and offset >= row.high_watermark:
                return found
            for batch in split_batches(bytes(row.records or b"")):
                if not batch.is_control:
                    found += [record.value or b"" for record in batch.records() if record.offset >= offset]
                offset = batch.next_offset

    def transactional_id(self, name: str) -> ExactTransactionalId:
        """Return a transactional id whose transactions are about this partition."""
        return ExactTransactionalId(self._connections, name, (self._topic, PARTITION))

    async def close(self) -> None:
        """End the client."""
        self._connections.close()

    # Asking --------------------------------------------------------------------------------------------------------------------------------

    async def _leader(self) -> PeerConnection | None:
        try:
            answer = await self._connections.metadata([self._topic])
            rows = answer.topics[0].partitions if answer.topics else []
            return await self._connections.to_broker(rows[0].leader_id) if rows and rows[0].leader_id >= 0 else None
        except OSError:
            return None

    async def _in_sync(self) -> list[int]:
        try:
            answer = await self._connections.metadata([self._topic])
        except OSError:
            return []
        return sorted(answer.topics[0].partitions[0].isr_nodes) if answer.topics and answer.topics[0].partitions else []

    async def _ask_leader(self, request: Message, version: int | None) -> Message:
        while True:
            connection = await self._leader()
            try:
                if connection is not None:
                    return await connection.request(request, api_version=version)
            except OSError:
                pass  # asked again
            await asyncio.sleep(RETRY_SECONDS)

    async def _until_made(self, request: CreateTopicsRequest) -> None:
        while True:
            answer = await self._ask_any(request)
            assert isinstance(answer, CreateTopicsResponse), "CreateTopics was asked"
            if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _until_done(self, request: Message) -> None:
        while not is_done(await self._ask_any(request)):
            await asyncio.sleep(RETRY_SECONDS)

    async def _ask_any(self, request: Message) -> Message:
        while True:
            try:
                return await (await self._connections.to_any()).request(request)
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)
