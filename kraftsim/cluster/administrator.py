"""Somebody who administers a cluster: makes topics, sets what they are configured to, and looks what a broker says of that.

Every verb asks until it is done; whoever calls sets the bound.
Source: KIP-339 (IncrementalAlterConfigs), org.apache.kafka.clients.admin.KafkaAdminClient.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from kraftsim.cluster.workplace import Workplace
from kraftsim.node.clients.cluster_connections import ClientIdentity, ClusterConnections, error_of
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.schema import Message

SET: Final = 0
DELETE: Final = 1
TIMEOUT_MS: Final = 10_000
RETRY_SECONDS: Final = 0.05


class AdministratorRefused(RuntimeError):
    """A cluster refused what an administrator wants, for a reason that no retry heals."""


class Administrator:
    """Works from a host of its own.

    `in_doubt` are topics of which a change was asked for that was never answered: the broker that has it may still try, and come after what is newer.
    A cluster's only broker does not: it hands changes on in order.
    """

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace
        self.in_doubt: dict[str, None] = {}
        identity = ClientIdentity(client_id=workplace.name, bootstrap=tuple(workplace.bootstrap), frame_events=workplace.frame_events)
        self._connections = ClusterConnections(workplace.world, identity)

    async def create_topic(self, topic: str) -> None:
        """Make a topic of one partition; return when it is there."""
        request = CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)], timeout_ms=TIMEOUT_MS)
        while True:
            answer = await self._asked(request)
            assert isinstance(answer, CreateTopicsResponse), "CreateTopics was asked"
            error = error_of(answer.topics[0].error_code)
            if error is ErrorCode.TOPIC_ALREADY_EXISTS or self._is_done(error, f"to make {topic}"):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def configure(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set configurations of a topic; None takes one away. Return when that is so."""
        rows = [AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value) for name, value in changes.items()]
        resource = AlterConfigsResource(resource_type=ConfigResourceType.TOPIC, resource_name=topic, configs=rows)
        while True:
            answer = await self._asked(IncrementalAlterConfigsRequest(resources=[resource]), doubted=topic)
            assert isinstance(answer, IncrementalAlterConfigsResponse), "IncrementalAlterConfigs was asked"
            if self._is_done(error_of(answer.responses[0].error_code), f"to configure {topic}"):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def configured(self, broker_id: int, topic: str, names: list[str]) -> dict[str, str | None] | None:
        """Return what a broker says that some configurations of a topic are; None if it knows no such topic, or does not answer."""
        resource = DescribeConfigsResource(resource_type=ConfigResourceType.TOPIC, resource_name=topic, configuration_keys=names)

        async def ask() -> Message:
            await self._connections.metadata([])
            return await (await self._connections.to_broker(broker_id)).request(DescribeConfigsRequest(resources=[resource]))

        try:
            answer = await self._workplace.run(ask())
        except OSError:
            return None
        assert isinstance(answer, DescribeConfigsResponse), "DescribeConfigs was asked"
        found = answer.results[0]
        return {row.name: row.value for row in found.configs} if not found.error_code else None

    def close(self) -> None:
        """End the client."""
        self._connections.close()

    async def _asked(self, request: Message, doubted: str = "") -> Message:
        """Ask one broker after the other until one answers; a topic is in doubt from the first one on that does not."""
        while True:
            try:
                return await self._workplace.run(self._answer(request, doubted))
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)

    async def _answer(self, request: Message, doubted: str) -> Message:
        connection = await self._connections.to_any()
        try:
            return await connection.request(request)
        except OSError:
            if doubted and len(self._workplace.bootstrap) > 1:
                self.in_doubt[doubted] = None
            raise

    def _is_done(self, error: ErrorCode, what: str) -> bool:
        """Tell whether that is done. Raises AdministratorRefused if it never will be."""
        passes = error.retriable or error in (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.UNKNOWN_SERVER_ERROR)  # brokers may be on their way
        if error is not ErrorCode.NONE and not passes:
            raise AdministratorRefused(f"{self._workplace.name} wanted {what}: {error.name}")
        return error is ErrorCode.NONE
