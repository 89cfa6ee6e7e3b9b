"""A client that sends exactly the requests of a scenario: batches of any producer id, epoch and
sequence, topic creation and replica assignments.

For scenarios that control each step; a scenario that only needs records written uses a producer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraftsim.clients.cluster_connections import (
    Address,
    ClientIdentity,
    ClusterConnections,
    find_coordinator,
)
from kraftsim.clients.rules_transaction_steps import CoordinatorKind
from kraftsim.producer_ids.rules_allocation import BLOCK_SIZE_CONFIG
from kraftsim.server.outbound import PeerConnection
from kraftsim.world.interface import World
from protocol.acls import AclOperation, AclPermissionType, AclResourceType
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
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.k31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)
from protocol.records.batches import build_batch, split_batches
from protocol.records.record import Record
from protocol.schema import Message

# --------------------------------------------------------------------------------------------------
# The transactions of an exact client: each call sends one request to the coordinator, in a given
# version
#
# Requests are retried while the coordinator loads, moves, or completes the previous transaction;
# any other answer is returned.
# Source: KIP-98, KIP-890.

INIT_VERSION, ADD_VERSION = 4, 3
BUMPS_SINCE: Final = 5
"""The version of EndTxn since which each transaction bumps the epoch."""
TRANSACTION_MS: Final = 60_000
BUSY: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class ExactTransactionalId:
    """One transactional id, and the partition that its transactions write to."""

    def __init__(
        self, connections: ClusterConnections, name: str, partition: tuple[str, int]
    ) -> None:
        self._connections = connections
        self.name = name
        self._partition = partition

    async def take(self) -> tuple[int, int]:
        """Initialise the transactional id, once its previous transaction has ended; return the
        producer id and epoch.
        """
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TRANSACTION_MS
        )
        while True:
            answer = await self._ask(request, INIT_VERSION)
            assert isinstance(answer, InitProducerIdResponse), "InitProducerId was asked"
            if not await self._must_retry(answer.error_code):
                return answer.producer_id, answer.producer_epoch

    async def add(self, producer: tuple[int, int]) -> None:
        """Add the partition to the transaction, as clients without transaction.version 2 do."""
        topic, partition = self._partition
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        while True:
            answer = await self._ask(request, ADD_VERSION)
            assert isinstance(answer, AddPartitionsToTxnResponse), "AddPartitionsToTxn was asked"
            if not await self._must_retry(
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ):
                return

    async def end(
        self, producer: tuple[int, int], *, commits: bool, version: int
    ) -> tuple[int, int]:
        """End the transaction; return the producer id and epoch of the next one."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commits,
        )
        while True:
            answer = await self._ask(request, version)
            assert isinstance(answer, EndTxnResponse), "EndTxn was asked"
            if not await self._must_retry(answer.error_code):
                return (
                    (answer.producer_id, answer.producer_epoch)
                    if version >= BUMPS_SINCE
                    else producer
                )

    async def _must_retry(self, error_code: int) -> bool:
        """Return whether the request must be retried, after a pause.

        Raises RuntimeError for any other error: the request was valid.
        """
        if error_code in BUSY:
            await asyncio.sleep(RETRY_SECONDS)
            return True
        if error_code != ErrorCode.NONE:
            raise RuntimeError(
                f"the coordinator of {self.name} answered {ErrorCode(error_code).name}"
            )
        return False

    async def _ask(self, request: Message, version: int) -> Message:
        while True:
            try:
                broker_id = await find_coordinator(
                    self._connections, CoordinatorKind.TRANSACTION, self.name
                )
                if not isinstance(broker_id, ErrorCode):
                    return await (await self._connections.to_broker(broker_id)).request(
                        request, api_version=version
                    )
            except OSError:
                pass  # asked again
            await asyncio.sleep(RETRY_SECONDS)


# --------------------------------------------------------------------------------------------------
# ACLs by source address: entries, and the requests that create and delete them
#
# Source: KIP-140.

CLUSTER, ANYBODY, ANYWHERE = "kafka-cluster", "User:*", "*"


def allow_all_entry() -> AclCreation:
    """Return the entry that allows all operations to all: with a deny entry alone, no other client
    would be authorized either.
    """
    return _entry(ANYWHERE, AclOperation.ALL, AclPermissionType.ALLOW)


def shut_out(host: str) -> AclCreation:
    """Return the entry that denies ClusterAction to clients from an address."""
    return _entry(host, AclOperation.CLUSTER_ACTION, AclPermissionType.DENY)


def added(entries: Sequence[AclCreation]) -> CreateAclsRequest:
    """Return the request that adds entries."""
    return CreateAclsRequest(creations=list(entries))


