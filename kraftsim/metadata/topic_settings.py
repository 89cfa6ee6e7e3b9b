"""The effective configuration of a topic: its own configs, or else those of the broker, which may
change while it runs.

Source: org.apache.kafka.storage.internals.log.LogConfig, ServerTopicConfigSynonyms,
kafka.server.DynamicLogConfig (KIP-226).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kraftsim.groups.rules_group_configs import GroupConfigs
from kraftsim.metadata.rules_config_releases import config_tables
from kraftsim.metadata.rules_configs import ALL_BROKERS
from kraftsim.metadata.rules_described_configs import BrokerSettings, static_settings
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.partitions.rules_append import AppendRules
from kraftsim.partitions.rules_cleaning import CleaningRules
from kraftsim.partitions.rules_log import RetentionRules, SegmentSettings
from kraftsim.partitions.rules_topic_configs import (
    append_rules,
    cleaning_rules,
    converts_down,
    retention_rules,
    segment_settings,
)
from kraftsim.server.config import NodeConfig
from kraftsim.tiered_storage.rules_segments import NOT_TIERED, TieringRules, tiering_rules
from protocol.config_resources import ConfigResourceType
from protocol.metadata.settings import BROKER_RESOURCE


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """`flush_messages`: the number of records after which the log must be flushed and responses
    wait for the flush.

    `converts_down`: clients of message formats 0 and 1 are served by down-conversion.
    `replica_count` is that of the partition, which bounds min.insync.replicas.
    """

    rules: AppendRules
    segments: SegmentSettings
    retention: RetentionRules
    flush_messages: int
    cleaning: CleaningRules = field(default_factory=CleaningRules)
    converts_down: bool = True
    tiering: TieringRules = NOT_TIERED
    replica_count: int = 1


def broker_settings(config: NodeConfig, image: MetadataImage) -> BrokerSettings:
    """Return the effective broker configuration: dynamic configs override the static properties."""
    tables = config_tables(config.release)
    return BrokerSettings(
        static=static_settings(config.given),
        own=tables.applicable(
            image.configs_of(BROKER_RESOURCE, str(config.node_id)), is_for_all=False
        ),
        cluster=tables.applicable(image.configs_of(BROKER_RESOURCE, ALL_BROKERS), is_for_all=True),
        tables=tables,
    )


class SettingsOfGroups:
    """The broker settings behind the configurations of groups, as `GroupConfigs` reads them.

    The effective settings are computed again only after dynamic ones have changed.
    """

    def __init__(self, config: NodeConfig, image: Callable[[], MetadataImage]) -> None:
        self._config = config
        self._image = image
        self._computed: tuple[Mapping[str, str], Mapping[str, str], BrokerSettings] | None = None
        self._found: dict[str, str | None] = {}
        """By name, since the last computation."""

    def __call__(self, name: str) -> str | None:
        """Return the text of a setting, or its default; None: the release has no such setting."""
        settings = self._settings()
        if name not in self._found:
            value = settings.value(name)
            self._found[name] = settings.tables.default_of(name) if value is None else value
        return self._found[name]

    def _settings(self) -> BrokerSettings:
        image = self._image()
        own = image.configs_of(BROKER_RESOURCE, str(self._config.node_id))
        cluster = image.configs_of(BROKER_RESOURCE, ALL_BROKERS)
        computed = self._computed
        if computed is None or computed[0] is not own or computed[1] is not cluster:
            computed = self._computed = (own, cluster, broker_settings(self._config, image))
            self._found.clear()
        return computed[2]


def configs_of_groups(config: NodeConfig, image: Callable[[], MetadataImage]) -> GroupConfigs:
    """Return the configurations of groups on a broker; `image` returns its present metadata."""
    return GroupConfigs(
        config_tables(config.release).groups,
        lambda group_id: image().configs_of(ConfigResourceType.GROUP, group_id),
        SettingsOfGroups(config, image),
    )


def topic_settings(
    config: NodeConfig,
    image: MetadataImage,
    topic: str,
    *,
    replica_count: int,
    bounds_min_in_sync_replicas: bool,
) -> TopicSettings:
    """Return the current configuration of a topic; the controller and the broker have rejected
    invalid values before.
    """
    present = broker_settings(config, image)
    behind = replace(present, static={**present.static, **_checked(config)}).for_topics()
    configs = present.tables.effective_topic_configs(image.topic_configs(topic), behind)
    return settings_of(
        configs,
        replica_count=replica_count,
        bounds_min_in_sync_replicas=bounds_min_in_sync_replicas,
        has_remote_store=config.remote_log_storage_system_enable,
    )


def settings_of(
    configs: Mapping[str, str],
    *,
    replica_count: int,
    bounds_min_in_sync_replicas: bool,
    has_remote_store: bool,
) -> TopicSettings:
    """Parse the effective configs of a topic."""
    return TopicSettings(
        rules=append_rules(
            configs,
            replica_count=replica_count,
            bounds_min_in_sync_replicas=bounds_min_in_sync_replicas,
        ),
        segments=segment_settings(configs),
        retention=retention_rules(configs),
        flush_messages=int(configs["flush.messages"]),
        cleaning=cleaning_rules(configs),
        converts_down=converts_down(configs),
        tiering=tiering_rules(configs, is_enabled=has_remote_store),
        replica_count=replica_count,
    )


def _checked(config: NodeConfig) -> dict[str, str]:
    """Return the validated broker properties that are defaults of topic configs, by their broker
    names.
    """
    return {
        "log.cleanup.policy": ",".join(config.log_cleanup_policy),
        "log.flush.interval.messages": str(config.log_flush_interval_messages),
        "log.index.interval.bytes": str(config.log_index_interval_bytes),
        "message.max.bytes": str(config.message_max_bytes),
        "compression.type": config.compression_type,
        "log.message.downconversion.enable": str(config.log_message_downconversion_enable).lower(),
        "log.message.timestamp.type": config.log_message_timestamp_type,
        "min.insync.replicas": str(config.min_insync_replicas),
        "log.segment.bytes": str(config.log_segment_bytes),
        "log.roll.ms": str(config.segment_ms),
    }
