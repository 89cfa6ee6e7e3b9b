"""Rights, quotas and configurations of topics: an administrator who changes them, and a visitor who
shows whether a change has taken effect at a broker.

Source: KIP-140 (ACLs), KIP-546 (client quotas), KIP-219 (throttle time in responses), KIP-339.
"""

import asyncio
from typing import Final, NamedTuple

from kraftsim.clients.cluster_connections import ClientIdentity, ClusterConnections, error_of
from kraftsim.cluster.scenario import ClientHost
from kraftsim.lab.workloads.administrator import RETRY_SECONDS, Administrator
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.k31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    QuotaAlteration,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record

ALL_PRINCIPALS: Final = "User:*"
ANYWHERE: Final = "*"
PRODUCER_BYTES: Final = "producer_byte_rate"
CLIENT_ID: Final = "client-id"
NAMED_PRODUCE: Final = 9
"""A version of Produce with names of topics."""
EARLIEST: Final = -2
WAIT_MS: Final = 3000


class AccessAdministrator(Administrator):
    """Changes rights and quotas; every method retries until it succeeds."""

    async def allow_all(self, topic: str) -> None:
        """Allow all operations on a topic, so that only what is denied is refused."""
        await self.permit(topic, AclOperation.ALL)

    async def deny_writes(self, topic: str) -> None:
        """Deny writes to a topic."""
        await self.permit(topic, AclOperation.WRITE, is_denied=True)

    async def stop_denying_writes(self, topic: str) -> None:
        """Delete the ACL that denies them."""
        await self.withdraw(topic, AclOperation.WRITE, is_denied=True)

    async def permit(self, topic: str, operation: AclOperation, *, is_denied: bool = False) -> None:
        """Add an ACL for all principals: an operation on a topic is allowed, or denied."""
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=AclResourceType.TOPIC,
                    resource_name=topic,
                    principal=ALL_PRINCIPALS,
                    host=ANYWHERE,
                    operation=operation,
                    permission_type=_permission(is_denied=is_denied),
                )
            ]
        )
        while True:
            answer = await self._asked(request)
            assert isinstance(answer, CreateAclsResponse), "CreateAcls was asked"
            if self._is_done(error_of(answer.results[0].error_code), f"permit {topic}"):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def withdraw(
        self, topic: str, operation: AclOperation, *, is_denied: bool = False
    ) -> None:
        """Delete such an ACL."""
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=AclResourceType.TOPIC,
                    resource_name_filter=topic,
                    pattern_type_filter=AclPatternType.LITERAL,
                    principal_filter=ALL_PRINCIPALS,
                    host_filter=ANYWHERE,
                    operation=operation,
                    permission_type=_permission(is_denied=is_denied),
                )
            ]
        )
        while True:
            answer = await self._asked(request)
            assert isinstance(answer, DeleteAclsResponse), "DeleteAcls was asked"
            if self._is_done(error_of(answer.filter_results[0].error_code), f"permit {topic}"):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def limit(self, client_id: str, bytes_per_second: float | None) -> None:
        """Set the producer quota of a client id; None removes it."""
        request = AlterClientQuotasRequest(
            entries=[
                QuotaAlteration(
                    entity=[EntityData(entity_type=CLIENT_ID, entity_name=client_id)],
                    ops=[
                        OpData(
                            key=PRODUCER_BYTES,
                            value=bytes_per_second or 0.0,
                            remove=bytes_per_second is None,
                        )
                    ],
                )
            ]
        )
        while True:
            answer = await self._asked(request)
            assert isinstance(answer, AlterClientQuotasResponse), "AlterClientQuotas was asked"
            if self._is_done(error_of(answer.entries[0].error_code), f"limit {client_id}"):
                return
            await asyncio.sleep(RETRY_SECONDS)


def _permission(*, is_denied: bool) -> AclPermissionType:
    return AclPermissionType.DENY if is_denied else AclPermissionType.ALLOW


class Visit(NamedTuple):
    """What the leader of a partition answered; REQUEST_TIMED_OUT without an answer."""

    broker_id: int
    error: ErrorCode
    throttle_time_ms: int
    log_start_offset: int

    @property
    def is_denied(self) -> bool:
        """Whether the visitor has no right to write."""
        return self.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    @property
    def is_too_large(self) -> bool:
        """Whether the batch exceeds max.message.bytes."""
        return self.error is ErrorCode.MESSAGE_TOO_LARGE

    @property
    def is_accepted(self) -> bool:
        """Whether the record was written."""
        return self.error is ErrorCode.NONE


NO_ANSWER: Final = Visit(-1, ErrorCode.REQUEST_TIMED_OUT, 0, -1)


class Visitor:
    """Writes single records to the leaders of a topic's partitions, each over a connection of its
    own: a throttled one is muted.
    """

    def __init__(self, client_host: ClientHost, topic: str) -> None:
        self._client_host = client_host
        self._topic = topic

    async def visit(self, partition: int) -> Visit:
        """Write one record to a partition, and ask for its log start offset."""
        connections = ClusterConnections(
            self._client_host.world,
            ClientIdentity(
                client_id=self._client_host.name,
                bootstrap=tuple(self._client_host.bootstrap),
                request_timeout_ms=WAIT_MS,
            ),
        )
        try:
            return await self._client_host.run(self._visit(connections, partition))
        except OSError:
            return NO_ANSWER
        finally:
            connections.close()

    async def _visit(self, connections: ClusterConnections, partition: int) -> Visit:
        rows = (await connections.metadata([self._topic])).topics[0].partitions
        leader_id = next((each.leader_id for each in rows if each.partition_index == partition), -1)
        earliest = await (await connections.to_broker(leader_id)).request(
            ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name=self._topic,
                        partitions=[
                            ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
                        ],
                    )
                ],
            )
        )
        assert isinstance(earliest, ListOffsetsResponse), "ListOffsets was asked"
        now_ms = self._client_host.world.clock.wall_ms()
        batch = build_batch([Record(0, now_ms, b"visit", b"." * 100, ())])
        data = TopicProduceData(
            name=self._topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
        )
        answer = await (await connections.to_broker(leader_id)).request(
            ProduceRequest(acks=1, timeout_ms=WAIT_MS, topic_data=[data]),
            api_version=NAMED_PRODUCE,
        )
        assert isinstance(answer, ProduceResponse), "Produce was asked"
        return Visit(
            leader_id,
            error_of(answer.responses[0].partition_responses[0].error_code),
            answer.throttle_time_ms,
            earliest.topics[0].partitions[0].offset,
        )