def dropped(entries: Sequence[AclCreation]) -> DeleteAclsRequest:
    """Return the request that deletes exactly these entries."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=each.resource_type,
            resource_name_filter=each.resource_name,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        for each in entries
    ]
    return DeleteAclsRequest(filters=filters)


def is_done(answer: Message) -> bool:
    """Return whether the entries are as requested; a broker that may not forward the request
    answers with an error.
    """
    assert isinstance(answer, CreateAclsResponse | DeleteAclsResponse), "ACLs were changed"
    results = answer.results if isinstance(answer, CreateAclsResponse) else answer.filter_results
    return all(each.error_code == ErrorCode.NONE for each in results)


def _entry(host: str, operation: AclOperation, permission: AclPermissionType) -> AclCreation:
    return AclCreation(
        resource_type=AclResourceType.CLUSTER,
        resource_name=CLUSTER,
        principal=ANYBODY,
        host=host,
        operation=operation,
        permission_type=permission,
    )


PARTITION = 0
PRODUCE_VERSION, FETCH_VERSION, LIST_VERSION = 9, 11, 8
RETRY_SECONDS = 0.1
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
ALL_BROKERS = ""
BYTES_MAX = 1 << 20
EARLIEST_TIMESTAMP = -2
TIMEOUT_MS = 5000
SLOWLY = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""Retriable errors: the same batch is sent again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactBatch:
    """A batch: the producer id and epoch, the base sequence, the values, and the version of
    Produce.

    With a transactional id the batch is part of its transaction.
    """

    producer_id: int
    producer_epoch: int
    base_sequence: int
    values: tuple[bytes, ...]
    transactional_id: str | None = None
    version: int = PRODUCE_VERSION


class ExactClient:
    """Sends requests about one partition of one topic to its leader.

    Every method retries until it has an answer; the caller bounds the time.
    """

    def __init__(
        self, world: World, bootstrap: Sequence[Address], client_id: str, topic: str
    ) -> None:
        self._world = world
        self._topic = topic
        self._connections = ClusterConnections(
            world, ClientIdentity(client_id=client_id, bootstrap=tuple(bootstrap))
        )

    async def create_topic(self, replicas: Sequence[int], configs: Mapping[str, str]) -> None:
        """Create the topic with its one partition on these brokers, once all of them are
        registered.
        """
        rows = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
        assignment = CreatableReplicaAssignment(
            partition_index=PARTITION, broker_ids=list(replicas)
        )
        wanted = CreatableTopic(
            name=self._topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[assignment],
            configs=rows,
        )
        await self._until_made(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS))
        while await self._leader() is None:
            await asyncio.sleep(RETRY_SECONDS)

    async def set_configs(self, configs: Mapping[str, str]) -> None:
        """Change configurations of the topic."""
        rows = [
            AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in configs.items()
        ]
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self._topic, configs=rows
        )
        await self._ask_any(IncrementalAlterConfigsRequest(resources=[resource]))

    async def set_block_size(self, size: int) -> None:
        """Set the size of producer-id blocks on controllers with that dynamic configuration."""
        resource = AlterConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name=ALL_BROKERS,
            configs=[AlterableConfig(name=BLOCK_SIZE_CONFIG, config_operation=0, value=str(size))],
        )
        await self._ask_any(IncrementalAlterConfigsRequest(resources=[resource]))

    async def shut_out(self, hosts: Sequence[str]) -> None:
        """Allow all operations to every address, and deny ClusterAction to these: clients that
        connect from them may not act as brokers.
        """
        await self._until_done(added([allow_all_entry(), *map(shut_out, hosts)]))

    async def remove_denials(self, hosts: Sequence[str]) -> None:
        """Let them, too."""
        await self._until_done(dropped([shut_out(host) for host in hosts]))

    async def set_replicas(self, replicas: Sequence[int]) -> None:
        """Reassign the partition to these brokers, and return when all of them are in sync."""
        row = ReassignablePartition(partition_index=PARTITION, replicas=list(replicas))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=self._topic, partitions=[row])]
        )
        await self._ask_any(request)
        while await self._in_sync() != sorted(replicas):
            await asyncio.sleep(RETRY_SECONDS)

    async def produce(self, producer_id: int, sequence: int, value: bytes) -> tuple[ErrorCode, int]:
        """Write one record of a producer with epoch 0, and return the error and the offset of the
        answer.
        """
        return await self.write(
            ExactBatch(
                producer_id=producer_id, producer_epoch=0, base_sequence=sequence, values=(value,)
            )
        )

    async def write(self, exact_batch: ExactBatch) -> tuple[ErrorCode, int]:
        """Send a batch, retried unchanged after retriable errors, and return the error and the
        offset of the final answer.
        """
        now_ms = self._world.clock.wall_ms()
        batch = build_batch(
            [
                Record(index, now_ms, None, value, ())
                for index, value in enumerate(exact_batch.values)
            ],
            producer_id=exact_batch.producer_id,
            producer_epoch=exact_batch.producer_epoch,
            base_sequence=exact_batch.base_sequence,
            transactional=exact_batch.transactional_id is not None,
        )
        data = TopicProduceData(
            name=self._topic, partition_data=[PartitionProduceData(index=PARTITION, records=batch)]
        )
        request = ProduceRequest(
            transactional_id=exact_batch.transactional_id,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[data],
        )
        while True:
            answer = await self._ask_leader(request, exact_batch.version)
            assert isinstance(answer, ProduceResponse), "Produce was asked"
            row = answer.responses[0].partition_responses[0]
            if ErrorCode(row.error_code) not in SLOWLY:
                return ErrorCode(row.error_code), row.base_offset
            await asyncio.sleep(RETRY_SECONDS)

    async def leader_epoch(self) -> int:
        """Return the leader epoch of the partition, as the brokers report it."""
        while True:
            try:
                answer = await self._connections.metadata([self._topic])
                if answer.topics and answer.topics[0].partitions:
                    return answer.topics[0].partitions[0].leader_epoch
            except OSError:
                pass  # asked again
            await asyncio.sleep(RETRY_SECONDS)

    async def fetch_with_epoch(self, leader_epoch: int) -> ErrorCode:
        """Fetch from the leader with that epoch as current_leader_epoch; return the error."""
        fetch = FetchPartition(
            partition=PARTITION,
            current_leader_epoch=leader_epoch,
            fetch_offset=0,
            partition_max_bytes=BYTES_MAX,
        )
        request = FetchRequest(
            max_wait_ms=0,
            max_bytes=BYTES_MAX,
            topics=[FetchTopic(topic=self._topic, partitions=[fetch])],
        )
        while True:
            answer = await self._ask_leader(request, FETCH_VERSION)
            assert isinstance(answer, FetchResponse), "Fetch was asked"
            error = ErrorCode(answer.responses[0].partitions[0].error_code)
            if error not in SLOWLY:
                return error
            await asyncio.sleep(RETRY_SECONDS)

    async def offset_of(self, timestamp: int) -> int:
        """Return the offset for one of the special timestamps of ListOffsets; -1 if there is
        none.
        """
        request = ListOffsetsTopic(
            name=self._topic,
            partitions=[ListOffsetsPartition(partition_index=PARTITION, timestamp=timestamp)],
        )
        answer = await self._ask_leader(
            ListOffsetsRequest(replica_id=-1, topics=[request]), LIST_VERSION
        )
        assert isinstance(answer, ListOffsetsResponse), "ListOffsets was asked"
        return answer.topics[0].partitions[0].offset

    async def known_producers(self) -> list[int]:
        """Return the producer ids that the leader knows, ascending."""
        request = DescribeProducersRequest(
            topics=[DescribeProducersTopic(name=self._topic, partition_indexes=[PARTITION])]
        )
        answer = await self._ask_leader(request, None)
        assert isinstance(answer, DescribeProducersResponse), "DescribeProducers was asked"
        return sorted(each.producer_id for each in answer.topics[0].partitions[0].active_producers)

    async def read_values(self) -> list[bytes]:
        """Return the values of all records, local and remote, in order, from the start of the log;
        control batches are left out.
        """
        found: list[bytes] = []
        offset = 0
        while True:
            fetch = FetchPartition(
                partition=PARTITION, fetch_offset=offset, partition_max_bytes=BYTES_MAX
            )
            request = FetchRequest(
                max_wait_ms=200,
                min_bytes=1,
                max_bytes=BYTES_MAX,
                topics=[FetchTopic(topic=self._topic, partitions=[fetch])],
            )
            answer = await self._ask_leader(request, FETCH_VERSION)
            assert isinstance(answer, FetchResponse), "Fetch was asked"
            if not answer.responses:  # an error of the request as a whole
                continue
            row = answer.responses[0].partitions[0]
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention deletes old records
                offset = max(offset, await self.offset_of(EARLIEST_TIMESTAMP))
            if not row.error_code and offset >= row.high_watermark:
                return found
            for batch in split_batches(bytes(row.records or b"")):
                if not batch.is_control:
                    found += [
                        record.value or b"" for record in batch.records() if record.offset >= offset
                    ]
                offset = batch.next_offset

    def transactional_id(self, name: str) -> ExactTransactionalId:
        """Return a client of a transactional id whose transactions write to this partition."""
        return ExactTransactionalId(self._connections, name, (self._topic, PARTITION))

    async def close(self) -> None:
        """End the client."""
        self._connections.close()

    # Asking
    # ----------------------------------------------------------------------------------------------

    async def _leader(self) -> PeerConnection | None:
        try:
            answer = await self._connections.metadata([self._topic])
            rows = answer.topics[0].partitions if answer.topics else []
            return (
                await self._connections.to_broker(rows[0].leader_id)
                if rows and rows[0].leader_id >= 0
                else None
            )
        except OSError:
            return None

    async def _in_sync(self) -> list[int]:
        try:
            answer = await self._connections.metadata([self._topic])
        except OSError:
            return []
        return (
            sorted(answer.topics[0].partitions[0].isr_nodes)
            if answer.topics and answer.topics[0].partitions
            else []
        )

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
