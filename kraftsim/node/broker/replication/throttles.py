"""How fast records may be copied for replicas that are moved: a rate for what is handed out here, and one for what is fetched.

Which replicas are held back says the topic, how much all of them may have together says the broker. Whoever is in sync is never held back, or a limit
that is too low would cost acknowledged records their copies; what is copied for it counts all the same.

Source: KIP-73, kafka.server.{ReplicationQuotaManager, BrokerConfigHandler, TopicConfigHandler}, ReplicaManager.shouldLeaderThrottle.
"""

from collections.abc import Collection, Mapping
from typing import Final

from kraftsim.core.metadata.broker_configs import BrokerSettings
from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.quotas.windowed_rate import SteadyRate
from kraftsim.node.broker.topic_settings import broker_settings
from kraftsim.node.config import NodeConfig
from kraftsim.world.interface import Clock
from protocol.metadata.m04_config import TOPIC_RESOURCE

UNLIMITED: Final = 2**63 - 1
ALL_REPLICAS: Final = "*"


class ReplicationThrottle:
    """One direction: `leader` for what is handed out, `follower` for what is fetched. Bytes count for replicas that are held back, and only those."""

    def __init__(self, direction: str, config: NodeConfig, clock: Clock) -> None:
        self._rate_key = f"{direction}.replication.throttled.rate"
        self._replicas_key = f"{direction}.replication.throttled.replicas"
        self._broker_id = str(config.node_id)
        self._clock = clock
        self._rate = SteadyRate(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)
        self._limit = UNLIMITED
        self._held: dict[str, Collection[int] | None] = {}
        """By topic, the partitions that are held back; None: all of them."""
        self.is_set = False
        """Whether anything is held back at all: what is not set costs nothing."""

    def follow(self, settings: BrokerSettings, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Let hold what the metadata say now: of the broker, and of every topic that has configurations."""
        told = settings.own.get(self._rate_key, settings.cluster.get(self._rate_key))
        self._limit = UNLIMITED if told is None else int(told)
        self._held = {name: self._partitions(configs[self._replicas_key]) for name, configs in topics.items() if configs.get(self._replicas_key)}
        self.is_set = bool(self._held)

    def holds(self, topic: str, partition: int) -> bool:
        """Tell whether this broker's replica of a partition is held back."""
        if topic not in self._held:
            return False
        partitions = self._held[topic]
        return partitions is None or partition in partitions

    @property
    def is_exceeded(self) -> bool:
        """Whether more was copied than may be."""
        return self._rate.measure(self._clock.monotonic_ms()) > self._limit

    def record(self, size_bytes: int) -> None:
        """Count what was copied for replicas that are held back."""
        self._rate.record(size_bytes, self._clock.monotonic_ms())

    def _partitions(self, told: str) -> Collection[int] | None:
        """Return which partitions of a list `partition:broker,...` are meant here; None for all."""
        if told.strip() == ALL_REPLICAS:
            return None
        pairs = (each.strip().split(":") for each in told.split(","))
        return frozenset(int(partition) for partition, broker_id in pairs if broker_id == self._broker_id)


class ReplicationThrottles:
    """Both directions of a broker."""

    def __init__(self, config: NodeConfig, clock: Clock) -> None:
        self._config = config
        self.leader = ReplicationThrottle("leader", config, clock)
        self.follower = ReplicationThrottle("follower", config, clock)

    def follow(self, image: MetadataImage) -> None:
        """Let hold what the metadata say now."""
        settings = broker_settings(self._config, image)
        topics = {name: configs for (kind, name), configs in image.configs() if kind == TOPIC_RESOURCE}
        self.leader.follow(settings, topics)
        self.follower.follow(settings, topics)
