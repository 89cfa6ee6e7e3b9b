"""Auto-creates topics that clients request: at most one request to the controller at a time for
each name.

Source: kafka.server.DefaultAutoTopicCreationManager.
"""

from collections.abc import Iterable
from typing import Protocol

from kraftsim.metadata.rules_topic_names import (
    GROUP_METADATA,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller_channel import ControllerChannel
from kraftsim.server.forwarding import ANONYMOUS, LOOPBACK_ADDRESS, SIZE_BYTES
from kraftsim.server.outbound import OnAnswer
from kraftsim.tiered_storage.remote_store import (
    METADATA_TOPIC,
    metadata_topic_settings,
)
from protocol.api_keys import ApiKey
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.k58_envelope import EnvelopeRequest
from protocol.requests import request_chunks

CORRELATION_ID = 0


class TopicCreation:
    """Sends the request without waiting: clients retry Metadata until the topic exists."""

    def __init__(self, config: NodeConfig, channel: ControllerChannel, api_version: int) -> None:
        self._config = config
        self._channel = channel
        self._api_version = api_version
        self._in_flight: dict[str, None] = {}

    def create(self, names: Iterable[str]) -> None:
        """Create topics with the broker's defaults, unless their creation is in progress."""
        wanted = [name for name in names if name not in self._in_flight]
        if not wanted:
            return
        self._in_flight.update(dict.fromkeys(wanted))
        request = CreateTopicsRequest(
            topics=[self._creatable(name) for name in dict.fromkeys(wanted)],
            timeout_ms=self._config.request_timeout_ms,
        )
        self._ask(request, lambda answer: self._forget(wanted))

    def _ask(self, request: CreateTopicsRequest, on_answer: OnAnswer) -> None:
        chunks = request_chunks(
            ApiKey.CREATE_TOPICS,
            self._api_version,
            CORRELATION_ID,
            str(self._config.node_id),
            request,
        )
        envelope = EnvelopeRequest(
            request_data=b"".join(chunks)[SIZE_BYTES:],
            request_principal=ANONYMOUS,
            client_host_address=LOOPBACK_ADDRESS,
        )
        self._channel.send(envelope, on_answer)

    def _creatable(self, name: str) -> CreatableTopic:
        """Return the configuration of a new topic; internal topics have their own.

        With too few brokers the controller rejects the request.
        """
        config = self._config
        if name == TRANSACTION_STATE:
            return self._transaction_state()
        if name == SHARE_GROUP_STATE:
            return self._share_group_state()
        if name == METADATA_TOPIC:
            return self._remote_log_metadata()
        if name != GROUP_METADATA:
            return CreatableTopic(
                name=name,
                num_partitions=config.num_partitions,
                replication_factor=config.default_replication_factor,
            )
        rows = (
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.offsets_topic_segment_bytes)),
        )
        return CreatableTopic(
            name=name,
            num_partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in rows],
        )

    def _transaction_state(self) -> CreatableTopic:
        config = self._config
        rows = (
            ("unclean.leader.election.enable", "false"),
            ("compression.type", "uncompressed"),
            ("cleanup.policy", "compact"),
            ("min.insync.replicas", str(config.transaction_state_log_min_isr)),
            ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
        )
        return CreatableTopic(
            name=TRANSACTION_STATE,
            num_partitions=config.transaction_state_log_num_partitions,
            replication_factor=config.transaction_state_log_replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in rows],
        )

    def _share_group_state(self) -> CreatableTopic:
        config = self._config
        rows = (
            ("cleanup.policy", "delete"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.share_coordinator_state_topic_segment_bytes)),
            ("min.insync.replicas", str(config.share_coordinator_state_topic_min_isr)),
            ("retention.ms", "-1"),
        )
        return CreatableTopic(
            name=SHARE_GROUP_STATE,
            num_partitions=config.share_coordinator_state_topic_num_partitions,
            replication_factor=config.share_coordinator_state_topic_replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in rows],
        )

    def _remote_log_metadata(self) -> CreatableTopic:
        settings = metadata_topic_settings(self._config)
        rows = (
            ("cleanup.policy", "delete"),
            ("retention.ms", str(settings.retention_ms)),
            ("remote.storage.enable", "false"),
        )
        return CreatableTopic(
            name=METADATA_TOPIC,
            num_partitions=settings.partitions,
            replication_factor=settings.replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in rows],
        )

    def _forget(self, names: list[str]) -> None:
        for name in names:
            self._in_flight.pop(name, None)


class CreatingBroker(Protocol):
    """A broker that creates topics on demand."""

    @property
    def creation(self) -> TopicCreation:
        """Creates topics at the controller."""
        ...
