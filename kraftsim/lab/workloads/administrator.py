"""A cluster administrator: creates topics, alters their configurations, and reads back what a
broker reports.

Every method retries until it succeeds; the caller bounds the time.
Source: KIP-339 (IncrementalAlterConfigs), org.apache.kafka.clients.admin.KafkaAdminClient.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from kraftsim.clients.cluster_connections import ClientIdentity, ClusterConnections, error_of
from kraftsim.clients.events import MetadataChangeAnswered, MetadataChangeSent
from kraftsim.cluster.scenario import ClientHost
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
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
NOTHING: Mapping[str, str | None] = {}
ALL_BROKERS: Final = ""
"""As the name of a broker: the default of all of them."""


class AdministratorRefused(RuntimeError):
    """The cluster answered an administrator's request with an error that is not retriable."""


class Administrator:
    """Runs on a host of its own.

    `in_doubt` are topics with a change request that was never answered: its broker may still retry
    it, and apply it after a newer change. With a single broker that cannot happen: it forwards
    changes in order.
    """

    def __init__(self, client_host: ClientHost) -> None:
        self._client_host = client_host
        self.in_doubt: dict[str, None] = {}
        self._request_count = 0
        identity = ClientIdentity(
            client_id=client_host.name,
            bootstrap=tuple(client_host.bootstrap),
            frame_events=client_host.frame_events,
        )
        self._connections = ClusterConnections(client_host.world, identity)

    async def create_topic(self, topic: str) -> None:
        """Create a topic with one partition; return when it exists."""
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)],
            timeout_ms=TIMEOUT_MS,
        )
        while True:
            answer = await self._asked(request, topic, {"": None})
            assert isinstance(answer, CreateTopicsResponse), "CreateTopics was asked"
            error = error_of(answer.topics[0].error_code)
            self._emit_answer(topic, error)
            if error is ErrorCode.TOPIC_ALREADY_EXISTS or self._is_done(error, f"create {topic}"):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def configure(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set configurations of a topic; None deletes one. Return when that is done."""
        await self._configure(ConfigResourceType.TOPIC, topic, changes)

    async def configure_brokers(
        self, changes: Mapping[str, str | None], broker: str = ALL_BROKERS
    ) -> None:
        """Set dynamic configurations of all brokers, or of one by its id; None deletes one. Return
        when that is done.
        """
        await self._configure(ConfigResourceType.BROKER, broker, changes)

    async def _configure(
        self, resource_type: ConfigResourceType, name: str, changes: Mapping[str, str | None]
    ) -> None:
        rows = [
            AlterableConfig(
                name=key, config_operation=DELETE if value is None else SET, value=value
            )
            for key, value in changes.items()
        ]
        resource = AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=rows
        )
        is_topic = resource_type is ConfigResourceType.TOPIC
        while True:
            answer = await self._asked(
                IncrementalAlterConfigsRequest(resources=[resource]),
                name,
                changes if is_topic else {},
                doubts=True,
            )
            assert isinstance(answer, IncrementalAlterConfigsResponse), (
                "IncrementalAlterConfigs was asked"
            )
            error = error_of(answer.responses[0].error_code)
            if is_topic:
                self._emit_answer(name, error)
            if self._is_done(error, f"configure {name or 'all brokers'}"):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def configured(
        self, broker_id: int, topic: str, names: list[str]
    ) -> dict[str, str | None] | None:
        """Return some configurations of a topic as a broker describes them; None if it knows no
        such topic, or does not answer.
        """
        resource = DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=topic, configuration_keys=names
        )

        async def ask() -> Message:
            await self._connections.metadata([])
            return await (await self._connections.to_broker(broker_id)).request(
                DescribeConfigsRequest(resources=[resource])
            )

        try:
            answer = await self._client_host.run(ask())
        except OSError:
            return None
        assert isinstance(answer, DescribeConfigsResponse), "DescribeConfigs was asked"
        found = answer.results[0]
        return {row.name: row.value for row in found.configs} if not found.error_code else None

    def close(self) -> None:
        """End the client."""
        self._connections.close()

    async def _asked(
        self,
        request: Message,
        topic: str = "",
        changes: Mapping[str, str | None] = NOTHING,
        *,
        doubts: bool = False,
    ) -> Message:
        """Send a request to one broker after the other until one answers; with `doubts` the topic
        is in doubt after the first request without an answer.
        """
        while True:
            self._request_count += 1
            for name, value in changes.items():
                self._client_host.emit(
                    MetadataChangeSent(
                        client_id=self._client_host.name,
                        request=self._request_count,
                        topic=topic,
                        config_name=name,
                        config_value=value,
                    )
                )
            try:
                return await self._client_host.run(self._answer(request, topic if doubts else ""))
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)

    def _emit_answer(self, topic: str, error: ErrorCode) -> None:
        self._client_host.emit(
            MetadataChangeAnswered(
                client_id=self._client_host.name,
                request=self._request_count,
                topic=topic,
                error_code=int(error),
            )
        )

    async def _answer(self, request: Message, topic: str) -> Message:
        connection = await self._connections.to_any()
        try:
            return await connection.request(request)
        except OSError:
            if topic and len(self._client_host.bootstrap) > 1:
                self.in_doubt[topic] = None
            raise

    def _is_done(self, error: ErrorCode, what: str) -> bool:
        """Return whether that is done.

        Raises AdministratorRefused for an error that is not retriable.
        """
        passes = error.retriable or error in (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )  # brokers may be starting
        if error is not ErrorCode.NONE and not passes:
            raise AdministratorRefused(f"{self._client_host.name} could not {what}: {error.name}")
        return error is ErrorCode.NONE
