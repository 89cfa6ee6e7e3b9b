"""Replication quotas for reassignments: one rate for records served to followers, one for records
fetched from leaders.

The topic config lists the throttled replicas; the broker config limits their total rate. In-sync
replicas are never throttled, or a low limit would reduce the replication of acknowledged records;
their bytes are recorded all the same.

Source: KIP-73, kafka.server.{ReplicationQuotaManager, BrokerConfigHandler, TopicConfigHandler},
ReplicaManager.shouldLeaderThrottle.
"""

from collections.abc import Collection, Mapping
from typing import Final

from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.topic_settings import broker_settings
from kraftsim.server.config import NodeConfig
from kraftsim.server.rules_quotas import SteadyRate
from kraftsim.world.interface import Clock
from protocol.metadata.settings import TOPIC_RESOURCE

UNLIMITED: Final = 2**63 - 1
ALL_REPLICAS: Final = "*"


class ReplicationThrottle:
    """One direction: `leader` for served records, `follower` for fetched ones.

    Only bytes of replicas on the list are recorded.
    """

    def __init__(self, direction: str, config: NodeConfig, clock: Clock) -> None:
        self._rate_key = f"{direction}.replication.throttled.rate"
        self._replicas_key = f"{direction}.replication.throttled.replicas"
        self._broker_id = str(config.node_id)
        self._clock = clock
        self._rate = SteadyRate(
            config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000
        )
        self._limit = UNLIMITED
        self._throttled: dict[str, Collection[int] | None] = {}
        """The throttled partitions of each topic; None: all of them."""
        self.is_set = False
        """Whether any replica is throttled; if not, the check costs nothing."""

    def follow(self, settings: BrokerSettings, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Apply the current configs of the broker and of all topics."""
        value = settings.own.get(self._rate_key, settings.cluster.get(self._rate_key))
        self._limit = UNLIMITED if value is None else int(value)
        self._throttled = {
            name: self._partitions(configs[self._replicas_key])
            for name, configs in topics.items()
            if configs.get(self._replicas_key)
        }
        self.is_set = bool(self._throttled)

    def holds(self, topic: str, partition: int) -> bool:
        """Return whether this broker's replica of a partition is throttled."""
        if topic not in self._throttled:
            return False
        partitions = self._throttled[topic]
        return partitions is None or partition in partitions

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate is above the limit."""
        return self._rate.measure(self._clock.monotonic_ms()) > self._limit

    def record(self, size_bytes: int) -> None:
        """Record bytes of throttled replicas."""
        self._rate.record(size_bytes, self._clock.monotonic_ms())

    def _partitions(self, value: str) -> Collection[int] | None:
        """Return the partitions of this broker in a list `partition:broker,...`; None for all."""
        if value.strip() == ALL_REPLICAS:
            return None
        pairs = (each.strip().split(":") for each in value.split(","))
        return frozenset(
            int(partition) for partition, broker_id in pairs if broker_id == self._broker_id
        )


class ReplicationThrottles:
    """Both directions of a broker."""

    def __init__(self, config: NodeConfig, clock: Clock) -> None:
        self._config = config
        self.leader = ReplicationThrottle("leader", config, clock)
        self.follower = ReplicationThrottle("follower", config, clock)

    def follow(self, image: MetadataImage) -> None:
        """Apply the configs of the current metadata."""
        settings = broker_settings(self._config, image)
        topics = {
            name: configs for (kind, name), configs in image.configs() if kind == TOPIC_RESOURCE
        }
        self.leader.follow(settings, topics)
        self.follower.follow(settings, topics)
